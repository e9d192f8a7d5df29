//! Runs what fuzzing has kept through the same functions, with the stable compiler. Included by the
//! tests of each crate that has such functions.

use std::path::Path;

/// Every file of `fuzz/corpus/TARGET`: what reached new code, and all that once failed.
pub(crate) fn replay(target: &str, exercise: impl Fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut replayed = 0;
    for entry in std::fs::read_dir(&corpus).expect("the target has a corpus") {
        let path = entry.expect("the corpus can be listed").path();
        let input = std::fs::read(&path).expect("the corpus can be read");
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| exercise(&input)));
        assert!(outcome.is_ok(), "{} fails; see above", path.display());
        replayed += 1;
    }
    assert!(replayed > 0, "{} is empty", corpus.display());
}
