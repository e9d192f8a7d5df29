#![allow(clippy::unwrap_used)]

use super::KnownDeviations;
use crate::check::Failure;
use crate::row::row;
use crate::verdict::Verdict;

fn known(text: &str) -> Result<KnownDeviations, String> {
    let file = std::env::temp_dir().join(format!("known-{}-{}", std::process::id(), text.len()));
    std::fs::write(&file, text).unwrap();
    let read = KnownDeviations::read(&file);
    std::fs::remove_file(&file).unwrap();
    read
}

fn broken() -> Verdict {
    let failure = Failure { row: None, expected: "OK".to_owned(), call: None };
    Verdict::Failed(vec![("some-check", failure)])
}

#[test]
fn run_with_only_known_deviations_agrees() {
    let known = known("# all of it\nCV-05 it never looks\n").unwrap();
    assert_eq!(known.why("CV-05"), Some("it never looks"));
    let verdicts =
        vec![(row("CV-05").unwrap(), broken()), (row("CV-06").unwrap(), Verdict::Proven(vec![]))];
    assert!(known.disagreements(&verdicts).is_empty());
}

#[test]
fn new_and_fixed_deviations_are_reported() {
    let known = known("CV-05 it never looks").unwrap();
    let verdicts =
        vec![(row("CV-05").unwrap(), Verdict::Proven(vec![])), (row("CV-06").unwrap(), broken())];
    let disagreements = known.disagreements(&verdicts);
    assert_eq!(disagreements.len(), 2);
    assert!(disagreements[0].contains("CV-05 is known to be broken, but is proven"));
    assert!(disagreements[1].contains("CV-06 is broken, which is not known"));
}

#[test]
fn malformed_line_is_an_error() {
    assert!(known("CV-05").is_err());
    assert!(known("XX-05 why").is_err());
    assert!(known("CV-05 why\nCV-05 again").is_err());
}
