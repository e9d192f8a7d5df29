//! NodeExpandVolume (NE).

pub(super) mod growing;

use tonic::Code;

use self::growing::{Grown, expand, grown, requested};
use crate::capability::{block, in_mode};
use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::{CheckContext, Placed};
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;
use crate::wire::csi::v1::node_service_capability::rpc::Type::{ExpandVolume, StageUnstageVolume};
use crate::wire::csi::v1::plugin_capability::volume_expansion::Type::Offline;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{CreateVolumeRequest, NodeExpandVolumeRequest};

pub(super) const SECTION: Section = Section {
    title: "NodeExpandVolume",
    service: Service::Node,
    needs: &[Need::Node(ExpandVolume), Need::Controller(CreateDeleteVolume)],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "node-expand-twice",
        "expands a published volume twice, and looks at the size that it is told",
        &["NE-01", "NE-02", "NE-03", "NE-17"],
        run!(twice),
    ),
    check(
        "node-expand-what-is-not-there",
        "names a path at which the volume is not",
        &["NE-04"],
        run!(what_is_not_there),
    ),
    check(
        "node-expand-staged-then-published",
        "expands at the staging path before the volume is published, and at the target after",
        &["NE-05"],
        run!(staged_then_published),
    )
    .needs(&[Need::Node(StageUnstageVolume)]),
    check(
        "node-expand-published",
        "expands at the target, without staging",
        &["NE-06"],
        run!(published),
    )
    .needs(&[Need::NoNode(StageUnstageVolume)]),
    check(
        "node-expand-after-offline-expand",
        "expands while nothing is published, then on the node when it is published again",
        &["NE-07"],
        run!(after_offline_expand),
    )
    .needs(&[Need::Expansion(Offline)]),
    check(
        "node-expand-without-volume-id",
        "leaves out volume_id",
        &["NE-08"],
        run!(without_volume_id),
    ),
    check("node-expand-without-path", "leaves out volume_path", &["NE-09"], run!(without_path)),
    check(
        "node-expand-with-little",
        "leaves out capacity_range, volume_capability, staging_target_path and secrets",
        &["NE-10", "NE-12", "NE-18", "NE-22"],
        run!(with_little),
    )
    .needs(&[Need::MountAccess]),
    check("node-expand-a-device", "expands a block volume", &["NE-11"], run!(a_device))
        .needs(&[Need::BlockAccess]),
    check(
        "node-expand-for-another-use",
        "names a use that ValidateVolumeCapabilities does not confirm",
        &["NE-13"],
        run!(for_another_use),
    ),
    check(
        "node-expand-unknown-volume",
        "expands a volume that never was, and one that was deleted",
        &["NE-14"],
        run!(unknown_volume),
    ),
    check(
        "node-expand-what-is-read-only",
        "expands a filesystem that is mounted for reading only",
        &["NE-15"],
        run!(what_is_read_only),
    )
    .needs(&[Need::MountAccess]),
    check(
        "node-expand-beyond-all-measure",
        "asks for more than there can be",
        &["NE-16"],
        run!(beyond_all_measure),
    ),
    check(
        "node-expand-at-long-path",
        "expands at a path of 128 bytes",
        &["NE-19"],
        run!(at_long_path),
    ),
    check(
        "node-expand-keeps-data",
        "writes to a mounted volume, expands it, compares, and looks at the filesystem",
        &["NE-20"],
        run!(keeps_data),
    )
    .needs(&[Need::MountAccess, Need::LocalFiles]),
];

const UNSEEN: &[(&str, &str)] = &[];

async fn placed(t: &CheckContext) -> Outcome<Placed> {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    t.placed(&volume, capability).await
}

async fn twice(t: &CheckContext) -> Outcome {
    let Grown { placed, bytes, .. } = grown(t, t.quick_capability()).await?;
    let request = expand(t, &placed, bytes);
    for _ in 0..2 {
        let returned = t.ok(request.clone()).await?.capacity_bytes;
        let expected = format!("no size, or one of at least {bytes} bytes");
        blamed("NE-17", t.expect(returned == 0 || returned >= bytes, expected))?;
    }
    // Long since larger than this.
    blamed("NE-03", t.ok(expand(t, &placed, t.size())).await)?;
    Ok(())
}

async fn what_is_not_there(t: &CheckContext) -> Outcome {
    let placed = placed(t).await?;
    let volume_path = t.target_path()?;
    let request = NodeExpandVolumeRequest { volume_path, ..expand(t, &placed, t.size()) };
    let codes = [Code::NotFound, Code::InvalidArgument, Code::FailedPrecondition];
    t.refused_with(request, &codes).await?;
    Ok(())
}

async fn staged_then_published(t: &CheckContext) -> Outcome {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    if !growing::grows_in_use(t) {
        requested(t, &volume, &capability, 3).await?;
    }
    let staged = t.staged(&volume, capability.clone()).await?;
    let bytes = grown_in_use(t, &staged, 2).await?;
    let volume_path = staged.staging.clone();
    t.ok(NodeExpandVolumeRequest { volume_path, ..expand(t, &staged, bytes) }).await?;
    let publish = t.publish(&staged)?;
    let placed = Placed { target: publish.target_path.clone(), ..staged };
    t.ok(publish).await?;
    let bytes = grown_in_use(t, &placed, 3).await?;
    t.ok(expand(t, &placed, bytes)).await?;
    growing::shows(t, &placed, bytes)
}

/// Nothing to do where the volume had to be grown before.
async fn grown_in_use(t: &CheckContext, placed: &Placed, times: i64) -> Outcome<i64> {
    if growing::grows_in_use(t) {
        return requested(t, &placed.volume, &placed.capability, times).await;
    }
    Ok(t.size().saturating_mul(times))
}

async fn published(t: &CheckContext) -> Outcome {
    let Grown { placed, bytes, .. } = grown(t, t.capability()).await?;
    t.ok(expand(t, &placed, bytes)).await?;
    growing::shows(t, &placed, bytes)
}

async fn after_offline_expand(t: &CheckContext) -> Outcome {
    let capability = t.capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability.clone()).await?;
    t.withdrawn(&placed).await?;
    let bytes = requested(t, &volume, &capability, 2).await?;
    let placed = t.placed(&volume, capability).await?;
    t.ok(expand(t, &placed, bytes)).await?;
    growing::shows(t, &placed, bytes)
}

async fn without_volume_id(t: &CheckContext) -> Outcome {
    let placed = placed(t).await?;
    let volume_id = String::new();
    let request = NodeExpandVolumeRequest { volume_id, ..expand(t, &placed, t.size()) };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn without_path(t: &CheckContext) -> Outcome {
    let placed = placed(t).await?;
    let volume_path = String::new();
    let request = NodeExpandVolumeRequest { volume_path, ..expand(t, &placed, t.size()) };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

/// A plugin that needs secrets, and was given some, may refuse to go on without them.
async fn with_little(t: &CheckContext) -> Outcome {
    let Grown { placed, bytes, .. } = grown(t, t.mount(Mode::SingleNodeWriter)).await?;
    let request = NodeExpandVolumeRequest {
        capacity_range: None,
        volume_capability: None,
        staging_target_path: String::new(),
        ..expand(t, &placed, bytes)
    };
    let bare = NodeExpandVolumeRequest { secrets: Default::default(), ..request.clone() };
    match t.settled(bare).await? {
        Err(status) if !t.secrets().is_empty() => {
            let denied = [Code::Unauthenticated, Code::PermissionDenied].contains(&status.code());
            let expected = "OK, UNAUTHENTICATED or PERMISSION_DENIED";
            blamed("NE-22", t.expect(denied, expected))?;
            t.ok(request).await?;
        }
        Err(_) => return Err(t.failed("OK")),
        Ok(_) => {}
    }
    growing::shows(t, &placed, bytes)
}

async fn a_device(t: &CheckContext) -> Outcome {
    let Grown { placed, bytes, .. } = grown(t, block(Mode::SingleNodeWriter)).await?;
    t.ok(expand(t, &placed, bytes)).await?;
    growing::shows(t, &placed, bytes)
}

async fn for_another_use(t: &CheckContext) -> Outcome {
    let placed = placed(t).await?;
    let beyond = t.beyond(&placed.volume, &placed.capability).await?;
    let volume_capability = Some(beyond);
    let request = NodeExpandVolumeRequest { volume_capability, ..expand(t, &placed, t.size()) };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn unknown_volume(t: &CheckContext) -> Outcome {
    let placed = placed(t).await?;
    for volume_id in [t.unknown_id(), t.deleted_volume().await?] {
        let request = NodeExpandVolumeRequest { volume_id, ..expand(t, &placed, t.size()) };
        t.refused(request, Code::NotFound).await?;
    }
    Ok(())
}

/// Most filesystems do not grow then. One that does is welcome to, if it really did.
async fn what_is_read_only(t: &CheckContext) -> Outcome {
    let writing = t.mount(Mode::SingleNodeWriter);
    let reading = in_mode(&writing, Mode::SingleNodeReaderOnly);
    let request = CreateVolumeRequest {
        volume_capabilities: vec![writing, reading.clone()],
        ..t.new_volume()
    };
    if !growing::grows_in_use(t) {
        return t.not_applicable("the plugin expands no volume that is published");
    }
    let volume = t.volume_if_made(request, "for a reader").await?;
    let placed = t.placed(&volume, reading.clone()).await?;
    let bytes = requested(t, &volume, &reading, 2).await?;
    match t.settled(expand(t, &placed, bytes)).await? {
        Err(status) if status.code() == Code::FailedPrecondition => Ok(()),
        Err(_) => Err(t.failed("FAILED_PRECONDITION, or OK and a larger filesystem")),
        Ok(_) => growing::shows(t, &placed, bytes),
    }
}

async fn beyond_all_measure(t: &CheckContext) -> Outcome {
    let placed = placed(t).await?;
    t.refused(expand(t, &placed, 1 << 62), Code::OutOfRange).await?;
    Ok(())
}

async fn at_long_path(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let staged = t.staged(&volume, capability).await?;
    let placed = t.published_at(staged, t.long_target_path()?).await?;
    t.ok(expand(t, &placed, t.size())).await?;
    Ok(())
}

async fn keeps_data(t: &CheckContext) -> Outcome {
    let Grown { placed, bytes, content } = grown(t, t.mount(Mode::SingleNodeWriter)).await?;
    t.ok(expand(t, &placed, bytes)).await?;
    growing::shows(t, &placed, bytes)?;
    t.holds(&placed, &content)
}
