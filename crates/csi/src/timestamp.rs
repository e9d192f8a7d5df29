//! Times as people and programs write them.

use std::time::SystemTime;

/// RFC 3339, as the times of snapshots and events are shown.
pub fn parse_time(text: &str) -> Option<SystemTime> {
    // Without the T, a date alone or a time with a blank would be taken for one too.
    let has_time = text.contains('T');
    let parsed = text.parse::<prost_types::Timestamp>().ok().filter(|_| has_time)?;
    SystemTime::try_from(parsed).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_read_as_rfc_3339() {
        let at = |milliseconds| SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
        assert_eq!(parse_time("1970-01-01T00:00:01.5Z"), Some(at(1500)));
        assert_eq!(parse_time("1970-01-01T01:00:01+01:00"), Some(at(1000)));
        for wrong in ["", "1970", "1970-01-01", "1970-13-01T00:00:00Z", "T", "now"] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
    }
}
