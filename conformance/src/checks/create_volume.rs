//! CreateVolume (CV): a new volume.

pub(super) mod copies;
pub(super) mod repeated;

use std::collections::BTreeSet;

use tonic::Code;

use crate::capability::{in_mode, in_no_mode};
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::{BANNED_IN_NAMES, CheckContext};
use crate::need::Need;
use crate::options::Pairs;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, GetCapacity, GetSnapshot, ModifyVolume,
};
use crate::wire::csi::v1::plugin_capability::service::Type::{
    SnapshotMetadataService, VolumeAccessibilityConstraints,
};
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{CreateVolumeRequest, TopologyRequirement, VolumeCapability};

pub(super) const SECTION: Section = Section {
    title: "CreateVolume",
    service: Service::Controller,
    needs: NEEDS,
    checks: CHECKS,
    unseen: UNSEEN,
};

const NEEDS: &[Need] = &[Need::Controller(CreateDeleteVolume)];

const CHECKS: &[Check] = &[
    check(
        "create-volume-twice",
        "creates a volume twice and gets the same one",
        &["CV-01", "CV-02"],
        run!(twice),
    ),
    check(
        "create-volume-returns-it",
        "looks for the volume in the reply",
        &["CV-31"],
        run!(returns_it),
    ),
    check("create-volume-without-name", "leaves out the name", &["CV-05"], run!(without_name)),
    check(
        "create-volume-control-characters",
        "puts forbidden characters into the name, one of each end of each range",
        &["CV-06"],
        run!(control_characters),
    ),
    check(
        "create-volume-any-text",
        "uses slashes, dots, line ends and other scripts in names, and gets a volume for each",
        &["CV-07"],
        run!(any_text),
    ),
    check(
        "create-volume-without-capabilities",
        "leaves out the capabilities",
        &["CV-08"],
        run!(without_capabilities),
    ),
    check(
        "create-volume-for-several-uses",
        "lists several capabilities and then uses the volume with each of them",
        &["CV-09"],
        run!(for_several_uses),
    )
    .needs(&[Need::NodeService]),
    check(
        "create-volume-unsupported-use",
        "lists a capability that nobody can have beside a good one, in both orders",
        &["CV-10"],
        run!(unsupported_use),
    ),
    check(
        "create-volume-of-any-size",
        "leaves out the range for each access type and looks at the size that the plugin picked",
        &["CV-11"],
        run!(of_any_size),
    ),
    check(
        "create-volume-within-range",
        "asks for a size between two bounds, and for an exact one",
        &["CV-12"],
        run!(within_range),
    ),
    check(
        "create-volume-impossible-size",
        "asks for 4 EiB, and for at most one byte",
        &["CV-13"],
        run!(impossible_size),
    ),
    check(
        "create-volume-bad-parameters",
        "sends an unknown parameter, and text where a number belongs",
        &["CV-18"],
        run!(bad_parameters),
    ),
    check(
        "create-volume-bad-mutable-parameters",
        "sends an unknown mutable parameter, and text where a number belongs",
        &["CV-20"],
        run!(bad_mutable_parameters),
    )
    .needs(&[Need::Controller(ModifyVolume), Need::MutableParameters]),
    check(
        "create-volume-mutable-parameters-not-offered",
        "sends mutable parameters to a plugin that says it has none",
        &["CV-21"],
        run!(mutable_parameters_not_offered),
    )
    .needs(&[Need::NoController(ModifyVolume)]),
    check(
        "create-volume-in-full-place",
        "fills the place and asks for another volume there",
        &["CV-30"],
        run!(in_full_place),
    )
    .needs(&[Need::Controller(GetCapacity), Need::Plugin(VolumeAccessibilityConstraints)])
    .alone(),
    check(
        "create-volume-without-storage",
        "creates a volume while the storage is away",
        &["CV-32"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const UNSEEN: &[(&str, &str)] = &[
    ("CV-19", "no call tells the value that a parameter of a volume has"),
    ("CV-33", "a permission: what the backend calls a volume is its own affair"),
];

async fn twice(t: &CheckContext) -> Outcome {
    let request = t.new_volume();
    let first = t.create(request.clone()).await?;
    let second = t.create(request).await?;
    t.expect(first.volume_id == second.volume_id, "the same volume_id again")
}

async fn returns_it(t: &CheckContext) -> Outcome {
    let reply = t.ask(t.new_volume()).await?;
    let is_there = reply.is_ok_and(|reply| reply.volume.is_some());
    t.expect(is_there, "OK, with the volume in the reply")
}

async fn without_name(t: &CheckContext) -> Outcome {
    let request = CreateVolumeRequest { name: String::new(), ..t.new_volume() };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn control_characters(t: &CheckContext) -> Outcome {
    for character in BANNED_IN_NAMES {
        let name = format!("{}{character}x", t.name("volume"));
        let request = CreateVolumeRequest { name, ..t.new_volume() };
        t.refused(request, Code::InvalidArgument).await?;
    }
    Ok(())
}

async fn any_text(t: &CheckContext) -> Outcome {
    let name = t.name("v");
    let names = [
        name.clone(),
        format!("../{name}"),
        format!("./{name}"),
        format!("{name}/x"),
        format!("{name}-x"),
        format!("{name}/../x"),
        format!("{name}\t\r\n"),
        format!("-{name} $(x) ' \" \\ %2f"),
        format!("{name}-\u{e9}\u{2603}\u{1f4be}"),
        name.to_uppercase(),
    ];
    let mut ids = BTreeSet::new();
    for name in &names {
        let request = CreateVolumeRequest { name: name.clone(), ..t.new_volume() };
        let volume = t.create(request.clone()).await?;
        t.expect(ids.insert(volume.volume_id.clone()), "a volume_id of its own for each name")?;
        let again = t.create(request).await?;
        t.expect(volume.volume_id == again.volume_id, "the same volume for the same name")?;
    }
    Ok(())
}

async fn without_capabilities(t: &CheckContext) -> Outcome {
    let request = CreateVolumeRequest { volume_capabilities: Vec::new(), ..t.new_volume() };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn for_several_uses(t: &CheckContext) -> Outcome {
    let writer = t.capability();
    let reader = in_mode(&writer, Mode::SingleNodeReaderOnly);
    let mut used = false;
    for uses in [t.capabilities(Mode::SingleNodeWriter), vec![writer, reader]] {
        if uses.len() > 1 {
            used |= used_in_each_way(t, uses).await?;
        }
    }
    if used {
        return Ok(());
    }
    t.not_applicable("the plugin makes no volume for two uses at once")
}

/// False: no volume is made for all of them, which is a plugin's right.
async fn used_in_each_way(t: &CheckContext, uses: Vec<VolumeCapability>) -> Outcome<bool> {
    let request = CreateVolumeRequest { volume_capabilities: uses.clone(), ..t.new_volume() };
    let Ok(reply) = t.settled(request).await? else {
        return Ok(false);
    };
    let volume = t.some(reply.volume, "a volume in the reply")?;
    for capability in uses {
        let placed = t.placed(&volume, capability).await?;
        t.withdrawn(&placed).await?;
    }
    Ok(true)
}

async fn unsupported_use(t: &CheckContext) -> Outcome {
    let good = t.capability();
    let bad = in_no_mode(&good);
    for uses in [vec![good.clone(), bad.clone()], vec![bad, good]] {
        let request = CreateVolumeRequest { volume_capabilities: uses, ..t.new_volume() };
        t.refused_with(request, &[Code::InvalidArgument, Code::FailedPrecondition]).await?;
    }
    Ok(())
}

async fn of_any_size(t: &CheckContext) -> Outcome {
    for capability in t.capabilities(Mode::SingleNodeWriter) {
        let request = CreateVolumeRequest { capacity_range: None, ..t.new_volume_for(capability) };
        let volume = t.create(request).await?;
        t.expect(volume.capacity_bytes >= 0, "a size, or 0 if it is not known")?;
    }
    Ok(())
}

async fn within_range(t: &CheckContext) -> Outcome {
    for limit in [t.size(), t.size() + t.size() / 2] {
        let capacity_range = t.range(t.size(), limit);
        let volume = t.create(CreateVolumeRequest { capacity_range, ..t.new_volume() }).await?;
        let fits = (t.size()..=limit).contains(&volume.capacity_bytes);
        t.expect(fits || volume.capacity_bytes == 0, format!("{} to {limit} bytes", t.size()))?;
    }
    Ok(())
}

async fn impossible_size(t: &CheckContext) -> Outcome {
    let huge = CreateVolumeRequest { capacity_range: t.range(1 << 62, 0), ..t.new_volume() };
    t.refused(huge, Code::OutOfRange).await?;
    let tiny = CreateVolumeRequest { capacity_range: t.range(0, 1), ..t.new_volume() };
    match t.settled(tiny).await? {
        Err(status) if status.code() == Code::OutOfRange => Ok(()),
        Ok(reply) => {
            let size = t.some(reply.volume, "OUT_OF_RANGE")?.capacity_bytes;
            t.expect(size == 1, "OUT_OF_RANGE, or a volume of one byte")
        }
        Err(_) => Err(t.failed("OUT_OF_RANGE")),
    }
}

/// Each of them cannot be right: an unknown key, and text where a number was.
pub(super) fn spoilt(good: &Pairs) -> Vec<Pairs> {
    let mut unknown = good.clone();
    unknown.insert("no-such-parameter-4d1f5a".to_owned(), "x".to_owned());
    let numbers = good.iter().filter(|(_, value)| value.parse::<i64>().is_ok());
    let texts = numbers.map(|(key, _)| {
        let mut bad = good.clone();
        bad.insert(key.clone(), "not a number".to_owned());
        bad
    });
    std::iter::once(unknown).chain(texts).collect()
}

async fn bad_parameters(t: &CheckContext) -> Outcome {
    for parameters in spoilt(&t.options().parameters) {
        let request = CreateVolumeRequest { parameters, ..t.new_volume() };
        t.refused(request, Code::InvalidArgument).await?;
    }
    Ok(())
}

async fn bad_mutable_parameters(t: &CheckContext) -> Outcome {
    let good = &t.options().mutable_parameters;
    let mutable_parameters = good.clone();
    t.create(CreateVolumeRequest { mutable_parameters, ..t.new_volume() }).await?;
    for mutable_parameters in spoilt(good) {
        let request = CreateVolumeRequest { mutable_parameters, ..t.new_volume() };
        t.refused(request, Code::InvalidArgument).await?;
    }
    Ok(())
}

/// They came with CSI 1.9, and an older plugin cannot see a field that it does not know. What came
/// later still is the one sign that it does.
fn is_younger_than_mutable_parameters(t: &CheckContext) -> bool {
    t.features().has_plugin(SnapshotMetadataService) || t.features().has_controller(GetSnapshot)
}

async fn mutable_parameters_not_offered(t: &CheckContext) -> Outcome {
    let mut mutable_parameters = t.options().mutable_parameters.clone();
    if mutable_parameters.is_empty() {
        mutable_parameters.insert("key".to_owned(), "value".to_owned());
    }
    let request = CreateVolumeRequest { mutable_parameters, ..t.new_volume() };
    match t.settled(request).await? {
        Err(status) if status.code() == Code::InvalidArgument => Ok(()),
        Ok(_) if !is_younger_than_mutable_parameters(t) => {
            t.not_applicable("nothing shows that the plugin knows mutable_parameters (CSI 1.9)")
        }
        Ok(_) | Err(_) => Err(t.failed("INVALID_ARGUMENT")),
    }
}

async fn in_full_place(t: &CheckContext) -> Outcome {
    let Some(place) = t.features().node_info.accessible_topology.clone() else {
        return t.not_applicable("the node does not say where it is");
    };
    let room = t.capacity(&t.options().parameters).await?;
    let all = room.maximum_volume_size.unwrap_or(room.available_capacity);
    let of_all_room = || CreateVolumeRequest {
        capacity_range: t.range(all, 0),
        accessibility_requirements: Some(TopologyRequirement {
            requisite: vec![place.clone()],
            preferred: Vec::new(),
        }),
        ..t.new_volume()
    };
    t.create(of_all_room()).await?;
    let left = t.capacity(&t.options().parameters).await?;
    if left.available_capacity >= all {
        return t.not_applicable("a volume of all the room that there is does not fill the place");
    }
    t.refused(of_all_room(), Code::ResourceExhausted).await?;
    Ok(())
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let request = t.new_volume();
    let answer = t.during_outage(t.ask(request.clone())).await?;
    let volume = t.create(request).await?;
    let Ok(reply) = answer else { return Ok(()) };
    let same = reply.volume.is_some_and(|it| it.volume_id == volume.volume_id);
    t.expect(same, "a refusal while the storage was away, or the volume that is there now")
}
