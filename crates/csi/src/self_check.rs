//! Checks a daemon over its CSI socket, as its callers use it, so that the socket, the server behind it and its answer are
//! all checked.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use crate::proto::csi::v1;
use crate::proto::csi::v1::identity_client::IdentityClient;

/// The header of a Probe answer that says why the daemon is not ready: the message has no field for it.
pub const NOT_READY: &str = "orlop-not-ready";

/// The header of a Probe answer of a daemon that is ready: a warning for the operator, such as a pool that is below
/// its floor, or one that is absent while others serve.
pub const WARNING: &str = "orlop-warning";

const LONGEST_REASON: usize = 1000;
/// Between two attempts to connect, while the socket accepts no connection.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
pub enum SelfCheckError {
    #[error("cannot connect to the daemon at {0}: {1}; is it running?")]
    Unreachable(PathBuf, String),

    #[error("the daemon at {0} has not answered within {1:?}")]
    NoAnswer(PathBuf, Duration),

    #[error("the daemon at {0} answers with an error: {1}")]
    Failed(PathBuf, String),

    #[error("not ready: {0}")]
    NotReady(String),
}

/// Does the daemon answer at all? Pools are not checked: a restart would not help them.
pub async fn check_alive(socket: &Path, timeout: Duration) -> Result<(), SelfCheckError> {
    let call = |mut client: IdentityClient<Channel>| async move {
        client.get_plugin_info(v1::GetPluginInfoRequest {}).await.map(drop)
    };
    call_identity(socket, timeout, call).await
}

/// Is the daemon ready, as Probe says? Returns the warning of Probe, if it has one.
pub async fn check_ready(
    socket: &Path,
    timeout: Duration,
) -> Result<Option<String>, SelfCheckError> {
    let call = |mut client: IdentityClient<Channel>| async move {
        client.probe(v1::ProbeRequest {}).await
    };
    let answer = call_identity(socket, timeout, call).await?;
    // CSI: a plugin that says nothing is ready.
    match answer.get_ref().ready.unwrap_or(true) {
        true => Ok(header(&answer, WARNING)),
        false => {
            let reason = header(&answer, NOT_READY);
            Err(SelfCheckError::NotReady(
                reason.unwrap_or_else(|| "the daemon's log says why".to_owned()),
            ))
        }
    }
}

/// A header has one line of ASCII.
pub fn reason_header(why: &str) -> Option<AsciiMetadataValue> {
    let plain = why.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' });
    plain.take(LONGEST_REASON).collect::<String>().parse().ok()
}

fn header(answer: &Response<v1::ProbeResponse>, name: &str) -> Option<String> {
    let metadata: &MetadataMap = answer.metadata();
    metadata.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

async fn call_identity<T, F: Future<Output = Result<T, Status>>>(
    socket: &Path,
    timeout: Duration,
    call: impl FnOnce(IdentityClient<Channel>) -> F,
) -> Result<T, SelfCheckError> {
    let path = || socket.to_owned();
    let answer = async {
        let channel = connect(socket).await?;
        let answer = call(IdentityClient::new(channel)).await;
        answer.map_err(|status| SelfCheckError::Failed(path(), status.message().to_owned()))
    };
    let answered = tokio::time::timeout(timeout, answer).await;
    answered.unwrap_or_else(|_| Err(SelfCheckError::NoAnswer(path(), timeout)))
}

/// One connection to the daemon, for a few calls. It is lost with the daemon and not made again.
pub async fn connect(socket: &Path) -> Result<Channel, SelfCheckError> {
    let stream = loop {
        match UnixStream::connect(socket).await {
            // Too many connections wait to be accepted: the daemon runs, and is busy.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            outcome => break outcome,
        }
    };
    let failed = |why: String| SelfCheckError::Unreachable(socket.to_owned(), why);
    let mut stream = Some(TokioIo::new(stream.map_err(|error| failed(error.to_string()))?));
    // One call, so one connection.
    let connector = tower::service_fn(move |_| {
        let taken = stream.take().ok_or_else(|| std::io::Error::other("the connection was lost"));
        std::future::ready(taken)
    });
    // The name stands in the authority of the call, which the daemon does not look at.
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await;
    channel.map_err(|error| failed(error.to_string()))
}
