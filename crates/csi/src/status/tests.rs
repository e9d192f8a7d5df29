use super::*;

fn text() -> String {
    "x".to_owned()
}

/// One of each; the match in `code` makes a new kind fail to compile until it is decided.
fn one_of_each() -> Vec<(Error, Code)> {
    let not_at_path = Error::NotAtPath { volume: text(), path: text(), reason: text() };
    vec![
        (Error::invalid("name", "is missing"), Code::InvalidArgument),
        (Error::NoSuchVolume(text()), Code::NotFound),
        (Error::NoSuchSnapshot(text()), Code::NotFound),
        (Error::NoSuchGroupSnapshot(text()), Code::NotFound),
        (Error::NoSuchVolumeGroup(text()), Code::NotFound),
        (Error::NoSuchNode(text()), Code::NotFound),
        (Error::NotServed { what: text(), pool: text() }, Code::NotFound),
        (not_at_path, Code::NotFound),
        (Error::conflict("volume", "size"), Code::AlreadyExists),
        (Error::busy("volume v-1", text()), Code::Aborted),
        (Error::StaleToken, Code::Aborted),
        (Error::OutOfRange(text()), Code::OutOfRange),
        (Error::exhausted(text()), Code::ResourceExhausted),
        (Error::precondition("x"), Code::FailedPrecondition),
        (Error::unauthenticated("x"), Code::Unauthenticated),
        (Error::NotOffered("Call", text()), Code::Unimplemented),
        (Error::damaged("volume", "gone"), Code::DataLoss),
        (Error::Starting, Code::Unavailable),
        (Error::Stopping, Code::Unavailable),
        (Error::failed("read", "EIO"), Code::Internal),
    ]
}

#[test]
fn every_error_has_its_code_a_message_and_no_details() {
    for (error, code) in one_of_each() {
        let status = from_error(&error);
        assert_eq!(status.code(), code, "{error}");
        assert_eq!(status.message(), error.to_string());
        assert!(status.details().is_empty());
    }
}

#[test]
fn reclaim_space_failure_has_code_unknown() {
    for (error, code) in one_of_each() {
        let expected = if code == Code::Internal { Code::Unknown } else { code };
        let status = from_reclaim_error(&error);
        assert_eq!(status.code(), expected, "{error}");
        assert_eq!(status.message(), error.to_string());
    }
}

#[test]
fn messages_fit_into_a_header() {
    let long = from_error(&Error::precondition("é".repeat(4000)));
    assert!(long.message().len() <= LONGEST_MESSAGE);
    assert!(long.message().ends_with('…'));
}

#[test]
fn names_are_those_of_the_protocol() {
    let name = |number: i32| code_name(Code::from(number));
    assert_eq!(name(0), "OK");
    assert_eq!(name(3), "INVALID_ARGUMENT");
    assert_eq!(name(8), "RESOURCE_EXHAUSTED");
    assert_eq!(name(9), "FAILED_PRECONDITION");
    assert_eq!(name(16), "UNAUTHENTICATED");
}
