//! Sizes, defaults and illegal values of fields.

use std::path::Path;

use prost::Message;
use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::{
    CreateDeleteVolume, ListVolumes,
};
use crate::wire::csi::v1::node_service_capability::rpc::Type as NodeRpc;
use crate::wire::csi::v1::volume_capability::AccessMode;
use crate::wire::csi::v1::{
    CreateVolumeRequest, ListVolumesRequest, ListVolumesResponse, ProbeRequest, VolumeCapability,
};

pub(in crate::checks) const SECTION: Section = Section {
    title: "General rules: fields",
    service: Service::Protocol,
    needs: &[],
    checks: CHECKS,
    unseen: &[],
};

const MAKES: &[Need] = &[Need::Controller(CreateDeleteVolume)];
const PLACES: &[Need] = &[Need::Controller(CreateDeleteVolume), Need::NodeService];

const CHECKS: &[Check] = &[
    check(
        "longest-name-is-taken",
        "creates a volume with a name of 128 bytes",
        &["GEN-05"],
        run!(longest_name_is_taken),
    )
    .needs(MAKES),
    check(
        "long-names-are-not-cut-short",
        "creates volumes whose names differ only after 128 bytes",
        &["GEN-04"],
        run!(long_names_are_not_cut_short),
    )
    .needs(MAKES),
    check(
        "paths-of-128-bytes",
        "stages and publishes at paths of exactly 128 bytes",
        &["GEN-06"],
        run!(paths_of_128_bytes),
    )
    .needs(PLACES),
    check(
        "paths-beyond-128-bytes",
        "stages and publishes at paths of 200 bytes",
        &["GEN-03"],
        run!(paths_beyond_128_bytes),
    )
    .needs(PLACES),
    check(
        "paths-as-long-as-linux-allows",
        "stages and publishes at paths of 4095 bytes",
        &["GEN-07"],
        run!(paths_as_long_as_linux_allows),
    )
    .needs(PLACES),
    check(
        "illegal-values-are-refused",
        "sends a negative size, an unknown mode, a control character and a negative page",
        &["GEN-11"],
        run!(illegal_values_are_refused),
    )
    .needs(MAKES),
    check(
        "zero-is-a-value",
        "attaches and publishes with readonly=false",
        &["GEN-12"],
        run!(zero_is_a_value),
    )
    .needs(PLACES),
    check(
        "optional-fields-have-defaults",
        "leaves out what is optional when creating",
        &["GEN-13"],
        run!(optional_fields_have_defaults),
    )
    .needs(MAKES),
    check(
        "zero-and-absent-are-the-same",
        "lists volumes with max_entries left out and with 0 spelled out",
        &["GEN-13"],
        run!(zero_and_absent_are_the_same),
    )
    .needs(&[Need::Controller(CreateDeleteVolume), Need::Controller(ListVolumes)]),
    check(
        "unknown-fields-are-ignored",
        "sends fields with numbers that no version has",
        &["GEN-39"],
        run!(unknown_fields_are_ignored),
    )
    .needs(MAKES),
];

async fn longest_name_is_taken(t: &CheckContext) -> Outcome {
    let name = format!("{:x<128}", t.name("volume"));
    let request = CreateVolumeRequest { name, ..t.new_volume() };
    let first = t.create(request.clone()).await?;
    let second = t.create(request).await?;
    t.expect(first.volume_id == second.volume_id, "the same volume for the same name")
}

async fn long_names_are_not_cut_short(t: &CheckContext) -> Outcome {
    let stem = format!("{:x<200}", t.name("volume"));
    let mut ids = Vec::new();
    for last in ["one", "two"] {
        let request = CreateVolumeRequest { name: format!("{stem}{last}"), ..t.new_volume() };
        match t.settled(request.clone()).await? {
            Ok(reply) => ids.push(t.some(reply.volume, "a volume in the reply")?.volume_id),
            Err(status) => {
                t.expect(status.code() == Code::InvalidArgument, "OK or INVALID_ARGUMENT")?;
            }
        }
    }
    let distinct = ids.first() != ids.get(1) || ids.is_empty();
    t.expect(distinct, "names that differ only after 128 bytes to be different names")
}

async fn paths_of_128_bytes(t: &CheckContext) -> Outcome {
    placed_at_length(t, 128).await
}

async fn paths_beyond_128_bytes(t: &CheckContext) -> Outcome {
    placed_at_length(t, 200).await
}

async fn paths_as_long_as_linux_allows(t: &CheckContext) -> Outcome {
    placed_at_length(t, 4095).await
}

async fn placed_at_length(t: &CheckContext, length: usize) -> Outcome {
    let staging = t.path_of_length(&t.options().staging_dir, length)?;
    t.made_directory(Path::new(&staging))?;
    let target = t.path_of_length(&t.options().target_dir, length)?;
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let staged = t.staged_at(&volume, capability, staging).await?;
    let placed = t.published_at(staged, target).await?;
    if t.features().has_node(NodeRpc::GetVolumeStats) {
        t.ok(t.stats(&placed, &placed.target)).await?;
    }
    t.withdrawn(&placed).await
}

async fn illegal_values_are_refused(t: &CheckContext) -> Outcome {
    let unknown_mode =
        VolumeCapability { access_mode: Some(AccessMode { mode: 0 }), ..t.capability() };
    let illegal = [
        CreateVolumeRequest { capacity_range: t.range(-1, 0), ..t.new_volume() },
        CreateVolumeRequest { volume_capabilities: vec![unknown_mode], ..t.new_volume() },
        CreateVolumeRequest { name: format!("{}\u{7}", t.name("bell")), ..t.new_volume() },
    ];
    for request in illegal {
        t.refused(request, Code::InvalidArgument).await?;
    }
    if t.lists_volumes() {
        let request = ListVolumesRequest { max_entries: -1, ..Default::default() };
        t.refused(request, Code::InvalidArgument).await?;
    }
    Ok(())
}

async fn zero_is_a_value(t: &CheckContext) -> Outcome {
    let capability = t.quick_capability();
    let volume = t.volume_for(capability.clone()).await?;
    let placed = t.placed(&volume, capability).await?;
    t.withdrawn(&placed).await
}

async fn optional_fields_have_defaults(t: &CheckContext) -> Outcome {
    let request = CreateVolumeRequest { capacity_range: None, ..t.new_volume() };
    let first = t.create(request.clone()).await?;
    let second = t.create(request).await?;
    t.expect(first.volume_id == second.volume_id, "the same volume for the same request")
}

async fn zero_and_absent_are_the_same(t: &CheckContext) -> Outcome {
    let volumes = [t.volume().await?, t.volume().await?];
    // Field 1, a varint: 0. What is left out is not on the wire at all.
    for encoded in [vec![], vec![0x08, 0x00]] {
        let Ok(bytes) = t.ask_bytes::<ListVolumesRequest>(encoded).await? else {
            return Err(t.failed("OK"));
        };
        let reply = ListVolumesResponse::decode(bytes).unwrap_or_default();
        let ids: Vec<_> =
            reply.entries.into_iter().filter_map(|it| it.volume).map(|it| it.volume_id).collect();
        let all = volumes.iter().all(|volume| ids.contains(&volume.volume_id));
        // A plugin may choose the size of its pages if none is asked for.
        t.expect(all || !reply.next_token.is_empty(), "all volumes, or a token for the rest")?;
    }
    Ok(())
}

async fn unknown_fields_are_ignored(t: &CheckContext) -> Outcome {
    // Field 1999, a varint: 1; field 2000, two bytes.
    let unknown = [0xf8, 0x7c, 0x01, 0x82, 0x7d, 0x02, 0x68, 0x69];
    let with_unknown = |mut encoded: Vec<u8>| {
        encoded.extend(unknown);
        encoded
    };
    let probed = t.ask_bytes::<ProbeRequest>(with_unknown(Vec::new())).await?;
    t.expect(probed.is_ok(), "OK, whatever unknown fields there are")?;
    let request = with_unknown(t.new_volume().encode_to_vec());
    let created = t.ask_bytes::<CreateVolumeRequest>(request).await?;
    t.expect(created.is_ok(), "OK, whatever unknown fields there are")
}
