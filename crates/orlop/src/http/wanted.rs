//! The HTTP listeners that the settings configure: one for each address, even if several settings name it.

use crate::config::{HttpAddress, Sockets};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WantedListener {
    /// The one to name if it cannot be made.
    pub(crate) setting: &'static str,
    pub(crate) address: HttpAddress,
    pub(crate) has_metrics: bool,
    pub(crate) has_page: bool,
}

impl WantedListener {
    pub(crate) fn all(sockets: &Sockets) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let wanted = [
            ("ORLOP_HEALTH_LISTEN", sockets.health.as_ref()),
            ("ORLOP_METRICS_LISTEN", sockets.metrics.as_ref()),
            ("ORLOP_PAGE_LISTEN", sockets.page_address()),
        ];
        for (setting, address) in wanted {
            let Some(address) = address.filter(|it| all.iter().all(|other| other.address != **it))
            else {
                continue;
            };
            all.push(Self {
                setting,
                address: address.clone(),
                has_metrics: sockets.metrics.as_ref() == Some(address),
                has_page: sockets.page_address() == Some(address),
            });
        }
        all
    }

    pub(crate) fn paths(&self) -> &'static str {
        super::paths(self.has_metrics, self.has_page)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::PathBuf;

    use super::*;
    use crate::config::PageAddress;

    fn at(port: u16) -> HttpAddress {
        HttpAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    fn listeners(health: u16, metrics: u16, page: u16) -> Vec<(u16, bool, bool)> {
        let given = |port: u16| (port != 0).then(|| at(port));
        let page = given(page).map(|address| PageAddress { address, token_file: None });
        let sockets = Sockets {
            csi: PathBuf::from("/a/csi.sock"),
            addons: None,
            registration: None,
            health: given(health),
            metrics: given(metrics),
            page,
        };
        let port = |address: &HttpAddress| match address {
            HttpAddress::Tcp(address) => address.port(),
            HttpAddress::Unix(_) => 0,
        };
        let all = WantedListener::all(&sockets).into_iter();
        all.map(|it| (port(&it.address), it.has_metrics, it.has_page)).collect()
    }

    #[test]
    fn each_address_has_one_listener() {
        assert_eq!(listeners(0, 0, 0), []);
        assert_eq!(listeners(1, 2, 3), [(1, false, false), (2, true, false), (3, false, true)]);
        assert_eq!(listeners(1, 1, 1), [(1, true, true)]);
        assert_eq!(listeners(0, 2, 2), [(2, true, true)]);
        assert_eq!(listeners(3, 2, 3), [(3, false, true), (2, true, false)]);
    }
}
