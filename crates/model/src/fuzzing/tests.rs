use super::*;

#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn identifiers_corpus_passes() {
    replay("identifiers", identifiers);
}
