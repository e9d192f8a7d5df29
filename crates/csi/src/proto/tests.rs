#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use protox::prost_reflect::{DescriptorPool, DynamicMessage, EnumDescriptor};

use super::csi::{v0, v1};
use super::{FILE_DESCRIPTOR_SET, encryptionkeyrotation, identity, reclaimspace, volumegroup};

mod facts;
mod no_debug;

fn pool() -> DescriptorPool {
    DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap()
}

fn has_option(pool: &DescriptorPool, options: &DynamicMessage, name: &str) -> bool {
    let extension = pool.get_extension_by_name(name).unwrap();
    options.get_extension(&extension).as_bool().unwrap()
}

fn enums(pool: &DescriptorPool) -> impl Iterator<Item = EnumDescriptor> {
    pool.all_enums().filter(|each| !each.package_name().starts_with("google."))
}

fn assert_same(found: &BTreeSet<String>, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    let missing: Vec<_> = expected.difference(found).collect();
    let surplus: Vec<_> = found.difference(&expected).collect();
    assert!(missing.is_empty() && surplus.is_empty(), "missing {missing:?}, surplus {surplus:?}");
}

#[test]
fn fields_have_their_numbers() {
    let pool = pool();
    for (message, fields) in facts::FIELDS {
        let found: Vec<String> = pool
            .get_message_by_name(message)
            .unwrap_or_else(|| panic!("{message} is not declared"))
            .fields()
            .map(|field| format!("{} {}", field.number(), field.name()))
            .collect();
        assert_eq!(found, *fields, "{message}");
    }
}

#[test]
fn enums_have_their_values() {
    let pool = pool();
    for (name, values) in facts::ENUMS {
        let found: Vec<String> = pool
            .get_enum_by_name(name)
            .unwrap_or_else(|| panic!("{name} is not declared"))
            .values()
            .map(|value| format!("{} {}", value.number(), value.name()))
            .collect();
        assert_eq!(found, *values, "{name}");
    }
}

#[test]
fn every_enum_begins_with_unknown() {
    for each in enums(&pool()) {
        // Enums of the package share its names, so later ones have longer ones.
        assert!(each.default_value().name().starts_with("UNKNOWN"), "{}", each.full_name());
        assert_eq!(each.default_value().number(), 0, "{}", each.full_name());
    }
}

#[test]
fn services_have_their_methods() {
    let found = pool()
        .services()
        .map(|service| format!("{} {}", service.full_name(), service.methods().len()))
        .collect();
    assert_same(&found, &facts::SERVICES);
}

#[test]
fn every_method_takes_its_request_and_returns_its_response() {
    for method in pool().services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
        let package = method.parent_service().package_name().to_owned();
        let name = method.name();
        assert_eq!(method.input().full_name(), format!("{package}.{name}Request"));
        assert_eq!(method.output().full_name(), format!("{package}.{name}Response"));
    }
}

#[test]
fn only_snapshot_metadata_streams() {
    let pool = pool();
    let methods = || pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    assert!(!methods().any(|method| method.is_client_streaming()));

    let found = methods()
        .filter(|method| method.is_server_streaming())
        .map(|method| method.full_name().to_owned())
        .collect();
    assert_same(
        &found,
        &[
            "csi.v1.SnapshotMetadata.GetMetadataAllocated",
            "csi.v1.SnapshotMetadata.GetMetadataDelta",
        ],
    );
}

#[test]
fn options_have_their_numbers() {
    let found = pool()
        .all_extensions()
        .map(|each| {
            format!("{} {} {}", each.containing_message().name(), each.number(), each.full_name())
        })
        .collect();
    assert_same(&found, &facts::OPTIONS);
}

#[test]
fn secret_fields_are_marked() {
    let pool = pool();
    let found = pool
        .all_messages()
        .flat_map(|message| message.fields().collect::<Vec<_>>())
        .filter(|field| has_option(&pool, &field.options(), "csi.v1.csi_secret"))
        .map(|field| format!("{} {}", field.number(), field.full_name()))
        .collect();
    assert_same(&found, &facts::SECRET_FIELDS);
}

#[test]
fn alpha_elements_are_marked() {
    let pool = pool();
    let mut found = BTreeSet::new();
    let mut note = |options: DynamicMessage, option: &str, name: &str| {
        if has_option(&pool, &options, option) {
            found.insert(name.to_owned());
        }
    };
    for service in pool.services() {
        note(service.options(), "csi.v1.alpha_service", service.full_name());
        for method in service.methods() {
            note(method.options(), "csi.v1.alpha_method", method.full_name());
        }
    }
    for message in pool.all_messages() {
        note(message.options(), "csi.v1.alpha_message", message.full_name());
        for field in message.fields() {
            note(field.options(), "csi.v1.alpha_field", field.full_name());
        }
    }
    for each in enums(&pool) {
        note(each.options(), "csi.v1.alpha_enum", each.full_name());
        for value in each.values() {
            // Values live in the scope around their enum, which does not say which enum it is.
            let name = format!("{}.{}", each.full_name(), value.name());
            note(value.options(), "csi.v1.alpha_enum_value", &name);
        }
    }
    assert_same(&found, &facts::ALPHA);
}

#[test]
fn capabilities_are_field_1_in_v1_and_2_in_v0() {
    let since = v1::GetPluginCapabilitiesResponse { capabilities: vec![Default::default()] };
    let before = v0::GetPluginCapabilitiesResponse { capabilities: vec![Default::default()] };
    assert_eq!(since.encode_to_vec(), [1 << 3 | 2, 0]);
    assert_eq!(before.encode_to_vec(), [2 << 3 | 2, 0]);
}

#[test]
fn an_unset_wrapper_is_not_its_default() {
    let probe = |ready| v1::ProbeResponse { ready }.encode_to_vec();
    assert_eq!(probe(None), [0_u8; 0]);
    assert_eq!(probe(Some(false)), [1 << 3 | 2, 0]);
    assert_eq!(probe(Some(true)), [1 << 3 | 2, 2, 1 << 3, 1]);
}

#[test]
fn maps_are_encoded_in_the_order_of_their_keys() {
    let segments = BTreeMap::from(["b", "c", "a"].map(|key| (key.to_owned(), String::new())));
    let encoded = v1::Topology { segments }.encode_to_vec();
    assert_eq!(encoded, [10, 3, 10, 1, b'a', 10, 3, 10, 1, b'b', 10, 3, 10, 1, b'c']);
}

#[test]
fn service_names_match_those_of_clients() {
    assert_eq!(v1::controller_server::SERVICE_NAME, "csi.v1.Controller");
    assert_eq!(v1::snapshot_metadata_server::SERVICE_NAME, "csi.v1.SnapshotMetadata");
    assert_eq!(v0::node_server::SERVICE_NAME, "csi.v0.Node");
    assert_eq!(identity::identity_server::SERVICE_NAME, "identity.Identity");
    assert_eq!(volumegroup::controller_server::SERVICE_NAME, "volumegroup.Controller");
    assert_eq!(
        reclaimspace::reclaim_space_node_server::SERVICE_NAME,
        "reclaimspace.ReclaimSpaceNode"
    );
}
