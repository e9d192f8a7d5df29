#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::Inside;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn read(text: &str) -> Result<Inside, String> {
    let file = std::env::temp_dir().join(format!("inside-{}-{}", std::process::id(), text.len()));
    std::fs::write(&file, text).unwrap();
    let read = Inside::read(&file, Path::new(HERE));
    std::fs::remove_file(&file).unwrap();
    read
}

#[test]
fn a_line_names_a_row_and_a_test_that_is_there() {
    let inside = read("# why\nOP-01 src/row_tests.rs ids_are_unique\n").unwrap();
    assert_eq!(inside.of("OP-01").unwrap(), "src/row_tests.rs: ids_are_unique");
    assert_eq!(inside.of("OP-02"), None);
}

#[test]
fn what_is_not_there_is_refused() {
    assert!(read("OP-01 src/row_tests.rs no_such_test").unwrap_err().contains("no test"));
    assert!(read("OP-01 src/none.rs ids_are_unique").unwrap_err().contains("cannot read"));
    assert!(read("XX-01 src/row_tests.rs ids_are_unique").unwrap_err().contains("no row"));
    assert!(read("OP-01 only-two").unwrap_err().contains("form"));
    let twice = "OP-01 src/row_tests.rs ids_are_unique\nOP-01 src/row_tests.rs ids_are_unique";
    assert!(read(twice).unwrap_err().contains("two lines"));
}
