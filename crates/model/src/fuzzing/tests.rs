use super::*;

#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn the_corpus_of_identifiers_holds() {
    replay("identifiers", identifiers);
}
