use std::collections::BTreeSet;

use protox::prost_reflect::DescriptorPool;

use super::*;
use crate::features::Mode;
use crate::proto::FILE_DESCRIPTOR_SET;

#[path = "../../../../fuzz/plugin.rs"]
mod plugin;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn every_method_is_tried() {
    let declared = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    let methods = declared.services().flat_map(|service| {
        let name = service.full_name().to_owned();
        let methods: Vec<_> = service.methods().collect();
        methods.into_iter().map(move |method| format!("/{name}/{}", method.name()))
    });
    let tried: BTreeSet<String> = METHODS.iter().map(ToString::to_string).collect();
    assert_eq!(tried, methods.collect());
}

#[test]
fn the_corpus_of_request_holds() {
    let features = plugin::features();
    replay("request", |input| request(&features, input));
}

#[test]
fn the_corpus_of_http2_holds() {
    replay("http2", http2::frames);
}

#[test]
fn the_corpus_of_calls_holds() {
    let features = plugin::features();
    replay("calls", |input| calls(plugin::engine(), &features, input));
}
