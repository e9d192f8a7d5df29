//! Refuses requests that a browser sends on behalf of other sites.

use std::net::IpAddr;

use hyper::header::{HOST, HeaderName};
use hyper::{Request, StatusCode};

use super::Refusal;

/// The header in which a browser says which site made the request.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// An attacker's name that resolves to 127.0.0.1 would make the page part of the attacker's site (DNS rebinding). So only
/// names of this machine are accepted, with any port: it may be that of a tunnel.
pub(super) fn check_host<B>(request: &Request<B>) -> Result<(), Refusal> {
    let wrong = || {
        let why = "the request names another host; open the page as localhost or 127.0.0.1, and let a \
                   proxy send `Host: localhost`";
        Refusal::new(StatusCode::MISDIRECTED_REQUEST, why)
    };
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None, None) = (hosts.next(), hosts.next(), request.uri().authority()) else {
        return Err(wrong());
    };
    host.to_str().ok().filter(|host| is_this_machine(host)).map(drop).ok_or_else(wrong)
}

fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, "")) => address,
            Some((address, port)) if port.strip_prefix(':').is_some_and(is_port) => address,
            Some(_) | None => return false,
        },
        None => match host.split_once(':') {
            None => host,
            Some((name, port)) if is_port(port) => name,
            Some(_) => return false,
        },
    };
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

/// Another site may link to the page, but not use the requests behind it.
pub(super) fn check_origin<B>(request: &Request<B>) -> Result<(), Refusal> {
    let Some(site) = request.headers().get(FETCH_SITE) else { return Ok(()) };
    if ["same-origin", "none"].iter().any(|fine| site == fine) {
        return Ok(());
    }
    Err(Refusal::new(StatusCode::FORBIDDEN, "only the page itself may send such requests"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for fine in [
            "localhost",
            "LOCALHOST:80",
            "localhost:7423",
            "127.0.0.1",
            "127.1.2.3:8080",
            "[::1]",
            "[::1]:7423",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(is_this_machine(fine), "{fine}");
        }
        for bad in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example:7423",
            "10.0.0.1",
            "0.0.0.0",
            "[::]",
            "[::1",
            "[::1]x",
            "[::1]:99999",
            "localhost:",
            "localhost:80:80",
            "127.0.0.1 ",
            "user@localhost",
        ] {
            assert!(!is_this_machine(bad), "{bad}");
        }
    }

    #[test]
    fn a_request_names_its_host_once() {
        let request = |hosts: &[&str], uri: &str| {
            let mut request = Request::builder().uri(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            check_host(&request.body(()).unwrap())
        };
        assert!(request(&["localhost"], "/").is_ok());
        assert!(request(&[], "/").is_err());
        assert!(request(&["localhost", "localhost"], "/").is_err());
        assert!(request(&["localhost"], "http://evil.example/").is_err());
    }

    #[test]
    fn requests_of_other_sites_are_refused() {
        let from = |site: &str| {
            check_origin(&Request::builder().header(FETCH_SITE, site).body(()).unwrap())
        };
        assert!(from("same-origin").is_ok() && from("none").is_ok());
        assert!(from("cross-site").is_err() && from("same-site").is_err());
    }
}
