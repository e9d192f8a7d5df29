use super::*;

#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn records_corpus_passes() {
    replay("records", records);
}
