//! What the controller does.

use std::path::PathBuf;

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v0::controller_service_capability::rpc::Type as ControllerRpc;
use crate::wire::csi::v0::volume_capability::AccessType;
use crate::wire::csi::v0::volume_capability::access_mode::Mode;
use crate::wire::csi::v0::{CreateVolumeRequest, ListVolumesRequest, Volume, VolumeCapability};

pub(in crate::checks) const SECTION: Section = Section {
    title: "csi.v0: controller",
    service: Service::V0,
    needs: &[Need::V0, Need::V0Controller(ControllerRpc::CreateDeleteVolume)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "v0-attributes-stay",
        "creates a volume twice, lists it, and compares the attributes",
        &["V0-09"],
        run!(attributes_stay),
    ),
    check(
        "v0-validate",
        "validates capabilities that are supported, and one that is not among them",
        &["V0-18"],
        run!(validate),
    ),
    check(
        "v0-create-bad-capability",
        "creates a volume for two capabilities, of which one is not supported",
        &["V0-33"],
        run!(create_bad_capability),
    ),
    check(
        "v0-long-name",
        "creates a volume with a name of 128 bytes and one with control characters",
        &["V0-46"],
        run!(long_name),
    ),
    check(
        "v0-delete-forgets",
        "deletes a volume and looks for it",
        &["V0-31"],
        run!(delete_forgets),
    ),
    check(
        "v0-delete-destroys",
        "writes to a volume, deletes it, and reads another one of the same name",
        &["V0-31"],
        run!(delete_destroys),
    )
    .needs(&[Need::BlockAccess, Need::LocalFiles]),
];

/// All volumes, in as many pages as it takes.
pub(super) async fn listed(t: &CheckContext) -> Outcome<Vec<Volume>> {
    let mut volumes = Vec::new();
    let mut request = ListVolumesRequest::default();
    loop {
        let reply = t.ok(request.clone()).await?;
        volumes.extend(reply.entries.into_iter().filter_map(|entry| entry.volume));
        if reply.next_token.is_empty() {
            return Ok(volumes);
        }
        request.starting_token = reply.next_token;
    }
}

async fn attributes_stay(t: &CheckContext) -> Outcome {
    let request = t.v0_new_volume();
    let first = t.v0_create(request.clone()).await?;
    let second = t.v0_create(request).await?;
    t.expect(first.id == second.id, "the same volume again")?;
    t.expect(first.attributes == second.attributes, "the same attributes again")?;
    if t.features().has_v0_controller(ControllerRpc::ListVolumes) {
        let found = listed(t).await?.into_iter().find(|volume| volume.id == first.id);
        let found = t.some(found, "the volume in the list")?;
        t.expect(first.attributes == found.attributes, "the same attributes in the list")?;
    }
    // They are opaque, and come back as they are.
    let capability = t.v0_capability(Mode::SingleNodeWriter);
    let reply = t.ok(t.v0_validate(&first, &[&capability])).await?;
    t.expect(reply.supported, "the volume's own attributes to be accepted")
}

/// In no mode at all, so no volume can have it.
fn without_mode(t: &CheckContext) -> VolumeCapability {
    t.v0_capability(Mode::Unknown)
}

async fn validate(t: &CheckContext) -> Outcome {
    let volume = t.v0_volume().await?;
    let good = t.v0_capability(Mode::SingleNodeWriter);
    let reply = t.ok(t.v0_validate(&volume, &[&good])).await?;
    t.expect(reply.supported, "`supported` for what the volume was made with")?;
    for mode in [Mode::MultiNodeMultiWriter, Mode::MultiNodeSingleWriter] {
        let other = t.v0_capability(mode);
        if !t.ok(t.v0_validate(&volume, &[&other])).await?.supported {
            for list in [[&good, &other], [&other, &good]] {
                let reply = t.ok(t.v0_validate(&volume, &list)).await?;
                t.expect(!reply.supported, "not `supported`, as one of the list is not")?;
            }
        }
    }
    let answer = t.settled(t.v0_validate(&volume, &[&good, &without_mode(t)])).await?;
    let supported = answer.is_ok_and(|reply| reply.supported);
    t.expect(!supported, "a refusal or not `supported`, as one has no access mode")
}

async fn create_bad_capability(t: &CheckContext) -> Outcome {
    let good = t.v0_capability(Mode::SingleNodeWriter);
    let mut other_fs = good.clone();
    if let Some(AccessType::Mount(mount)) = &mut other_fs.access_type {
        mount.fs_type = "no-such-filesystem".to_owned();
    }
    for bad in [other_fs, without_mode(t)] {
        let is_mode = bad.access_mode != good.access_mode;
        let alone = t.v0_new_volume_for(bad.clone());
        // A plugin need not look at filesystems yet.
        if !is_mode && t.settled(alone).await?.is_ok() {
            continue;
        }
        for volume_capabilities in [vec![good.clone(), bad.clone()], vec![bad, good.clone()]] {
            let request = CreateVolumeRequest { volume_capabilities, ..t.v0_new_volume() };
            t.refused_somehow(request, "one of the capabilities is not supported").await?;
        }
    }
    Ok(())
}

async fn long_name(t: &CheckContext) -> Outcome {
    let mut long = t.v0_new_volume();
    long.name = format!("{:x<128}", long.name);
    let name = long.name.clone();
    t.expect(name.len() == 128, "a name of 128 bytes")?;
    t.v0_create(long).await?;
    let odd = CreateVolumeRequest { name: format!("{}\u{1}", t.name("odd")), ..t.v0_new_volume() };
    match t.settled(odd).await? {
        Ok(_) => Ok(()),
        Err(status) => t.expect(
            status.code() == Code::InvalidArgument,
            "OK, or INVALID_ARGUMENT as csi.v1 bans such names",
        ),
    }
}

async fn delete_forgets(t: &CheckContext) -> Outcome {
    let volume = t.v0_volume().await?;
    t.ok(t.v0_delete(&volume)).await?;
    let capability = t.v0_capability(Mode::SingleNodeWriter);
    t.refused(t.v0_validate(&volume, &[&capability]), Code::NotFound).await?;
    if t.features().has_v0_controller(ControllerRpc::ListVolumes) {
        let found = listed(t).await?.into_iter().any(|other| other.id == volume.id);
        t.expect(!found, "no deleted volume in the list")?;
    }
    Ok(())
}

async fn delete_destroys(t: &CheckContext) -> Outcome {
    const MARK: &[u8] = b"written before the volume was deleted";
    let request = t.v0_new_volume_for(t.v0_block(Mode::SingleNodeWriter));
    for is_second in [false, true] {
        let volume = t.v0_create(request.clone()).await?;
        let placed = t.v0_placed(&volume, t.v0_block(Mode::SingleNodeWriter)).await?;
        let device = PathBuf::from(&placed.target);
        if is_second {
            let found = t.read_device(&device, 0, MARK.len())?;
            t.expect(found != MARK, "nothing of the deleted volume's data")?;
        } else {
            t.write_device(&device, 0, MARK)?;
        }
        t.v0_withdrawn(&placed).await?;
        t.ok(t.v0_delete(&volume)).await?;
    }
    Ok(())
}
