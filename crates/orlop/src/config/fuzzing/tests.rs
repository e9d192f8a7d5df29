use super::*;

#[path = "../../../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn configuration_corpus_passes() {
    replay("configuration", configuration);
}
