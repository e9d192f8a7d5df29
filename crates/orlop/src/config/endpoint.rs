//! Where to listen: `CSI_ENDPOINT`, `ORLOP_ADDONS_ENDPOINT` under the same rules, and what else has a
//! socket.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::file::Settings;
use super::{Config, ConfigError, HttpAddress, PageAddress, PoolConfig, Sockets, registration};

/// What fits into a socket address, without the final NUL.
const LONGEST: usize = 107;

const HEALTH: &str = "ORLOP_HEALTH_LISTEN";
const METRICS: &str = "ORLOP_METRICS_LISTEN";
const PAGE: &str = "ORLOP_PAGE_LISTEN";
const TOKEN: &str = "ORLOP_PAGE_TOKEN_FILE";

pub(super) fn validate(settings: &Settings, flag: Option<&str>) -> Result<Sockets, ConfigError> {
    let csi = required(flag.or(settings.endpoint.as_deref()))?;
    let addons = addons(settings.addons_endpoint.as_deref(), &csi)?;
    let registration = registration::validate(settings, &csi)?;
    let health = http(HEALTH, settings.health_listen.as_deref())?;
    let metrics = http(METRICS, settings.metrics_listen.as_deref())?;
    let page = page(settings)?;
    Ok(Sockets { csi, addons, registration, health, metrics, page })
}

/// Also a new pool is made only where nothing else is, and the socket is there first.
pub(super) fn check_apart(sockets: &Sockets, config: &Config) -> Result<(), ConfigError> {
    for (setting, socket) in sockets.paths() {
        let inside = |pool: &PathBuf| socket.starts_with(pool);
        let mut pools = config.pools.iter().filter_map(PoolConfig::directory);
        if let Some(pool) = pools.find(inside) {
            let problem = format!(
                "is in the directory of the pool at {}; choose a directory outside of it",
                pool.display()
            );
            return Err(ConfigError::new(setting, problem));
        }
        if is_within_a_part(socket, config) {
            let problem = format!(
                "is in the run directory {}, among the records that the daemon locks; choose a \
                 directory outside of it",
                config.run_dir.display()
            );
            return Err(ConfigError::new(setting, problem));
        }
    }
    Ok(())
}

/// In the run directory itself it is in no one's way.
fn is_within_a_part(socket: &Path, config: &Config) -> bool {
    let own = config.run_dir.join(&config.driver_name);
    socket.parent().is_some_and(|directory| directory != own && directory.starts_with(&own))
}

fn required(endpoint: Option<&str>) -> Result<PathBuf, ConfigError> {
    match endpoint {
        Some(endpoint) if !endpoint.is_empty() => parse("CSI_ENDPOINT", endpoint),
        Some(_) | None => Err(ConfigError::new(
            "CSI_ENDPOINT",
            "is not set; give the socket to listen on, for example unix:///run/orlop/csi.sock",
        )),
    }
}

/// A separate socket for CSI-Addons; without it, the one socket has everything.
fn addons(endpoint: Option<&str>, other: &Path) -> Result<Option<PathBuf>, ConfigError> {
    const SETTING: &str = "ORLOP_ADDONS_ENDPOINT";
    let Some(endpoint) = endpoint.filter(|endpoint| !endpoint.is_empty()) else {
        return Ok(None);
    };
    let path = parse(SETTING, endpoint)?;
    if path == other {
        return Err(ConfigError::new(
            SETTING,
            "is the same socket as CSI_ENDPOINT, which serves CSI-Addons anyway; leave it out",
        ));
    }
    Ok(Some(path))
}

/// Off, unless it is given.
fn http(setting: &str, given: Option<&str>) -> Result<Option<HttpAddress>, ConfigError> {
    let Some(text) = given.filter(|text| !text.is_empty()) else { return Ok(None) };
    if text.starts_with("unix:") {
        return Ok(Some(HttpAddress::Unix(parse(setting, text)?)));
    }
    let address: SocketAddr = text.parse().map_err(|_| {
        let problem = format!(
            "{text:?} is neither an address such as 0.0.0.0:7421 or [::]:7421 nor a socket such as \
             unix:///run/orlop/http.sock"
        );
        ConfigError::new(setting, problem)
    })?;
    if address.port() == 0 {
        return Err(ConfigError::new(
            setting,
            "has port 0, which no client would find; choose one",
        ));
    }
    Ok(Some(HttpAddress::Tcp(address)))
}

/// It is not encrypted, so it stays on this machine.
fn page(settings: &Settings) -> Result<Option<PageAddress>, ConfigError> {
    let token_file = settings.page_token_file.clone().filter(|path| !path.as_os_str().is_empty());
    let Some(address) = http(PAGE, settings.page_listen.as_deref())? else {
        return match token_file {
            None => Ok(None),
            Some(_) => Err(ConfigError::new(
                TOKEN,
                "is set, and ORLOP_PAGE_LISTEN is not; set that too, or take this out",
            )),
        };
    };
    if let HttpAddress::Tcp(listen) = &address
        && !listen.ip().to_canonical().is_loopback()
    {
        let problem = format!(
            "{listen} can be reached from other machines, and the page is neither encrypted nor closed \
             to readers; use 127.0.0.1:{port}, [::1]:{port} or a UNIX socket, behind ssh or a proxy with \
             TLS where it has to be seen from elsewhere",
            port = listen.port()
        );
        return Err(ConfigError::new(PAGE, problem));
    }
    if token_file.as_ref().is_some_and(|path| !path.is_absolute()) {
        return Err(ConfigError::new(TOKEN, "is not the absolute path of a file"));
    }
    Ok(Some(PageAddress { address, token_file }))
}

/// OP-01 to OP-03, PR-07.
pub(super) fn parse(setting: &str, endpoint: &str) -> Result<PathBuf, ConfigError> {
    let wrong = |problem: &str| ConfigError::new(setting, problem);
    let Some(path) = endpoint.strip_prefix("unix://") else {
        return Err(wrong(
            "is not of the form unix:///absolute/path.sock; only UNIX sockets are served",
        ));
    };
    if !path.starts_with('/') {
        return Err(wrong("names a relative path; three slashes are needed: unix:///path.sock"));
    }
    if !path.ends_with(".sock") {
        return Err(wrong("does not end in .sock"));
    }
    if path.len() > LONGEST {
        return Err(wrong("is longer than the 107 bytes that a socket's path may have"));
    }
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_absolute_unix_sockets_are_accepted() {
        assert_eq!(required(Some("unix:///a/csi.sock")).unwrap(), PathBuf::from("/a/csi.sock"));
        let long = format!("unix:///{}.sock", "x".repeat(120));
        for bad in ["", "tcp://0.0.0.0:1", "unix://a/csi.sock", "unix:///a/csi", "/a.sock", &long] {
            assert!(required(Some(bad)).is_err(), "{bad}");
        }
        assert!(required(None).is_err());
    }

    #[test]
    fn health_is_an_address_or_a_socket() {
        assert_eq!(http(HEALTH, None).unwrap(), None);
        assert_eq!(http(HEALTH, Some("")).unwrap(), None);
        let tcp = HttpAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 7421)));
        assert_eq!(http(HEALTH, Some("127.0.0.1:7421")).unwrap(), Some(tcp));
        let unix = HttpAddress::Unix(PathBuf::from("/a/health.sock"));
        assert_eq!(http(HEALTH, Some("unix:///a/health.sock")).unwrap(), Some(unix));
        for bad in ["7421", ":7421", "localhost:7421", "127.0.0.1:0", "unix:///a", "/a/x.sock"] {
            let error = http(HEALTH, Some(bad)).unwrap_err();
            assert!(error.to_string().contains("ORLOP_HEALTH_LISTEN"), "{bad}");
        }
    }

    #[test]
    fn the_page_stays_on_this_machine() {
        let given = |address: &str, token: Option<&str>| {
            page(&Settings {
                page_listen: Some(address.to_owned()),
                page_token_file: token.map(PathBuf::from),
                ..Settings::default()
            })
        };
        for fine in ["127.0.0.1:7423", "127.8.0.1:1", "[::1]:7423", "unix:///a/page.sock"] {
            assert!(given(fine, Some("/a/token")).unwrap().is_some(), "{fine}");
        }
        for bad in ["0.0.0.0:7423", "[::]:7423", "10.0.0.1:7423", "192.168.1.5:80", "localhost:1"] {
            let error = given(bad, None).unwrap_err();
            assert!(error.to_string().contains("ORLOP_PAGE_LISTEN"), "{bad}");
        }
        assert_eq!(given("", None).unwrap(), None);
        for (address, token) in [("", "/a/token"), ("127.0.0.1:1", "token")] {
            let error = given(address, Some(token)).unwrap_err();
            assert!(error.to_string().contains("ORLOP_PAGE_TOKEN_FILE"), "{address}");
        }
    }

    #[test]
    fn addons_socket_differs_or_is_unset() {
        let csi = Path::new("/a/csi.sock");
        assert_eq!(addons(None, csi).unwrap(), None);
        assert_eq!(addons(Some(""), csi).unwrap(), None);
        let other = addons(Some("unix:///a/addons.sock"), csi).unwrap();
        assert_eq!(other, Some(PathBuf::from("/a/addons.sock")));
        for bad in ["unix:///a/csi.sock", "unix:///a//csi.sock", "/a/addons.sock", "unix:///a/b"] {
            let error = addons(Some(bad), csi).unwrap_err();
            assert!(error.to_string().contains("ORLOP_ADDONS_ENDPOINT"), "{bad}");
        }
    }
}
