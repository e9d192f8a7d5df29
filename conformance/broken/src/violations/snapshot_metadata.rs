//! Snapshot metadata (SM).

use std::sync::atomic::{AtomicUsize, Ordering};

use csi_conformance::wire::csi::v1::{
    BlockMetadata, BlockMetadataType, GetMetadataAllocatedRequest, GetMetadataAllocatedResponse,
    GetMetadataDeltaRequest,
};
use tonic::{Code, Status};

use crate::interceptor::{Answer, Interceptor};
use crate::violation::{Violation, violation};

type Allocated = GetMetadataAllocatedRequest;
type Delta = GetMetadataDeltaRequest;
type Messages = Vec<GetMetadataAllocatedResponse>;

pub(super) const ALL: &[Violation] = &[
    violation("metadata-delta-is-missing", "SM-01", "does not know GetMetadataDelta", || {
        Interceptor::default().unimplemented::<Delta>()
    }),
    violation("metadata-falls", "SM-02", "returns ranges in falling order", || {
        reporting(&[&[(8192, 4096), (0, 4096)]])
    }),
    violation("metadata-overlaps", "SM-03", "returns ranges that overlap", || {
        reporting(&[&[(0, 8192), (4096, 4096)]])
    }),
    violation("metadata-repeats-a-range", "SM-04", "repeats a range in the next message", || {
        reporting(&[&[(0, 4096)], &[(0, 4096)]])
    }),
    violation("metadata-overlaps-the-next", "SM-04", "overlaps with the next message", || {
        reporting(&[&[(0, 8192)], &[(4096, 8192)]])
    }),
    violation("metadata-of-no-size", "SM-05", "returns a range of no size", || {
        reporting(&[&[(0, 4096), (8192, 0)]])
    }),
    violation("metadata-below-zero", "SM-06", "counts from below 0", || {
        reporting(&[&[(-4096, 4096)]])
    }),
    violation("metadata-of-another-type", "SM-07", "returns a type that there is not", || {
        changing(|messages| messages.iter_mut().for_each(|it| it.block_metadata_type = 7))
    }),
    violation("metadata-changes-its-type", "SM-08", "changes the type", || {
        changing(|messages| {
            messages.extend(messages.first().cloned());
            if let Some(last) = messages.last_mut() {
                last.set_block_metadata_type(BlockMetadataType::FixedLength);
            }
        })
    }),
    violation("metadata-fixed-but-not", "SM-09", "has a shorter last range", || {
        changing(|messages| {
            for message in messages {
                message.set_block_metadata_type(BlockMetadataType::FixedLength);
                message.block_metadata = ranges(&[(0, 4096)]);
                if message.volume_capacity_bytes > 0 {
                    message.block_metadata.extend(ranges(&[(8192, 512)]));
                }
            }
        })
    }),
    violation("metadata-tells-another-capacity", "SM-11", "tells what is allocated", || {
        changing(|messages| messages.iter_mut().for_each(|it| it.volume_capacity_bytes = 4096))
    }),
    violation("metadata-changes-the-capacity", "SM-12", "changes the capacity", || {
        changing(|messages| {
            messages.extend(messages.first().cloned());
            if let Some(last) = messages.last_mut() {
                last.volume_capacity_bytes += 4096;
            }
        })
    }),
    violation("metadata-ignores-the-cap", "SM-13", "ignores max_results", || {
        reporting(&[&[(0, 4096), (8192, 4096), (16384, 4096)]])
    }),
    violation("metadata-takes-negative-caps", "SM-15", "takes -1 for no cap", || {
        Interceptor::default()
            .ask::<Allocated>(|request| request.max_results = request.max_results.max(0))
    }),
    violation("metadata-ignores-the-offset", "SM-16", "begins from the start", || {
        Interceptor::default().ask::<Allocated>(|request| request.starting_offset = 0)
    })
    .on_real(),
    violation("metadata-needs-a-range-at-the-offset", "SM-17", "returns nothing in a hole", || {
        Interceptor::default().stream::<Allocated>(|request, messages, _| {
            let start = request.starting_offset;
            let first = messages.first().and_then(|it| it.block_metadata.first());
            if start > 0 && first.is_some_and(|it| it.byte_offset > start) {
                messages.iter_mut().for_each(|it| it.block_metadata.clear());
            }
        })
    })
    .on_real(),
    violation(
        "metadata-skips-after-a-break",
        "SM-18",
        "leaves out the range at the offset",
        || {
            Interceptor::default().stream::<Allocated>(|request, messages, _| {
                if let Some(first) = messages.first_mut()
                    && request.starting_offset > 0
                    && !first.block_metadata.is_empty()
                {
                    first.block_metadata.remove(0);
                }
            })
        },
    )
    .on_real(),
    violation("metadata-ends-early", "SM-19", "drops the last range", || {
        Interceptor::default().stream::<Allocated>(|_, messages, _| {
            if let Some(last) = messages.last_mut() {
                last.block_metadata.pop();
            }
        })
    })
    .on_real(),
    violation("metadata-ends-well-in-any-case", "SM-20", "ends with OK after an error", || {
        Interceptor::default().stream::<Allocated>(|_, _, end| *end = Ok(()))
    }),
    violation("metadata-keeps-streams-open", "SM-21", "keeps streams that were given up", || {
        let opened = AtomicUsize::new(0);
        Interceptor::default().stream::<Allocated>(move |_, messages, end| {
            if opened.fetch_add(1, Ordering::Relaxed) >= 16 {
                messages.clear();
                *end = Err(Status::resource_exhausted("too many streams"));
            }
        })
    }),
    violation("metadata-of-nothing-is-an-error", "SM-22", "fails on a blank volume", || {
        Interceptor::default().stream::<Allocated>(|_, messages, end| {
            if messages.iter().all(|it| it.block_metadata.is_empty()) {
                *end = Err(Status::internal("there are no blocks"));
            }
        })
    }),
    violation("metadata-forgets-a-block", "SM-23", "leaves out a block", || {
        Interceptor::default().stream::<Allocated>(|_, messages, _| {
            for message in messages {
                message.block_metadata.retain(|it| it.byte_offset != 0);
            }
        })
    })
    .on_real(),
    violation("metadata-delta-forgets-zeroes", "SM-24", "leaves out the second block", || {
        Interceptor::default().stream::<Delta>(|_, messages, _| {
            let Some(first) = messages.first_mut() else { return };
            if first.block_metadata.len() > 1 {
                first.block_metadata.remove(1);
            }
        })
    })
    .on_real(),
    violation("metadata-takes-no-id", "SM-25", "says NOT_FOUND without an id", || {
        recoding::<Allocated>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("metadata-missing-is-internal", "SM-26", "says INTERNAL", || {
        recoding::<Allocated>(Code::NotFound, Code::Internal)
    }),
    violation("metadata-out-of-range-is-invalid", "SM-27", "says INVALID_ARGUMENT", || {
        recoding::<Allocated>(Code::OutOfRange, Code::InvalidArgument)
    }),
    violation("metadata-out-of-range-is-empty", "SM-27", "returns nothing behind the end", || {
        Interceptor::default().stream::<Allocated>(|_, _, end| *end = Ok(()))
    }),
    violation("metadata-hides-errors", "SM-28", "returns nothing when it cannot look", || {
        Interceptor::default().stream::<Allocated>(|_, _, end| *end = Ok(()))
    }),
    violation("metadata-delta-takes-no-base", "SM-29", "takes no base for a blank one", || {
        Interceptor::default().ask::<Delta>(|request| {
            if request.base_snapshot_id.is_empty() {
                request.base_snapshot_id.clone_from(&request.target_snapshot_id);
            }
        })
    }),
    violation("metadata-delta-missing-is-invalid", "SM-30", "says INVALID_ARGUMENT", || {
        recoding::<Delta>(Code::NotFound, Code::InvalidArgument)
    }),
    violation(
        "metadata-delta-untracked",
        "SM-31",
        "says INTERNAL when there is no tracking",
        || Interceptor::default().answer::<Delta>(|_| Some(Err(Status::internal("no tracking")))),
    ),
    violation("metadata-delta-out-of-range", "SM-32", "says INVALID_ARGUMENT", || {
        recoding::<Delta>(Code::OutOfRange, Code::InvalidArgument)
    }),
    violation(
        "metadata-delta-hides-errors",
        "SM-33",
        "returns nothing when it cannot look",
        || Interceptor::default().stream::<Delta>(|_, _, end| *end = Ok(())),
    ),
    violation("metadata-delta-takes-any-two", "SM-34", "compares what cannot be compared", || {
        Interceptor::default().stream::<Delta>(|_, _, end| *end = Ok(()))
    }),
    violation("metadata-delta-of-the-base", "SM-35", "tells the base's capacity", || {
        Interceptor::default().stream::<Delta>(|_, messages, _| {
            messages.iter_mut().for_each(|it| it.volume_capacity_bytes /= 2);
        })
    }),
    violation("metadata-not-of-filesystems", "SM-36", "fails on a volume that was mounted", || {
        Interceptor::default()
            .answer::<Allocated>(|_| Some(Err(Status::internal("it is no raw volume"))))
    }),
];

fn ranges(reported: &[(i64, i64)]) -> Vec<BlockMetadata> {
    let range = |(byte_offset, size_bytes): &(i64, i64)| BlockMetadata {
        byte_offset: *byte_offset,
        size_bytes: *size_bytes,
    };
    reported.iter().map(range).collect()
}

fn changing(change: fn(&mut Messages)) -> Interceptor {
    Interceptor::default().stream::<Allocated>(move |_, messages, _| change(messages))
}

/// Messages like the first one, each with these ranges.
fn reporting(reported: &'static [&'static [(i64, i64)]]) -> Interceptor {
    Interceptor::default().stream::<Allocated>(move |_, messages, _| {
        let Some(first) = messages.first().cloned() else { return };
        let message = |it: &&[(i64, i64)]| GetMetadataAllocatedResponse {
            block_metadata: ranges(it),
            ..first.clone()
        };
        *messages = reported.iter().map(message).collect();
    })
}

fn recoding<R: csi_conformance::wire::Rpc>(from: Code, to: Code) -> Interceptor {
    Interceptor::default().stream::<R>(move |_, _, end: &mut Answer<()>| {
        if let Err(status) = end
            && status.code() == from
        {
            *end = Err(Status::new(to, status.message()));
        }
    })
}
