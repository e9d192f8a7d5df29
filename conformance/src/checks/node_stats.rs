//! NodeGetVolumeStats (ST).

use tonic::Code;

use crate::capability::block;
use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::{CheckContext, Placed};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;
use crate::wire::csi::v1::node_service_capability::rpc::Type::{GetVolumeStats, VolumeCondition};
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::volume_usage::Unit;
use crate::wire::csi::v1::{NodeGetVolumeStatsRequest, VolumeUsage};

pub(super) const SECTION: Section = Section {
    title: "NodeGetVolumeStats",
    service: Service::Node,
    needs: &[Need::Node(GetVolumeStats), Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "stats-at-both-paths",
        "asks at the staging path, at the target, and without naming the staging path",
        &["ST-01", "ST-04", "ST-12"],
        run!(at_both_paths),
    ),
    check("stats-without-volume-id", "leaves out volume_id", &["ST-02"], run!(without_volume_id)),
    check("stats-without-path", "leaves out volume_path", &["ST-03"], run!(without_path)),
    check(
        "stats-of-what-is-not-there",
        "names an unknown volume, a deleted one, a path without a volume, and another volume's",
        &["ST-05"],
        run!(of_what_is_not_there),
    ),
    check(
        "stats-add-up",
        "looks at each usage entry of a mounted volume",
        &["ST-06", "ST-07", "ST-08"],
        run!(add_up),
    )
    .needs(&[Need::MountAccess]),
    check(
        "stats-of-a-device",
        "looks at each usage entry of a block volume",
        &["ST-06", "ST-07", "ST-08"],
        run!(of_a_device),
    )
    .needs(&[Need::BlockAccess]),
    check(
        "stats-of-a-device-in-bytes",
        "looks for the entry that a block volume cannot do without",
        &["ST-09"],
        run!(of_a_device_in_bytes),
    )
    .needs(&[Need::BlockAccess]),
    check(
        "stats-tell-the-condition",
        "looks for the volume's condition",
        &["ST-11"],
        run!(tell_the_condition),
    )
    .needs(&[Need::Node(VolumeCondition)]),
    check("stats-at-long-path", "asks at a path of 128 bytes", &["ST-13"], run!(at_long_path)),
    check("stats-at-relative-path", "gives a relative path", &["ST-14"], run!(at_relative_path)),
];

const UNSEEN: &[(&str, &str)] = &[(
    "ST-10",
    "A permission: which filesystem a plugin makes, and whether that one counts inodes, is its \
     own choice, so either reply is right",
)];

async fn placed(t: &CheckContext) -> Outcome<Placed> {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    t.placed(&volume, capability).await
}

async fn at_both_paths(t: &CheckContext) -> Outcome {
    let placed = placed(t).await?;
    let at_target = t.stats(&placed, &placed.target);
    t.ok(at_target.clone()).await?;
    let staging_target_path = String::new();
    let older = NodeGetVolumeStatsRequest { staging_target_path, ..at_target };
    blamed("ST-12", t.ok(older).await)?;
    if t.stages() {
        blamed("ST-04", t.ok(t.stats(&placed, &placed.staging)).await)?;
    }
    Ok(())
}

async fn without_volume_id(t: &CheckContext) -> Outcome {
    let placed = placed(t).await?;
    let volume_id = String::new();
    let request = NodeGetVolumeStatsRequest { volume_id, ..t.stats(&placed, &placed.target) };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_path(t: &CheckContext) -> Outcome {
    let placed = placed(t).await?;
    t.refused(t.stats(&placed, ""), Code::InvalidArgument).await?;
    Ok(())
}

async fn of_what_is_not_there(t: &CheckContext) -> Outcome {
    let placed = placed(t).await?;
    let right = t.stats(&placed, &placed.target);
    for volume_id in [t.unknown_id(), t.deleted_volume().await?] {
        let request = NodeGetVolumeStatsRequest { volume_id, ..right.clone() };
        t.refused(request, Code::NotFound).await?;
    }
    t.refused(t.stats(&placed, &t.target_path()?), Code::NotFound).await?;
    let volume_id = t.volume().await?.volume_id;
    t.refused(NodeGetVolumeStatsRequest { volume_id, ..right.clone() }, Code::NotFound).await?;
    t.ok(t.unpublish(&placed)).await?;
    t.refused(right, Code::NotFound).await?;
    Ok(())
}

fn check_usage(t: &CheckContext, usage: &[VolumeUsage]) -> Outcome {
    t.expect(!usage.is_empty(), "at least one usage entry")?;
    for entry in usage {
        let known = matches!(entry.unit(), Unit::Bytes | Unit::Inodes);
        blamed("ST-07", t.expect(known, "a unit of BYTES or INODES"))?;
        let total = entry.total > 0 || entry.unit() == Unit::Inodes && entry.total == 0;
        blamed("ST-06", t.expect(total, "a total that is set and not negative"))?;
        let others = entry.available >= 0 && entry.used >= 0;
        blamed("ST-08", t.expect(others, "available and used not to be negative"))?;
    }
    Ok(())
}

async fn add_up(t: &CheckContext) -> Outcome {
    let capability = t.mount(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let usage = t.ok(t.stats(&placed, &placed.target)).await?.usage;
    check_usage(t, &usage)
}

async fn placed_device(t: &CheckContext) -> Outcome<Placed> {
    let capability = block(Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    t.placed(&volume, capability).await
}

fn in_bytes(usage: &[VolumeUsage]) -> Option<&VolumeUsage> {
    usage.iter().find(|entry| entry.unit() == Unit::Bytes)
}

async fn of_a_device(t: &CheckContext) -> Outcome {
    let placed = placed_device(t).await?;
    let usage = t.ok(t.stats(&placed, &placed.target)).await?.usage;
    check_usage(t, &usage)?;
    if let Some(bytes) = in_bytes(&usage).filter(|_| t.options().local_files) {
        let size = t.device_size(&placed.target_path())?;
        let reported = u64::try_from(bytes.total).unwrap_or_default();
        blamed(
            "ST-06",
            t.expect(reported == size, format!("the device's {size} bytes as the total")),
        )?;
    }
    Ok(())
}

async fn of_a_device_in_bytes(t: &CheckContext) -> Outcome {
    let placed = placed_device(t).await?;
    let usage = t.ok(t.stats(&placed, &placed.target)).await?.usage;
    t.some(in_bytes(&usage), "an entry in BYTES")?;
    Ok(())
}

async fn tell_the_condition(t: &CheckContext) -> Outcome {
    let placed = placed(t).await?;
    let reply = t.ok(t.stats(&placed, &placed.target)).await?;
    t.some(reply.volume_condition, "volume_condition in the reply")?;
    Ok(())
}

async fn at_long_path(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let staged = t.staged(&volume, capability).await?;
    let placed = t.published_at(staged, t.long_target_path()?).await?;
    t.ok(t.stats(&placed, &placed.target)).await?;
    Ok(())
}

/// It is no legal path, and no volume is there.
async fn at_relative_path(t: &CheckContext) -> Outcome {
    let placed = placed(t).await?;
    let request = t.stats(&placed, "conformance/relative/path");
    t.refused_with(request, &[Code::InvalidArgument, Code::NotFound]).await?;
    Ok(())
}
