//! CapacityRange (CR).

use csi_conformance::wire::csi::v1::{
    CapacityRange, ControllerExpandVolumeRequest, CreateVolumeRequest,
};
use tonic::Status;

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

const MIB: i64 = 1 << 20;

fn asked(change: fn(&mut CapacityRange)) -> Interceptor {
    Interceptor::default().ask::<CreateVolumeRequest>(move |request| {
        request.capacity_range.iter_mut().for_each(change);
    })
}

pub(super) const ALL: &[Violation] = &[
    violation("no-size-means-any", "CR-01", "takes an empty range for none", || {
        Interceptor::default().ask::<CreateVolumeRequest>(|request| {
            request.capacity_range =
                request.capacity_range.filter(|it| *it != CapacityRange::default());
        })
    }),
    violation("negative-sizes", "CR-02", "drops the sign of a size", || {
        asked(|range| range.required_bytes = range.required_bytes.abs())
    }),
    violation("negative-sizes-when-expanding", "CR-02", "expands to a negative size", || {
        Interceptor::default().ask::<ControllerExpandVolumeRequest>(|request| {
            if let Some(range) = &mut request.capacity_range {
                range.required_bytes = range.required_bytes.abs();
            }
        })
    }),
    violation("both-sizes-are-needed", "CR-03", "wants both sizes", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let refusal = Status::invalid_argument("limit_bytes is missing");
            let unlimited = request.capacity_range.is_some_and(|it| it.limit_bytes == 0);
            unlimited.then_some(Err(refusal))
        })
    }),
    violation("sizes-are-rounded-down", "CR-04", "rounds a size down to mebibytes", || {
        asked(|range| range.required_bytes -= range.required_bytes % MIB)
    }),
    violation("devices-are-too-small", "CR-04", "tells a size that the device lacks", || {
        asked(|range| range.required_bytes /= 2).reply::<CreateVolumeRequest>(|request, reply| {
            if let Some(volume) = &mut reply.volume {
                let range = request.capacity_range.unwrap_or_default();
                volume.capacity_bytes = range.required_bytes;
            }
        })
    })
    .on_real(),
    violation("limits-are-ignored", "CR-05", "makes a volume beyond its limit", || {
        asked(|range| {
            if range.required_bytes == 0 && range.limit_bytes > 0 {
                range.required_bytes = 2 * range.limit_bytes;
            }
            range.limit_bytes = 0;
        })
    }),
    violation("exact-sizes-are-not", "CR-06", "rounds up what has to be exact", || {
        asked(|range| {
            if range.limit_bytes == range.required_bytes {
                range.limit_bytes = 0;
            }
        })
    }),
    violation("limits-below-sizes", "CR-07", "swaps sizes that are upside down", || {
        asked(|range| {
            if range.limit_bytes > 0 && range.limit_bytes < range.required_bytes {
                std::mem::swap(&mut range.limit_bytes, &mut range.required_bytes);
            }
        })
    }),
    violation("rounding-passes-the-limit", "CR-08", "rounds up beyond the limit", || {
        asked(|range| {
            if range.limit_bytes > 0 {
                range.limit_bytes = (range.limit_bytes / MIB + 1) * MIB;
            }
        })
    }),
];
