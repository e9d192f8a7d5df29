//! `CSI_ENDPOINT`.

use std::path::PathBuf;

use super::ConfigError;

/// What fits into a socket address, without the final NUL.
const LONGEST: usize = 107;

/// OP-01 to OP-03, PR-07.
pub(super) fn parse(endpoint: Option<&str>) -> Result<PathBuf, ConfigError> {
    let wrong = |problem: &str| ConfigError::new("CSI_ENDPOINT", problem);
    let endpoint = endpoint
        .filter(|endpoint| !endpoint.is_empty())
        .ok_or_else(|| {
            wrong(
                "is not set; give the socket to listen on, for example unix:///run/orlop/csi.sock",
            )
        })?;
    let Some(path) = endpoint.strip_prefix("unix://") else {
        return Err(wrong(
            "is not of the form unix:///absolute/path.sock; only UNIX sockets are served",
        ));
    };
    if !path.starts_with('/') {
        return Err(wrong(
            "names a relative path; three slashes are needed: unix:///path.sock",
        ));
    }
    if !path.ends_with(".sock") {
        return Err(wrong("does not end in .sock"));
    }
    if path.len() > LONGEST {
        return Err(wrong(
            "is longer than the 107 bytes that a socket's path may have",
        ));
    }
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_absolute_unix_sockets_are_taken() {
        assert_eq!(
            parse(Some("unix:///a/csi.sock")).unwrap(),
            PathBuf::from("/a/csi.sock")
        );
        let long = format!("unix:///{}.sock", "x".repeat(120));
        for bad in [
            "",
            "tcp://0.0.0.0:1",
            "unix://a/csi.sock",
            "unix:///a/csi",
            "/a.sock",
            &long,
        ] {
            assert!(parse(Some(bad)).is_err(), "{bad}");
        }
        assert!(parse(None).is_err());
    }
}
