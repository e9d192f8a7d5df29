//! Asks a daemon how it is, over its CSI socket and as its callers do: so that the socket itself, the server
//! behind it and what it would answer are all seen.

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
pub enum Unwell {
    #[error("cannot connect to the daemon at {0}: {1}; is it running?")]
    Unreachable(PathBuf, String),

    #[error("the daemon at {0} has not answered within {1:?}")]
    Silent(PathBuf, Duration),

    #[error("the daemon at {0} answers with an error: {1}")]
    Failed(PathBuf, String),

    #[error("not ready: {0}")]
    NotReady(String),
}

/// Does the daemon answer at all? Not whether pools serve: a restart brings no pool back.
pub async fn ask_alive(socket: &Path, timeout: Duration) -> Result<(), Unwell> {
    let asking = |mut client: IdentityClient<Channel>| async move {
        client.get_plugin_info(v1::GetPluginInfoRequest {}).await.map(drop)
    };
    ask(socket, timeout, asking).await
}

/// Is the daemon ready, as Probe says? With what it warns of, if anything.
pub async fn ask_ready(socket: &Path, timeout: Duration) -> Result<Option<String>, Unwell> {
    let asking = |mut client: IdentityClient<Channel>| async move {
        client.probe(v1::ProbeRequest {}).await
    };
    let answer = ask(socket, timeout, asking).await?;
    // CSI: a plugin that says nothing is ready.
    match answer.get_ref().ready.unwrap_or(true) {
        true => Ok(header(&answer, WARNING)),
        false => {
            let reason = header(&answer, NOT_READY);
            Err(Unwell::NotReady(reason.unwrap_or_else(|| "the daemon's log says why".to_owned())))
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

async fn ask<T, F: Future<Output = Result<T, Status>>>(
    socket: &Path,
    timeout: Duration,
    asking: impl FnOnce(IdentityClient<Channel>) -> F,
) -> Result<T, Unwell> {
    let path = || socket.to_owned();
    let asked = async {
        let channel = connect(socket).await?;
        let answer = asking(IdentityClient::new(channel)).await;
        answer.map_err(|status| Unwell::Failed(path(), status.message().to_owned()))
    };
    let answered = tokio::time::timeout(timeout, asked).await;
    answered.unwrap_or_else(|_| Err(Unwell::Silent(path(), timeout)))
}

/// One connection to the daemon, for a few calls. It is lost with the daemon and not made again.
pub async fn connect(socket: &Path) -> Result<Channel, Unwell> {
    let stream = loop {
        match UnixStream::connect(socket).await {
            // Too many wait to be accepted: it runs, and is busy.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            outcome => break outcome,
        }
    };
    let failed = |why: String| Unwell::Unreachable(socket.to_owned(), why);
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
