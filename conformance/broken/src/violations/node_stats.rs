//! NodeGetVolumeStats (ST).

use csi_conformance::wire::csi::v1::NodeGetVolumeStatsRequest;
use tonic::Code;

use crate::interceptor::Interceptor;
use crate::mistakes::{hiding_failures, pretending, refusing, refusing_long_paths};
use crate::violation::{Violation, violation};

pub(super) const ALL: &[Violation] = &[
    violation("stats-are-missing", "ST-01", "lists a call that it does not have", || {
        Interceptor::default().unimplemented::<NodeGetVolumeStatsRequest>()
    }),
    violation("stats-take-no-volume-id", "ST-02", "does not look for volume_id", || {
        Interceptor::default().accept::<NodeGetVolumeStatsRequest>(Code::InvalidArgument)
    }),
    violation("stats-miss-a-path-late", "ST-03", "says NOT_FOUND", || {
        Interceptor::default()
            .recode::<NodeGetVolumeStatsRequest>(Code::InvalidArgument, Code::NotFound)
    }),
    violation("stats-know-targets-only", "ST-04", "does not know the staging path", || {
        refusing::<NodeGetVolumeStatsRequest>(Code::NotFound, |it| {
            it.volume_path == it.staging_target_path
        })
    }),
    violation("stats-of-nothing", "ST-05", "has numbers for what is not there", || {
        Interceptor::default().accept::<NodeGetVolumeStatsRequest>(Code::NotFound)
    }),
    violation("stats-have-an-internal-error", "ST-05", "says INTERNAL", || {
        Interceptor::default().recode::<NodeGetVolumeStatsRequest>(Code::NotFound, Code::Internal)
    }),
    violation("stats-without-total", "ST-06", "leaves out the total", || {
        Interceptor::default().reply::<NodeGetVolumeStatsRequest>(|_, reply| {
            reply.usage.iter_mut().for_each(|it| it.total = 0);
        })
    }),
    violation("stats-of-the-wrong-device", "ST-06", "tells of another device", || {
        Interceptor::default().reply::<NodeGetVolumeStatsRequest>(|_, reply| {
            reply.usage.iter_mut().for_each(|it| it.total += 4096);
        })
    })
    .on_real(),
    violation("stats-in-other-units", "ST-07", "makes up a unit", || {
        Interceptor::default().reply::<NodeGetVolumeStatsRequest>(|_, reply| {
            reply.usage.iter_mut().for_each(|it| it.unit = 7);
        })
    }),
    violation("stats-below-zero", "ST-08", "subtracts what is reserved", || {
        Interceptor::default().reply::<NodeGetVolumeStatsRequest>(|_, reply| {
            reply.usage.iter_mut().for_each(|it| it.available = -1);
        })
    }),
    violation("stats-of-devices-are-empty", "ST-09", "leaves out the whole entry", || {
        Interceptor::default().reply::<NodeGetVolumeStatsRequest>(|_, reply| reply.usage.clear())
    }),
    violation("stats-without-condition", "ST-11", "leaves out the condition", || {
        Interceptor::default()
            .reply::<NodeGetVolumeStatsRequest>(|_, reply| reply.volume_condition = None)
    }),
    violation("stats-want-the-staging-path", "ST-12", "needs what is optional", || {
        refusing::<NodeGetVolumeStatsRequest>(Code::InvalidArgument, |it| {
            it.staging_target_path.is_empty()
        })
    }),
    violation("stats-at-short-paths-only", "ST-13", "refuses a path of 128 bytes", || {
        refusing_long_paths::<NodeGetVolumeStatsRequest>(|it| &it.volume_path)
    }),
    violation("stats-at-relative-paths", "ST-14", "looks from where it runs", || {
        pretending::<NodeGetVolumeStatsRequest>(|it| !it.volume_path.starts_with('/'))
    }),
    violation("stats-hide-failures", "ST-15", "says OK and nothing else", || {
        hiding_failures::<NodeGetVolumeStatsRequest>()
    }),
];
