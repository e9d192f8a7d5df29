//! The plugin at the other end of the socket, whichever it is.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::future::Future;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use orlop_csi::proto::csi::v1::identity_client::IdentityClient;
use orlop_csi::proto::csi::v1::node_client::NodeClient;
use orlop_csi::proto::csi::v1::{controller_service_capability, node_service_capability};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use crate::failure::{Failure, Result};
use crate::terminal::Waiting;

pub(crate) use orlop_csi::proto::csi::v1::controller_service_capability::rpc::Type as Offer;
pub(crate) use orlop_csi::proto::csi::v1::node_service_capability::rpc::Type as NodeOffer;

/// Between two attempts while another call on the same object is running (ABORTED).
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub(crate) struct Plugin {
    pub(crate) driver: String,
    pub(crate) version: String,
    pub(crate) socket: PathBuf,
    pub(crate) secrets: BTreeMap<String, String>,
    channel: Channel,
    timeout: Duration,
    offers: BTreeSet<i32>,
}

impl Plugin {
    pub(crate) async fn connect(
        socket: &Path,
        timeout: Duration,
        secrets: BTreeMap<String, String>,
    ) -> Result<Self> {
        // A first connection to learn why it fails, which the transport does not say.
        if let Err(error) = UnixStream::connect(socket).await {
            return Err(unreachable(socket, &error));
        }
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The name is the authority of each call, which plugins ignore.
        let channel =
            Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector);
        let mut plugin = Self {
            driver: String::new(),
            version: String::new(),
            socket: socket.to_owned(),
            secrets,
            channel,
            timeout,
            offers: BTreeSet::new(),
        };
        plugin.read_identity().await?;
        Ok(plugin)
    }

    async fn read_identity(&mut self) -> Result<()> {
        let mut identity = IdentityClient::new(self.channel.clone());
        let asked = identity.get_plugin_info(v1::GetPluginInfoRequest {});
        let answer = timeout(self.timeout, asked)
            .await
            .map_err(|_| self.timed_out(&"ask the plugin for its name"))?;
        let info = answer.map_err(|status| self.not_a_plugin(&status))?.into_inner();
        self.driver = info.name;
        self.version = info.vendor_version;
        let asked = self.ask(
            &"ask the plugin what its controller offers",
            v1::ControllerGetCapabilitiesRequest {},
            |channel, request| async move {
                ControllerClient::new(channel).controller_get_capabilities(request).await
            },
        );
        // The plugin on a node has no controller, and its node service can be used all the same.
        if let Ok(answer) = asked.await {
            let offered = answer.into_inner().capabilities.into_iter().filter_map(|it| it.r#type);
            self.offers =
                offered.map(|controller_service_capability::Type::Rpc(rpc)| rpc.r#type).collect();
        }
        Ok(())
    }

    pub(crate) fn offers(&self, what: Offer) -> bool {
        self.offers.contains(&i32::from(what))
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn offered(&self) -> Vec<String> {
        let known = |number: &i32| Offer::try_from(*number).map(|it| it.as_str_name().to_owned());
        self.offers.iter().filter_map(|number| known(number).ok()).collect()
    }

    /// Refused by the client, because a plugin may answer anything to a call that it does not offer.
    pub(crate) fn require(&self, what: Offer, doing: &dyn Display) -> Result<()> {
        if self.offers(what) {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "cannot {doing}: the plugin {} does not offer {}",
            self.driver,
            what.as_str_name()
        )))
    }

    pub(crate) async fn node_offers(&self) -> Result<BTreeSet<NodeOffer>> {
        let answer = self
            .ask(
                &"ask the plugin what its node service offers",
                v1::NodeGetCapabilitiesRequest {},
                |channel, request| async move {
                    NodeClient::new(channel).node_get_capabilities(request).await
                },
            )
            .await?;
        let offered = answer.into_inner().capabilities.into_iter().filter_map(|it| it.r#type);
        let number = |node_service_capability::Type::Rpc(rpc)| rpc.r#type;
        Ok(offered.map(number).filter_map(|number| NodeOffer::try_from(number).ok()).collect())
    }

    /// For calls that are made at the same time.
    pub(crate) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(crate) async fn node_info(&self) -> Result<v1::NodeGetInfoResponse> {
        let answer = self
            .ask(
                &"ask the plugin for its node",
                v1::NodeGetInfoRequest {},
                |channel, request| async move { NodeClient::new(channel).node_get_info(request).await },
            )
            .await;
        let hint =
            "is this the socket of a controller? Name that of the node's daemon with --endpoint";
        answer.map(Response::into_inner).map_err(|failure| failure.with_hint(hint))
    }

    /// Makes a call, and repeats it while another call on the same object is running, or the daemon is still starting.
    /// `doing` reads as in "delete volume v-1".
    pub(crate) async fn ask<Q: Clone, A, F>(
        &self,
        doing: &dyn Display,
        request: Q,
        send: impl Fn(Channel, Request<Q>) -> F,
    ) -> Result<Response<A>>
    where
        F: Future<Output = std::result::Result<Response<A>, Status>>,
    {
        let mut waiting = Waiting::start(doing);
        let mut is_starting = false;
        let until = Instant::now() + self.timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut request = Request::new(request.clone());
            request.set_timeout(left);
            // The plugin times out a little earlier, and its answer says more.
            let answer = timeout(left + FIRST_PAUSE, send(self.channel.clone(), request)).await;
            match answer {
                Err(_) => return Err(self.timed_out(doing)),
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status))
                    if (status.code() == Code::Aborted || says_starting(&status))
                        && Instant::now() + pause < until =>
                {
                    if says_starting(&status) && !is_starting {
                        is_starting = true;
                        drop(waiting);
                        waiting = Waiting::start(&format!(
                            "waiting to {doing}: the daemon is starting, and still reads its pools"
                        ));
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Ok(Err(status)) => return Err(self.failure(doing, &status)),
            }
        }
    }

    /// For the calls of the monitor, which only Orlop has.
    pub(crate) fn explain_missing_monitor(&self, failure: Failure) -> Failure {
        match failure.is_unimplemented() {
            true => Failure::refused(format!(
                "cannot ask plugin {}: it is not an Orlop daemon, or an older version of one, and CSI has no call for \
                 this; name the socket of an Orlop daemon with --endpoint",
                self.driver
            )),
            false => failure,
        }
    }

    pub(crate) fn failure(&self, doing: &dyn Display, status: &Status) -> Failure {
        match is_lost(status) {
            true => Failure::failed(format!(
                "cannot {doing}: the connection to {} was lost; {}run the same command again",
                self.socket.display(),
                match only_reads(&doing.to_string()) {
                    true => "",
                    false => "whether it was done is not known: ",
                }
            )),
            // Also the status that the gRPC library makes up after a timeout.
            false if is_out_of_time(status) => self.timed_out(doing),
            false => Failure::of_status(doing, status),
        }
    }

    fn timed_out(&self, doing: &dyn Display) -> Failure {
        Failure::failed(format!(
            "cannot {doing}: the plugin at {} has not answered within {} s, and may still be busy with it; run \
             the same command again, with a longer --timeout",
            self.socket.display(),
            self.timeout.as_secs()
        ))
    }

    fn not_a_plugin(&self, status: &Status) -> Failure {
        Failure::failed(format!(
            "cannot use {}: it does not answer as a CSI plugin ({:?}: {}); name the socket of one with \
             --endpoint",
            self.socket.display(),
            status.code(),
            status.message()
        ))
    }
}

/// By the verb that each call is described with.
fn only_reads(doing: &str) -> bool {
    ["ask ", "list ", "read ", "show "].iter().any(|verb| doing.starts_with(verb))
}

/// A daemon that is still reading its pools has done nothing of the call.
fn says_starting(status: &Status) -> bool {
    status.code() == Code::Unavailable
        && status.message() == orlop_model::Error::Starting.to_string()
}

/// A fault of the transport has the error that caused it; an answer of the plugin has none.
fn is_lost(status: &Status) -> bool {
    let is_of_transport = std::error::Error::source(status).is_some();
    is_of_transport
        && matches!(
            status.code(),
            Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled
        )
        && !is_out_of_time(status)
}

fn is_out_of_time(status: &Status) -> bool {
    status.message().contains("Timeout expired") || status.code() == Code::DeadlineExceeded
}

fn unreachable(socket: &Path, error: &std::io::Error) -> Failure {
    let known = [
        (
            ErrorKind::NotFound,
            "there is no such socket; start the daemon with `orlop serve`, or name its socket with --endpoint \
             or CSI_ENDPOINT",
        ),
        (
            ErrorKind::PermissionDenied,
            "it is closed to this user; run the command as root, or as the user that the plugin runs as",
        ),
        (
            ErrorKind::ConnectionRefused,
            "nothing listens on it; is the daemon running? `orlop serve` starts it, `orlop serve --check` \
             says what keeps it from starting",
        ),
    ];
    let found = known.iter().find(|(kind, _)| *kind == error.kind());
    let remedy = found.map_or(
        "is it the socket of a CSI plugin? --endpoint or CSI_ENDPOINT names it",
        |(_, remedy)| remedy,
    );
    Failure::failed(format!("cannot connect to {}: {error}; {remedy}", socket.display()))
}

#[cfg(test)]
mod tests;
