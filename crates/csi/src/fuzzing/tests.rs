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
fn every_method_is_fuzzed() {
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
fn request_corpus_passes() {
    let features = plugin::features();
    replay("request", |input| request(&features, input));
}

#[test]
fn http2_corpus_passes() {
    replay("http2", http2::frames);
}

#[test]
fn calls_corpus_passes() {
    let features = plugin::features();
    replay("calls", |input| calls(plugin::engine(), &features, input));
}
