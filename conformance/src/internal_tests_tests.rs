#![allow(clippy::unwrap_used)]

use std::path::Path;

use super::InternalTests;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn read(text: &str) -> Result<InternalTests, String> {
    let file = std::env::temp_dir().join(format!("inside-{}-{}", std::process::id(), text.len()));
    std::fs::write(&file, text).unwrap();
    let read = InternalTests::read(&file, Path::new(HERE));
    std::fs::remove_file(&file).unwrap();
    read
}

#[test]
fn line_names_an_existing_row_and_test() {
    let inside = read("# why\nOP-01 src/row_tests.rs ids_are_unique\n").unwrap();
    assert_eq!(inside.of("OP-01").unwrap(), "src/row_tests.rs: ids_are_unique");
    assert_eq!(inside.of("OP-02"), None);
}

#[test]
fn missing_row_file_or_test_is_an_error() {
    assert!(read("OP-01 src/row_tests.rs no_such_test").unwrap_err().contains("no test"));
    assert!(read("OP-01 src/none.rs ids_are_unique").unwrap_err().contains("cannot read"));
    assert!(read("XX-01 src/row_tests.rs ids_are_unique").unwrap_err().contains("no row"));
    assert!(read("OP-01 only-two").unwrap_err().contains("form"));
    let twice = "OP-01 src/row_tests.rs ids_are_unique\nOP-01 src/row_tests.rs ids_are_unique";
    assert!(read(twice).unwrap_err().contains("two lines"));
}
