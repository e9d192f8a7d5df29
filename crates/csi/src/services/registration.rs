//! pluginregistration.Registration: what kubelet asks of a socket in its directory for plugins.

use std::path::PathBuf;

use tokio::sync::watch;
use tonic::Request;

use super::{Answer, answer};
use crate::proto::pluginregistration as wire;

/// CSI 1.x; kubelet compares the major version.
const VERSION: &str = "1.0.0";
const TYPE: &str = "CSIPlugin";
/// The longest reason of kubelet that is logged: it nests the reason of each part that failed.
const LONGEST_REASON: usize = 2000;

/// Who is to be registered.
#[derive(Debug, Clone)]
pub struct RegisteredPlugin {
    pub driver_name: String,
    /// The CSI socket, as kubelet sees it.
    pub endpoint: PathBuf,
}

/// What kubelet has called and said last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum KubeletCall {
    #[default]
    None,
    Asked,
    Registered,
    Refused,
}

pub(crate) struct Registration {
    plugin: RegisteredPlugin,
    heard: watch::Sender<KubeletCall>,
}

impl Registration {
    pub(crate) fn new(plugin: RegisteredPlugin, heard: watch::Sender<KubeletCall>) -> Self {
        Self { plugin, heard }
    }

    fn info(&self) -> wire::PluginInfo {
        // Its verdict stands, however often it asks afterwards.
        self.heard.send_if_modified(|last| {
            let is_first = *last == KubeletCall::None;
            if is_first {
                *last = KubeletCall::Asked;
            }
            is_first
        });
        wire::PluginInfo {
            r#type: TYPE.to_owned(),
            name: self.plugin.driver_name.clone(),
            endpoint: self.plugin.endpoint.to_string_lossy().into_owned(),
            supported_versions: vec![VERSION.to_owned()],
        }
    }

    fn note(&self, status: &wire::RegistrationStatus) -> wire::RegistrationStatusResponse {
        let (driver, endpoint) = (&self.plugin.driver_name, self.plugin.endpoint.display());
        if status.plugin_registered {
            tracing::info!(driver, %endpoint, "registered with kubelet");
            self.heard.send_replace(KubeletCall::Registered);
        } else {
            let reason = in_one_line(&status.error);
            tracing::error!(
                driver,
                %endpoint,
                reason,
                "kubelet has not registered this plugin, so no pod on this node gets a volume; if \
                 kubelet does not find the socket, set ORLOP_KUBELET_ENDPOINT to its path on the host"
            );
            self.heard.send_replace(KubeletCall::Refused);
        }
        wire::RegistrationStatusResponse {}
    }
}

fn in_one_line(reason: &str) -> String {
    let clean = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
    clean.take(LONGEST_REASON).collect()
}

#[tonic::async_trait]
impl wire::registration_server::Registration for Registration {
    async fn get_info(&self, _: Request<wire::InfoRequest>) -> Answer<wire::PluginInfo> {
        answer(Ok(self.info()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<wire::RegistrationStatus>,
    ) -> Answer<wire::RegistrationStatusResponse> {
        answer(Ok(self.note(request.get_ref())))
    }
}
