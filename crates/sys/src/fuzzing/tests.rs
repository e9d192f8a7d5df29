use super::*;

#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn the_corpus_of_mountinfo_holds() {
    replay("mountinfo", mountinfo);
}

#[test]
fn the_corpus_of_tool_output_holds() {
    replay("tool_output", tool_output);
}
