//! GetCapacity (GC).

use tonic::Code;

use crate::capability::mount_of;
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::options::Pairs;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, GetCapacity,
};
use crate::wire::csi::v1::plugin_capability::service::Type::VolumeAccessibilityConstraints;
use crate::wire::csi::v1::volume_capability::access_mode::Mode;
use crate::wire::csi::v1::{
    CreateVolumeRequest, GetCapacityRequest, GetCapacityResponse, ProbeRequest, Topology,
};

pub(super) const SECTION: Section = Section {
    title: "GetCapacity",
    service: Service::Controller,
    needs: &[Need::Controller(GetCapacity)],
    checks: CHECKS,
    unseen: &[],
};

const CHECKS: &[Check] = &[
    check(
        "capacity-is-not-negative",
        "asks for the capacity and looks at the signs",
        &["GC-01", "GC-06", "GC-07", "GC-11"],
        run!(is_not_negative),
    ),
    check(
        "capacity-is-in-bytes",
        "creates a volume and looks by how much the capacity drops",
        &["GC-06"],
        run!(is_in_bytes),
    )
    .needs(CREATES)
    .alone(),
    check(
        "capacity-for-use",
        "asks for the capacity with a good capability and with one that cannot be had",
        &["GC-02"],
        run!(for_use),
    )
    .needs(&[Need::MountAccess])
    .alone(),
    check(
        "capacity-by-parameters",
        "fills one kind of storage and looks at the capacity of that and of another kind",
        &["GC-03", "GC-09"],
        run!(by_parameters),
    )
    .needs(&[Need::Controller(CreateDeleteVolume), Need::OtherParameters])
    .alone(),
    check(
        "capacity-at-a-place",
        "asks for the capacity at the node's place and at one that does not exist",
        &["GC-04"],
        run!(at_a_place),
    )
    .needs(&[
        Need::Plugin(VolumeAccessibilityConstraints),
        Need::NodeService,
        Need::Controller(CreateDeleteVolume),
    ]),
    check(
        "capacity-place-not-offered",
        "names a place to a plugin that says it knows none",
        &["GC-05"],
        run!(place_not_offered),
    )
    .needs(&[Need::NoPlugin(VolumeAccessibilityConstraints)]),
    check(
        "capacity-tells-largest-size",
        "looks for the largest size, and if it is not told, for a volume as large as all the room",
        &["GC-08"],
        run!(tells_largest_size),
    )
    .needs(CREATES)
    .alone(),
    check(
        "capacity-largest-volume",
        "creates a volume of the largest size, and does not get a clearly larger one",
        &["GC-10"],
        run!(largest_volume),
    )
    .needs(CREATES)
    .alone(),
    check(
        "capacity-tells-smallest-size",
        "looks for the smallest size",
        &["GC-12"],
        run!(tells_smallest_size),
    ),
    check(
        "capacity-smallest-volume",
        "creates a volume for each use that may be no larger than the smallest size for that use",
        &["GC-13", "GC-14"],
        run!(smallest_volume),
    )
    .needs(CREATES),
    check(
        "capacity-without-storage",
        "asks for the capacity while the storage is away",
        &["GC-15"],
        run!(without_storage),
    )
    .needs(&[Need::Faults])
    .alone(),
];

const CREATES: &[Need] = &[Need::Controller(CreateDeleteVolume)];

/// Other things than volumes take a little room, or give it back.
fn is_about(t: &CheckContext, one: i64, other: i64) -> bool {
    (one - other).abs() < t.size() / 4
}

async fn is_not_negative(t: &CheckContext) -> Outcome {
    for parameters in [&t.options().parameters, &t.options().other_parameters, &Pairs::new()] {
        let reply = t.capacity(parameters).await?;
        t.expect(reply.available_capacity >= 0, "a capacity that is not negative")?;
        let sizes = [reply.maximum_volume_size, reply.minimum_volume_size];
        let fits = sizes.into_iter().flatten().all(|size| size >= 0);
        t.expect(fits, "sizes that are not negative")?;
    }
    Ok(())
}

async fn is_in_bytes(t: &CheckContext) -> Outcome {
    let parameters = &t.options().parameters;
    let before = t.capacity(parameters).await?.available_capacity;
    t.expect(before >= t.size(), "room for at least one volume, in bytes")?;
    let volume = t.volume().await?;
    let after = t.capacity(parameters).await?.available_capacity;
    let drop = before - after;
    let size = volume.capacity_bytes.max(t.size());
    // Storage that fills as data is written may not count what it has promised.
    let counts = drop != 0;
    t.expect(!counts || is_about(t, drop, size), format!("the capacity to drop by {size} bytes"))
}

async fn for_use(t: &CheckContext) -> Outcome {
    let ask = |fs_type: &str| GetCapacityRequest {
        volume_capabilities: vec![mount_of(fs_type, Mode::SingleNodeWriter)],
        parameters: t.options().parameters.clone(),
        ..GetCapacityRequest::default()
    };
    let all = t.capacity(&t.options().parameters).await?.available_capacity;
    let usable = t.ok(ask(&t.options().fs_type)).await?.available_capacity;
    let fits = usable <= all || is_about(t, usable, all);
    t.expect(fits, "no more room for one use than there is for all")?;
    t.expect(usable > 0, "room for volumes of the kind that is made here")?;
    none_or_invalid(t, ask("no-such-filesystem")).await
}

/// Where nothing can be: no room, or a refusal (open point 14).
async fn none_or_invalid(t: &CheckContext, request: GetCapacityRequest) -> Outcome {
    match t.settled(request).await? {
        Ok(reply) => t.expect(
            reply.available_capacity == 0 && reply.maximum_volume_size.is_none_or(|most| most == 0),
            "no room at all, or INVALID_ARGUMENT",
        ),
        Err(status) => {
            t.expect(status.code() == Code::InvalidArgument, "no room at all, or INVALID_ARGUMENT")
        }
    }
}

/// The largest size that can be asked for.
fn largest(reply: &GetCapacityResponse) -> i64 {
    reply.maximum_volume_size.unwrap_or(reply.available_capacity)
}

fn sized(t: &CheckContext, parameters: &Pairs, required: i64) -> CreateVolumeRequest {
    CreateVolumeRequest {
        capacity_range: t.range(required, 0),
        parameters: parameters.clone(),
        ..t.new_volume()
    }
}

async fn by_parameters(t: &CheckContext) -> Outcome {
    let (these, others) = (&t.options().parameters, &t.options().other_parameters);
    let other_before = t.capacity(others).await?;
    let before = t.capacity(these).await?;
    t.create(sized(t, these, largest(&before))).await?;
    let after = t.capacity(these).await?;
    if after.available_capacity == before.available_capacity {
        return t.not_applicable("what is promised to volumes does not count as taken");
    }
    let other_after = t.capacity(others).await?;
    let same = is_about(t, other_before.available_capacity, other_after.available_capacity)
        && is_about(t, largest(&other_before), largest(&other_after));
    t.expect(same, "as much room of the other kind as before")?;
    let last = sized(t, these, 0);
    let left = t
        .ok(GetCapacityRequest {
            parameters: these.clone(),
            volume_capabilities: last.volume_capabilities.clone(),
            ..GetCapacityRequest::default()
        })
        .await?;
    if largest(&left) >= left.minimum_volume_size.unwrap_or(1).max(1) {
        // What is said to fit after all was taken has to fit.
        t.create(CreateVolumeRequest { capacity_range: t.range(largest(&left), 0), ..last })
            .await?;
    }
    Ok(())
}

async fn at_a_place(t: &CheckContext) -> Outcome {
    let (here, nowhere) = (t.here()?, t.nowhere()?);
    let at = |place: Topology| GetCapacityRequest {
        parameters: t.options().parameters.clone(),
        accessible_topology: Some(place),
        ..GetCapacityRequest::default()
    };
    if t.volume().await?.accessible_topology.is_empty() {
        return t.not_applicable("volumes can be reached from everywhere");
    }
    let reachable = t.ok(at(here)).await?.available_capacity;
    t.expect(reachable > 0, "room at the place of the node")?;
    none_or_invalid(t, at(nowhere)).await
}

async fn place_not_offered(t: &CheckContext) -> Outcome {
    let segments = Pairs::from([("example.com/place".to_owned(), "here".to_owned())]);
    let request = GetCapacityRequest {
        parameters: t.options().parameters.clone(),
        accessible_topology: Some(Topology { segments }),
        ..GetCapacityRequest::default()
    };
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}

async fn tells_largest_size(t: &CheckContext) -> Outcome {
    let anything = Pairs::new();
    let reply = t.capacity(&anything).await?;
    if reply.maximum_volume_size.is_some() {
        return Ok(());
    }
    // All the room is a fine largest size, which needs no telling.
    let answer = t.settled(sized(t, &anything, reply.available_capacity)).await?;
    t.expect(answer.is_ok(), "maximum_volume_size, as not all of the room can be one volume")
}

async fn largest_volume(t: &CheckContext) -> Outcome {
    let parameters = &t.options().parameters;
    let Some(most) = t.capacity(parameters).await?.maximum_volume_size else {
        return t.not_applicable("maximum_volume_size is not told");
    };
    // A figure that is to be published may be rounded. With which code is CV-13's matter.
    let more = most.saturating_add(most / 1000).saturating_add(1);
    let more = t.settled(sized(t, parameters, more)).await?;
    t.expect(more.is_err(), "a refusal, as that is more than maximum_volume_size")?;
    t.create(sized(t, parameters, most)).await?;
    Ok(())
}

async fn tells_smallest_size(t: &CheckContext) -> Outcome {
    let reply = t.capacity(&t.options().parameters).await?;
    match reply.minimum_volume_size {
        Some(least) => t.expect(least > 0, "a smallest size that is a size"),
        None => t.not_applicable("minimum_volume_size is alpha, and not told"),
    }
}

async fn smallest_volume(t: &CheckContext) -> Outcome {
    for capability in t.capabilities(Mode::SingleNodeWriter) {
        let question = GetCapacityRequest {
            volume_capabilities: vec![capability.clone()],
            parameters: t.options().parameters.clone(),
            ..GetCapacityRequest::default()
        };
        let Some(least) = t.ok(question).await?.minimum_volume_size else {
            return t.not_applicable("minimum_volume_size is alpha, and not told");
        };
        if least == 0 {
            return t.not_applicable("minimum_volume_size is 0 (GC-12), which is no limit_bytes");
        }
        let capacity_range = t.range(0, least);
        let request = CreateVolumeRequest { capacity_range, ..t.new_volume_for(capability) };
        let size = t.create(request).await?.capacity_bytes;
        t.expect(size <= least, format!("at most {least} bytes"))?;
    }
    Ok(())
}

async fn without_storage(t: &CheckContext) -> Outcome {
    let request = GetCapacityRequest {
        parameters: t.options().parameters.clone(),
        ..GetCapacityRequest::default()
    };
    let asked = async {
        let answer = t.ask(request.clone()).await?;
        Ok((answer, t.ask_until_refused(ProbeRequest::default()).await?))
    };
    let (answer, probed) = t.during_outage(asked).await?;
    let whole = t.ok(request.clone()).await?;
    let Ok(reply) = answer else { return Ok(()) };
    // A scheduler goes by the number: where Probe says that the storage is away, none is the truth.
    let is_away = !probed.is_ok_and(|reply| reply.ready.unwrap_or(true));
    let is_none = is_away && reply.available_capacity == 0;
    t.expect(
        is_none || is_about(t, reply.available_capacity, whole.available_capacity),
        "a refusal while the storage was away, none while Probe says so, or what there is",
    )
}
