use super::*;

#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn mountinfo_corpus_passes() {
    replay("mountinfo", mountinfo);
}

#[test]
fn tool_output_corpus_passes() {
    replay("tool_output", tool_output);
}
