//! Identity of CSI-Addons (CA).

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{CheckContext, code_of};
use crate::fields::{Field, Value};
use crate::need::Need;
use crate::wire::identity::capability::service::Type as ServiceType;
use crate::wire::identity::capability::volume_group::Type as GroupType;
use crate::wire::identity::capability::{Type, reclaim_space};
use crate::wire::identity::{GetCapabilitiesRequest, GetIdentityRequest, ProbeRequest};

pub(super) const SECTION: Section = Section {
    title: "CSI-Addons identity",
    service: Service::AddonsIdentity,
    needs: &[Need::AddonsIdentity],
    checks: CHECKS,
    unseen: UNSEEN,
};

const CHECKS: &[Check] = &[
    check("addons-are-served", "calls the three methods", &["CA-01"], run!(are_served)),
    check(
        "addons-name",
        "reads the name, its length and its form, and compares it with that of the CSI driver",
        &["CA-02", "CA-03", "CA-05"],
        run!(name),
    ),
    check("addons-version", "reads the version", &["CA-06"], run!(version)),
    check(
        "addons-capability-entries",
        "reads the bytes of all capabilities",
        &["CA-09"],
        run!(capability_entries),
    ),
    check(
        "addons-service-types",
        "compares the services that are offered with those that answer",
        &["CA-10"],
        run!(service_types),
    ),
    check(
        "addons-reclaim-space-types",
        "calls what the offered kinds of reclaim space need",
        &["CA-11"],
        run!(reclaim_space_types),
    ),
    check(
        "addons-network-fence-types",
        "calls what the offered kinds of network fence need",
        &["CA-12"],
        run!(network_fence_types),
    ),
    check(
        "addons-replication-types",
        "calls what the offered kinds of volume replication need",
        &["CA-13"],
        run!(replication_types),
    ),
    check(
        "addons-volume-group-types",
        "calls what the offered kinds of volume group need",
        &["CA-14"],
        run!(volume_group_types),
    ),
    check(
        "addons-key-rotation-types",
        "calls what the offered rotation of encryption keys needs",
        &["CA-15"],
        run!(key_rotation_types),
    ),
    check("addons-probe", "probes a plugin that answers other calls", &["CA-20"], run!(probe)),
    check(
        "addons-when-broken",
        "takes the storage away and makes the three calls",
        &["CA-08", "CA-16", "CA-17", "CA-18", "CA-22"],
        run!(when_broken),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[
    ("CA-04", "that a name is that of a company and its driver is for people to judge"),
    ("CA-07", "a permission: with a manifest and without one is right"),
    ("CA-19", "a plugin that starts is ready before a caller can be sure to meet it starting"),
    ("CA-21", "what a plugin's documents say about Probe is not told by any call"),
];

async fn are_served(t: &CheckContext) -> Outcome {
    for method in ["GetIdentity", "GetCapabilities", "Probe"] {
        t.expect_code_at(&format!("/identity.Identity/{method}"), Code::Ok).await?;
    }
    Ok(())
}

async fn name(t: &CheckContext) -> Outcome {
    let name = t.ok(GetIdentityRequest::default()).await?.name;
    t.expect((1..=63).contains(&name.len()), "a name of 1 to 63 characters")?;
    let is_label = |label: &str| {
        label.starts_with(|first: char| first.is_ascii_alphanumeric())
            && label.ends_with(|last: char| last.is_ascii_alphanumeric())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    t.expect(
        name.split('.').all(is_label),
        "labels of letters, digits and dashes, with dots between",
    )?;
    t.expect(
        name == t.features().name,
        format!("the name of the CSI driver: {}", t.features().name),
    )
}

async fn version(t: &CheckContext) -> Outcome {
    let version = t.ok(GetIdentityRequest::default()).await?.vendor_version;
    t.expect(!version.is_empty(), "a vendor_version")
}

/// Each entry sets one of the six kinds, and each kind says which one.
async fn capability_entries(t: &CheckContext) -> Outcome {
    let encoded = t.ok_bytes(&GetCapabilitiesRequest::default()).await?;
    t.only_fields("GetCapabilitiesResponse", &encoded, &[1])?;
    for entry in t.messages_in(&encoded, 1)? {
        let kinds = t.fields_of(&entry)?;
        let [Field { number: 1..=6, value: Value::Bytes(kind) }] = kinds.as_slice() else {
            return Err(t.failed("one of the fields 1 to 6 in each capability"));
        };
        let types = t.fields_of(kind)?;
        let is_type = |field: &Field| {
            field.number == 1 && matches!(field.value, Value::Varint(number) if number > 0)
        };
        t.expect(types.len() == 1 && types.iter().all(is_type), "a type in each capability")?;
    }
    Ok(())
}

async fn offered(t: &CheckContext) -> Outcome<Vec<Type>> {
    let reply = t.ok(GetCapabilitiesRequest::default()).await?;
    Ok(reply.capabilities.into_iter().filter_map(|entry| entry.r#type).collect())
}

async fn service_types(t: &CheckContext) -> Outcome {
    let mut services = Vec::new();
    for offered in offered(t).await? {
        if let Type::Service(service) = offered {
            services.push(service.r#type());
        }
    }
    t.expect(!services.contains(&ServiceType::Unknown), "no service of type UNKNOWN")?;
    let controller = t.features().controller.is_some();
    t.expect(
        services.contains(&ServiceType::ControllerService) == controller,
        "CONTROLLER_SERVICE exactly if the Controller service is served",
    )?;
    if t.options().node_socket.is_some() {
        // Another instance serves that.
        return Ok(());
    }
    let node = t.features().node.is_some();
    t.expect(
        services.contains(&ServiceType::NodeService) == node,
        "NODE_SERVICE exactly if the Node service is served",
    )
}

/// What is offered has to answer, whatever it says to an empty request.
async fn all_served(t: &CheckContext, what: &str, paths: &[&str]) -> Outcome {
    if paths.is_empty() {
        return t.not_applicable(format!("the CSI-Addons capability {what} is not offered"));
    }
    for path in paths {
        t.expect(t.is_served(path).await, "a method that is offered to be there")?;
    }
    Ok(())
}

async fn reclaim_space_types(t: &CheckContext) -> Outcome {
    use reclaim_space::Type as Kind;
    let mut paths = Vec::new();
    for offered in offered(t).await? {
        let Type::ReclaimSpace(reclaim) = offered else { continue };
        paths.push(match reclaim.r#type() {
            Kind::Offline => "/reclaimspace.ReclaimSpaceController/ControllerReclaimSpace",
            Kind::Online => "/reclaimspace.ReclaimSpaceNode/NodeReclaimSpace",
            Kind::Unknown => return Err(t.failed("OFFLINE or ONLINE")),
        });
    }
    all_served(t, "reclaim_space", &paths).await
}

async fn network_fence_types(t: &CheckContext) -> Outcome {
    use crate::wire::identity::capability::network_fence::Type as Kind;
    let mut paths = Vec::new();
    for offered in offered(t).await? {
        let Type::NetworkFence(fence) = offered else { continue };
        paths.push(match fence.r#type() {
            // The one that changes nothing.
            Kind::NetworkFence => "/fence.FenceController/ListClusterFence",
            Kind::GetClientsToFence => "/fence.FenceController/GetFenceClients",
            Kind::Unknown => return Err(t.failed("NETWORK_FENCE or GET_CLIENTS_TO_FENCE")),
        });
    }
    all_served(t, "network_fence", &paths).await
}

async fn replication_types(t: &CheckContext) -> Outcome {
    use crate::wire::identity::capability::volume_replication::Type as Kind;
    let mut paths = Vec::new();
    for offered in offered(t).await? {
        let Type::VolumeReplication(replication) = offered else { continue };
        paths.push(match replication.r#type() {
            Kind::VolumeReplication => "/replication.Controller/GetVolumeReplicationInfo",
            Kind::GetReplicationDestinationInfo => {
                "/replication.Controller/GetReplicationDestinationInfo"
            }
            Kind::Unknown => return Err(t.failed("a kind of volume replication")),
        });
    }
    all_served(t, "volume_replication", &paths).await
}

/// How groups behave is seen by the checks of volume groups.
async fn volume_group_types(t: &CheckContext) -> Outcome {
    let mut paths = Vec::new();
    for offered in offered(t).await? {
        let Type::VolumeGroup(group) = offered else { continue };
        match group.r#type() {
            GroupType::VolumeGroup => {
                paths.push("/volumegroup.Controller/CreateVolumeGroup");
                paths.push("/volumegroup.Controller/DeleteVolumeGroup");
            }
            GroupType::ModifyVolumeGroup => {
                paths.push("/volumegroup.Controller/ModifyVolumeGroupMembership");
            }
            GroupType::GetVolumeGroup => {
                paths.push("/volumegroup.Controller/ControllerGetVolumeGroup");
            }
            GroupType::ListVolumeGroups => paths.push("/volumegroup.Controller/ListVolumeGroups"),
            GroupType::LimitVolumeToOneVolumeGroup | GroupType::DoNotAllowVgToDeleteVolumes => {
                paths.push("/volumegroup.Controller/CreateVolumeGroup");
            }
            GroupType::Unknown => return Err(t.failed("a kind of volume group")),
        }
    }
    all_served(t, "volume_group", &paths).await
}

async fn key_rotation_types(t: &CheckContext) -> Outcome {
    let rotates = |it: &Type| matches!(it, Type::EncryptionKeyRotation(_));
    let path = "/encryptionkeyrotation.EncryptionKeyRotationController/EncryptionKeyRotate";
    let paths = if offered(t).await?.iter().any(rotates) { vec![path] } else { Vec::new() };
    all_served(t, "encryption_key_rotation", &paths).await
}

async fn probe(t: &CheckContext) -> Outcome {
    let ready = t.ok(ProbeRequest::default()).await?.ready;
    t.expect(ready != Some(false), "`ready` to be true or absent, as the plugin is at work")
}

async fn when_broken(t: &CheckContext) -> Outcome {
    let identity = t.ok(GetIdentityRequest::default()).await?;
    let capabilities = t.ok(GetCapabilitiesRequest::default()).await?;
    let calls = async {
        let identity = t.ask(GetIdentityRequest::default()).await?;
        let capabilities = t.ask(GetCapabilitiesRequest::default()).await?;
        Ok((identity, capabilities, t.ask_until_refused(ProbeRequest::default()).await?))
    };
    let (broken_identity, broken_capabilities, probed) = t.during_outage(calls).await?;
    t.expect(
        code_of(&probed) == Code::FailedPrecondition,
        "FAILED_PRECONDITION, as the storage is away",
    )?;
    let is_same = broken_identity.map_or(true, |reply| reply == identity);
    t.expect(is_same, "an error, or the same identity as before")?;
    let is_same = broken_capabilities.map_or(true, |reply| reply == capabilities);
    t.expect(is_same, "an error, or the same capabilities as before")?;
    probe(t).await
}
