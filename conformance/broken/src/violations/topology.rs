//! Topology (TP).

use csi_conformance::wire::csi::v1::plugin_capability::service::Type::VolumeAccessibilityConstraints;
use csi_conformance::wire::csi::v1::{
    CreateVolumeRequest, NodeGetInfoRequest, Topology, TopologyRequirement, Volume,
};
use tonic::{Code, Status};

use super::without_plugin;
use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

/// The node has another segment.
fn node_is_also_at(key: &'static str, value: &'static str) -> Interceptor {
    Interceptor::default().reply::<NodeGetInfoRequest>(move |_, reply| {
        if let Some(place) = &mut reply.accessible_topology {
            place.segments.insert(key.to_owned(), value.to_owned());
        }
    })
}

fn asked(change: fn(&mut TopologyRequirement)) -> Interceptor {
    Interceptor::default().ask::<CreateVolumeRequest>(move |request| {
        request.accessibility_requirements.iter_mut().for_each(change);
    })
}

fn created(change: fn(&mut Volume)) -> Interceptor {
    Interceptor::default().reply::<CreateVolumeRequest>(move |_, reply| {
        reply.volume.iter_mut().for_each(change);
    })
}

fn place(value: &str) -> Topology {
    Topology { segments: [("orlop.example/node".to_owned(), value.to_owned())].into() }
}

/// Of a place, by its keys.
fn is_well_formed(place: &Topology) -> bool {
    let plain =
        |text: &str| text.len() < 64 && text.ends_with(|last: char| last.is_ascii_alphanumeric());
    place.segments.iter().all(|(key, value)| plain(key) && plain(value))
}

pub(super) const ALL: &[Violation] = &[
    violation("a-key-without-a-name", "TP-01", "has a key that is only a prefix", || {
        node_is_also_at("orlop.example/", "z1")
    }),
    violation("a-key-that-ends-badly", "TP-02", "has a key that ends with a dash", || {
        node_is_also_at("orlop.example/zone-", "z1")
    }),
    violation("a-key-of-64-characters", "TP-02", "has a key that is too long", || {
        node_is_also_at(
            "orlop.example/a123456789b123456789c123456789d123456789e123456789f123456789g123",
            "z1",
        )
    }),
    violation("a-prefix-in-capitals", "TP-03", "has a prefix with capitals", || {
        node_is_also_at("Orlop.Example/zone", "z1")
    }),
    violation("two-prefixes", "TP-05", "has keys with different prefixes", || {
        node_is_also_at("another.example/zone", "z1")
    }),
    violation("keys-twice", "TP-06", "has two keys that differ in case only", || {
        node_is_also_at("orlop.example/NODE", "node-1")
    }),
    violation("keys-have-case", "TP-06", "does not find a key in another case", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let wanted = request.accessibility_requirements.as_ref()?;
            let keys = wanted.requisite.iter().flat_map(|place| place.segments.keys());
            let full = Status::resource_exhausted("there is no such place");
            keys.into_iter().any(|key| key.ends_with("NODE")).then_some(Err(full))
        })
    }),
    violation("a-value-with-a-blank", "TP-07", "has a value with a blank", || {
        node_is_also_at("orlop.example/zone", "zone 1")
    }),
    violation("malformed-places-are-dropped", "TP-08", "drops places it cannot read", || {
        Interceptor::default().ask::<CreateVolumeRequest>(|request| {
            request.accessibility_requirements = request
                .accessibility_requirements
                .take()
                .filter(|it| it.requisite.iter().all(is_well_formed));
        })
    }),
    violation("no-place-is-any-place", "TP-09", "takes an empty requirement for none", || {
        Interceptor::default().ask::<CreateVolumeRequest>(|request| {
            request.accessibility_requirements = request
                .accessibility_requirements
                .take()
                .filter(|it| *it != TopologyRequirement::default());
        })
    }),
    violation("volumes-are-elsewhere", "TP-10", "makes volumes in another place", || {
        created(|volume| volume.accessible_topology = vec![place("node-9")])
    }),
    violation("the-one-place-is-missed", "TP-11", "misses the only requisite place", || {
        created(|volume| volume.accessible_topology = vec![place("node-9")])
    }),
    violation("only-the-first-place", "TP-12", "tries the first requisite place only", || {
        asked(|wanted| {
            wanted.requisite.truncate(1);
            wanted.preferred.truncate(1);
        })
    }),
    violation("more-places-but-not-that-one", "TP-13", "spans places but not that one", || {
        created(|volume| volume.accessible_topology = vec![place("node-8"), place("node-9")])
    }),
    violation("the-last-preferred-first", "TP-14", "takes the last preferred place", || {
        asked(|wanted| wanted.preferred.reverse())
    })
    .on_spread(),
    violation("preferences-are-ignored", "TP-14", "does not look at preferred places", || {
        asked(|wanted| {
            if !wanted.requisite.is_empty() {
                wanted.preferred.clear();
            }
        })
    })
    .on_spread(),
    violation("a-bad-preference-is-fatal", "TP-16", "fails at a place it does not know", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let wanted = request.accessibility_requirements.as_ref()?;
            let failed = Status::internal("no such place");
            (!wanted.preferred.is_empty()).then_some(Err(failed))
        })
    }),
    violation("a-bad-place-is-invalid", "TP-17", "refuses a place with another code", || {
        Interceptor::default()
            .recode::<CreateVolumeRequest>(Code::ResourceExhausted, Code::InvalidArgument)
    }),
    violation("requisite-is-a-wish", "TP-17", "makes a volume elsewhere instead", || {
        Interceptor::default()
            .ask::<CreateVolumeRequest>(|request| request.accessibility_requirements = None)
    }),
    violation("stray-preferences", "TP-18", "drops preferred places not requisite", || {
        asked(|wanted| {
            let requisite = wanted.requisite.clone();
            wanted.preferred.retain(|place| requisite.contains(place));
        })
    }),
    violation("a-place-is-required", "TP-19", "wants to be told a place", || {
        Interceptor::default().answer::<CreateVolumeRequest>(|request| {
            let refusal = Status::invalid_argument("accessibility_requirements is missing");
            request.accessibility_requirements.is_none().then_some(Err(refusal))
        })
    }),
    violation("places-in-secret", "TP-20", "looks at places though it has none", || {
        without_plugin(VolumeAccessibilityConstraints)
    }),
];
