use super::*;

#[path = "../../../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn records_corpus_passes() {
    replay("records", records);
}

#[test]
fn thin_metadata_corpus_passes() {
    replay("thin_metadata", thin_metadata);
    // Some of what a fuzzer would try.
    let rng = std::cell::RefCell::new(fastrand::Rng::with_seed(1));
    replay("thin_metadata", |input| {
        let mut rng = rng.borrow_mut();
        for _ in 0..100 {
            let mut changed = input.to_vec();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..changed.len());
                changed[at] = [rng.u8(..), rng.u8(..8), 0xff][rng.usize(..3)];
            }
            thin_metadata(&changed);
        }
    });
}
