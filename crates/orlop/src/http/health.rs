//! Liveness and readiness of this daemon, asked over its CSI socket as `orlop probe` does.

use std::path::PathBuf;
use std::time::Duration;

use orlop_csi::self_check::{self, SelfCheckError};

/// Long for an answer that needs no pool, so that a daemon on a busy machine does not look dead.
const LIVENESS_TIMEOUT: Duration = Duration::from_secs(5);
/// Probe waits up to five seconds for a pool.
const READINESS_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Health {
    socket: PathBuf,
}

impl Health {
    pub(crate) fn of(csi_socket: PathBuf) -> Self {
        Self { socket: csi_socket }
    }

    pub(super) async fn alive(&self) -> Result<(), SelfCheckError> {
        self_check::check_alive(&self.socket, LIVENESS_TIMEOUT).await
    }

    /// With what the daemon warns of, if anything.
    pub(super) async fn ready(&self) -> Result<Option<String>, SelfCheckError> {
        self_check::check_ready(&self.socket, READINESS_TIMEOUT).await
    }
}
