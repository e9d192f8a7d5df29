//! NodeGetCapabilities (NC).

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use tonic::Code;

use crate::capability::{in_mode, with};
use crate::check::{Check, Outcome, Section, Service, check, optional, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::Rpc;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;
use crate::wire::csi::v1::node_service_capability::Type::Rpc as Offered;
use crate::wire::csi::v1::node_service_capability::rpc::Type;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::volume_capability::{AccessType, MountVolume};
use crate::wire::csi::v1::{
    NodeExpandVolumeRequest, NodeGetCapabilitiesRequest, NodeGetVolumeStatsRequest,
    NodeStageVolumeRequest, NodeUnstageVolumeRequest,
};

pub(super) const SECTION: Section = Section {
    title: "NodeGetCapabilities",
    service: Service::Node,
    needs: &[Need::NodeService],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check(
        "node-lists-what-works",
        "compares the list with the calls that are there",
        &["NC-01", "NC-02"],
        run!(lists_what_works),
    ),
    check(
        "node-stats-work",
        "publishes a volume and asks for its numbers, as the list promises",
        &["NC-03"],
        run!(stats_work),
    )
    .needs(&[Need::Node(Type::GetVolumeStats), Need::Controller(CreateDeleteVolume)]),
    check(
        "node-knows-single-node-modes",
        "publishes with SINGLE_NODE_MULTI_WRITER or SINGLE_NODE_SINGLE_WRITER, and without",
        &["NC-04"],
        run!(knows_single_node_modes),
    )
    .needs(&[Need::Node(Type::SingleNodeMultiWriter), Need::Controller(CreateDeleteVolume)]),
    check(
        "node-applies-a-mount-group",
        "publishes with volume_mount_group and looks at the group of what is mounted",
        &["NC-05"],
        run!(applies_a_mount_group),
    )
    .needs(&[
        Need::Node(Type::VolumeMountGroup),
        Need::Controller(CreateDeleteVolume),
        Need::MountAccess,
        Need::LocalFiles,
    ]),
];

const UNSEEN: &[(&str, &str)] = &[];

/// A group that nothing on the node has by chance.
const GROUP: u32 = 48_621;

async fn lists_what_works(t: &CheckContext) -> Outcome {
    let reply = t.ok(NodeGetCapabilitiesRequest::default()).await?;
    let entries = reply.capabilities.iter().filter_map(|entry| entry.r#type.as_ref());
    let numbers: Vec<_> = entries.map(|Offered(rpc)| rpc.r#type).collect();
    for number in &numbers {
        let known = Type::try_from(*number).is_ok_and(|it| it != Type::Unknown);
        t.expect(known, format!("a capability of the specification, not number {number}"))?;
    }
    let distinct: BTreeSet<_> = numbers.iter().collect();
    t.expect(distinct.len() == numbers.len(), "each capability once")?;
    let features = |kind: Type| numbers.contains(&kind.into());
    let stages = features(Type::StageUnstageVolume);
    works_if(t, NodeStageVolumeRequest::default(), stages).await?;
    works_if(t, NodeUnstageVolumeRequest::default(), stages).await?;
    let tells = features(Type::GetVolumeStats) || features(Type::VolumeCondition);
    works_if(t, NodeGetVolumeStatsRequest::default(), tells).await?;
    works_if(t, NodeExpandVolumeRequest::default(), features(Type::ExpandVolume)).await
}

/// An empty request is refused by a call that is there, too, but not as UNIMPLEMENTED.
async fn works_if<R: Rpc>(t: &CheckContext, empty: R, offered: bool) -> Outcome {
    let answer = t.ask(empty).await?;
    let missing = answer.is_err_and(|status| status.code() == Code::Unimplemented);
    if offered {
        t.expect(!missing, "the call to be there, as its capability is listed")
    } else {
        t.expect(missing, "UNIMPLEMENTED, as the capability for it is not listed")
    }
}

async fn stats_work(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let reply = t.ok(t.stats(&placed, &placed.target)).await?;
    t.expect(!reply.usage.is_empty(), "numbers of the volume")
}

async fn knows_single_node_modes(t: &CheckContext) -> Outcome {
    let modes = [Mode::SingleNodeMultiWriter, Mode::SingleNodeSingleWriter];
    let quick = t.quick_capability();
    let mut known = 0;
    for mode in modes {
        let capability = in_mode(&quick, mode);
        if let Some(volume) = optional(t.volume_in(&capability).await)? {
            t.placed(&volume, capability).await?;
            known += 1;
        }
    }
    t.expect(known > 0, "volumes with mode 6 or mode 7, as SINGLE_NODE_MULTI_WRITER is listed")?;
    let volume = t.volume_for(quick.clone()).await?;
    t.placed(&volume, quick).await?;
    Ok(())
}

async fn applies_a_mount_group(t: &CheckContext) -> Outcome {
    let mount = MountVolume {
        fs_type: t.options().fs_type.clone(),
        volume_mount_group: GROUP.to_string(),
        ..MountVolume::default()
    };
    let capability = with(AccessType::Mount(mount), Mode::SingleNodeWriter);
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    let target = placed.target_path();
    let option = format!("gid={GROUP}");
    let mounted_so = t.mounts_at(&target)?.iter().any(|it| it.super_options.contains(&option));
    let found = t.could(std::fs::metadata(&target), "look at", &target)?;
    let owned_so = found.gid() == GROUP && found.mode() & 0o070 == 0o070;
    t.expect(mounted_so || owned_so, format!("group {GROUP} to own what is mounted, with rwx"))
}
