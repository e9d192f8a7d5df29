use super::*;

#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn node_records_corpus_passes() {
    replay("node_records", node_records);
}
