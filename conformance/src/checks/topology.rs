//! Topology (TP): keys, values, and where volumes are made.

use std::collections::BTreeSet;

use tonic::Code;

use crate::check::{Check, Outcome, Section, Service, blamed, check, run};
use crate::check_context::CheckContext;
use crate::need::Need;
use crate::options::Pairs;
use crate::wire::csi::v1::controller_service_capability::rpc::Type::CreateDeleteVolume;
use crate::wire::csi::v1::plugin_capability::service::Type::VolumeAccessibilityConstraints;
use crate::wire::csi::v1::{Topology, Volume};

pub(super) const SECTION: Section = Section {
    title: "Topology",
    service: Service::Controller,
    needs: &[Need::Controller(CreateDeleteVolume), Need::NodeService],
    checks: CHECKS,
    unseen: UNSEEN,
};

const PLACED: &[Need] = &[Need::Plugin(VolumeAccessibilityConstraints)];

const CHECKS: &[Check] = &[
    check(
        "topology-keys-are-well-formed",
        "reads the keys of the node, of a new volume and of the list",
        &["TP-01", "TP-02", "TP-03"],
        run!(keys_are_well_formed),
    )
    .needs(PLACED),
    check(
        "topology-keys-share-a-prefix",
        "compares the prefixes of all keys",
        &["TP-05"],
        run!(keys_share_a_prefix),
    )
    .needs(PLACED),
    check(
        "topology-keys-have-no-case",
        "looks for keys that differ in case, and asks for the node's place in another case",
        &["TP-06"],
        run!(keys_have_no_case),
    )
    .needs(PLACED),
    check(
        "topology-values-are-well-formed",
        "reads the values of the node, of a new volume and of the list",
        &["TP-07"],
        run!(values_are_well_formed),
    )
    .needs(PLACED),
    check(
        "malformed-topology-is-refused",
        "asks for places whose keys or values break the rules",
        &["TP-08"],
        run!(malformed_is_refused),
    )
    .needs(PLACED),
    check(
        "empty-topology-requirement",
        "sends requirements that name no place",
        &["TP-09"],
        run!(empty_requirement),
    )
    .needs(PLACED),
    check(
        "volumes-are-where-they-must-be",
        "asks for the node's place and reads where the volume is",
        &["TP-10", "TP-11"],
        run!(where_they_must_be),
    )
    .needs(PLACED),
    check(
        "one-of-several-requisite-places",
        "asks for the node's place or one where nothing is",
        &["TP-12"],
        run!(one_of_several),
    )
    .needs(PLACED),
    check(
        "all-requisite-places-and-more",
        "asks for one place of a volume that is in several",
        &["TP-13"],
        run!(all_and_more),
    )
    .needs(PLACED),
    check(
        "preferred-places-in-order",
        "prefers one place and then another, in both orders",
        &["TP-14"],
        run!(preferred_in_order),
    )
    .needs(&[Need::Plugin(VolumeAccessibilityConstraints), Need::OtherPlace]),
    check(
        "preferred-place-that-does-not-work",
        "prefers a place where nothing is",
        &["TP-16"],
        run!(preferred_that_does_not_work),
    )
    .needs(PLACED),
    check(
        "requisite-place-that-does-not-work",
        "asks for a place where nothing is",
        &["TP-17"],
        run!(requisite_that_does_not_work),
    )
    .needs(PLACED),
    check(
        "preferred-place-that-is-not-requisite",
        "prefers a place that is not among the requisite ones",
        &["TP-18"],
        run!(stray_preferred),
    )
    .needs(PLACED),
    check(
        "no-topology-requirement",
        "leaves the place to the plugin",
        &["TP-19"],
        run!(no_requirement),
    )
    .needs(PLACED),
    check(
        "topology-requirement-without-the-capability",
        "asks a plugin for a place that knows no places",
        &["TP-20"],
        run!(without_the_capability),
    )
    .needs(&[Need::NoPlugin(VolumeAccessibilityConstraints)]),
];

const UNSEEN: &[(&str, &str)] = &[
    ("TP-04", "Whether a prefix is the name of a company or plugin is for people to judge."),
    (
        "TP-15",
        "It takes volumes in several places of which some are full; no call makes a place full \
         without harm to others who use it.",
    ),
    ("TP-21", "What topology a plugin needs is said in its documents."),
];

/// All places that the plugin speaks of.
async fn places(t: &CheckContext) -> Outcome<Vec<Topology>> {
    let mut places: Vec<_> =
        t.features().node_info.accessible_topology.clone().into_iter().collect();
    places.extend(t.volume().await?.accessible_topology);
    if t.lists_volumes() {
        let volumes = t.listed(0).await?.into_iter().filter_map(|entry| entry.volume);
        places.extend(volumes.flat_map(|volume| volume.accessible_topology));
    }
    if places.is_empty() {
        return t.not_applicable("neither the node nor a volume says where it is");
    }
    Ok(places)
}

async fn keys(t: &CheckContext) -> Outcome<BTreeSet<String>> {
    Ok(places(t).await?.into_iter().flat_map(|place| place.segments.into_keys()).collect())
}

fn is_label(text: &str, outer: fn(char) -> bool, inside: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.starts_with(outer)
        && text.ends_with(outer)
        && text.chars().all(|c| outer(c) || inside.contains(c))
}

fn is_alphanumeric(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

fn is_lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn split(key: &str) -> (Option<&str>, &str) {
    match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    }
}

async fn keys_are_well_formed(t: &CheckContext) -> Outcome {
    for key in keys(t).await? {
        let (prefix, name) = split(&key);
        let is_whole = !name.is_empty() && !name.contains('/') && prefix != Some("");
        blamed("TP-01", t.expect(is_whole, format!("the form [prefix/]name, not {key}")))?;
        let is_name = is_label(name, is_alphanumeric, "-_.");
        blamed("TP-02", t.expect(is_name, format!("a name that is well formed, not {name}")))?;
        let is_domain = |prefix: &str| {
            prefix.len() <= 63 && prefix.split('.').all(|label| is_label(label, is_lower, "-"))
        };
        let is_prefix = prefix.is_none_or(is_domain);
        blamed("TP-03", t.expect(is_prefix, format!("a domain name in lower case before {key}")))?;
    }
    Ok(())
}

async fn keys_share_a_prefix(t: &CheckContext) -> Outcome {
    let keys = keys(t).await?;
    let prefixes: BTreeSet<_> = keys.iter().filter_map(|key| split(key).0).collect();
    t.expect(prefixes.len() <= 1, format!("one prefix on all keys, not {prefixes:?}"))
}

async fn keys_have_no_case(t: &CheckContext) -> Outcome {
    for place in places(t).await? {
        let lower: BTreeSet<_> =
            place.segments.keys().map(|key| key.to_ascii_lowercase()).collect();
        let distinct = lower.len() == place.segments.len();
        t.expect(distinct, "no two keys that differ in case only")?;
    }
    let here = t.here()?;
    let other_case = |key: &str| match split(key) {
        (Some(prefix), name) => format!("{prefix}/{}", name.to_ascii_uppercase()),
        (None, name) => name.to_ascii_uppercase(),
    };
    let segments: Pairs =
        here.segments.iter().map(|(key, value)| (other_case(key), value.clone())).collect();
    t.create(t.new_volume_at(&[&Topology { segments }], &[])).await?;
    Ok(())
}

async fn values_are_well_formed(t: &CheckContext) -> Outcome {
    for (key, value) in places(t).await?.into_iter().flat_map(|place| place.segments) {
        let fits = is_label(&value, is_alphanumeric, "-_.");
        t.expect(fits, format!("a value of 1 to 63 characters that is well formed for {key}"))?;
    }
    Ok(())
}

async fn malformed_is_refused(t: &CheckContext) -> Outcome {
    let long = "x".repeat(64);
    let wrong = [
        ("Zone_", "a"),
        ("zone", "a_"),
        ("zone", &long),
        ("zone", ""),
        ("Upper.example/zone", "a"),
        ("/zone", "a"),
        (&long, "a"),
    ];
    for (key, value) in wrong {
        let segments = [(key.to_owned(), value.to_owned())].into();
        let request = t.new_volume_at(&[&Topology { segments }], &[]);
        t.refused(request, Code::InvalidArgument).await?;
    }
    Ok(())
}

async fn empty_requirement(t: &CheckContext) -> Outcome {
    t.refused(t.new_volume_at(&[], &[]), Code::InvalidArgument).await?;
    Ok(())
}

/// Does the place have all segments of the wider one? Keys have no case.
fn is_within(place: &Topology, wider: &Topology) -> bool {
    wider.segments.iter().all(|(key, value)| {
        let same_key = |(other, _): &(&String, &String)| other.eq_ignore_ascii_case(key);
        place.segments.iter().find(same_key).is_some_and(|(_, found)| found == value)
    })
}

/// From somewhere in this place; a volume that names no place can be reached from all.
fn reached_from(volume: &Volume, place: &Topology) -> bool {
    let overlaps = |it: &Topology| is_within(place, it) || is_within(it, place);
    volume.accessible_topology.is_empty() || volume.accessible_topology.iter().any(overlaps)
}

async fn where_they_must_be(t: &CheckContext) -> Outcome {
    let here = t.here()?;
    let volume = t.create(t.new_volume_at(&[&here], &[])).await?;
    t.expect(reached_from(&volume, &here), "a volume that can be reached from the place")?;
    let volume = t.create(t.new_volume_at(&[&here], &[&here])).await?;
    t.expect(reached_from(&volume, &here), "a volume that can be reached from the place")
}

async fn one_of_several(t: &CheckContext) -> Outcome {
    let (here, nowhere) = (t.here()?, t.nowhere()?);
    for requisite in [[&here, &nowhere], [&nowhere, &here]] {
        let volume = t.create(t.new_volume_at(&requisite, &[])).await?;
        t.expect(reached_from(&volume, &here), "a volume in the place that works")?;
    }
    Ok(())
}

async fn all_and_more(t: &CheckContext) -> Outcome {
    let here = t.here()?;
    let volume = t.create(t.new_volume_at(&[&here], &[])).await?;
    if volume.accessible_topology.len() < 2 {
        return t.not_applicable("a volume of this plugin is in one place");
    }
    t.expect(reached_from(&volume, &here), "the requisite place among those of the volume")
}

async fn preferred_in_order(t: &CheckContext) -> Outcome {
    let here = t.here()?;
    let there = Topology { segments: t.options().other_place.clone() };
    for (first, second) in [(&here, &there), (&there, &here)] {
        // Several, so that a plugin which balances its places does not get it right by chance.
        for requisite in [&[&here, &there][..], &[], &[&here, &there]] {
            let volume = t.create(t.new_volume_at(requisite, &[first, second])).await?;
            let is_there = reached_from(&volume, first);
            t.expect(is_there, "a volume in the place that is preferred most")?;
        }
    }
    Ok(())
}

async fn preferred_that_does_not_work(t: &CheckContext) -> Outcome {
    let (here, nowhere) = (t.here()?, t.nowhere()?);
    let requests =
        [t.new_volume_at(&[&here, &nowhere], &[&nowhere]), t.new_volume_at(&[], &[&nowhere])];
    for request in requests {
        match t.settled(request).await? {
            Ok(reply) => {
                let volume = t.some(reply.volume, "a volume in the reply")?;
                t.expect(reached_from(&volume, &here), "a volume in a place that works")?;
            }
            Err(status) => {
                let full = status.code() == Code::ResourceExhausted;
                t.expect(full, "OK in another place, or RESOURCE_EXHAUSTED")?;
            }
        }
    }
    Ok(())
}

async fn requisite_that_does_not_work(t: &CheckContext) -> Outcome {
    let nowhere = t.nowhere()?;
    if t.volume().await?.accessible_topology.is_empty() {
        return t.not_applicable("volumes can be reached from everywhere");
    }
    t.refused(t.new_volume_at(&[&nowhere], &[]), Code::ResourceExhausted).await?;
    t.refused(t.new_volume_at(&[&nowhere], &[&nowhere]), Code::ResourceExhausted).await?;
    Ok(())
}

async fn stray_preferred(t: &CheckContext) -> Outcome {
    let (here, nowhere) = (t.here()?, t.nowhere()?);
    t.refused(t.new_volume_at(&[&here], &[&nowhere]), Code::InvalidArgument).await?;
    t.refused(t.new_volume_at(&[&here], &[&here, &nowhere]), Code::InvalidArgument).await?;
    Ok(())
}

async fn no_requirement(t: &CheckContext) -> Outcome {
    t.volume().await?;
    Ok(())
}

async fn without_the_capability(t: &CheckContext) -> Outcome {
    let segments = [("example.com/zone".to_owned(), "z1".to_owned())].into();
    let request = t.new_volume_at(&[&Topology { segments }], &[]);
    t.refused(request, Code::InvalidArgument).await?;
    Ok(())
}
