//! How kubelet finds this daemon: a socket in its directory for plugins.

use std::path::{Path, PathBuf};

use super::file::Settings;
use super::{ConfigError, endpoint, names, validate};

/// kubelet's, unless it has another root directory.
pub(crate) const DEFAULT_REGISTRY: &str = "/var/lib/kubelet/plugins_registry";

const REGISTER: &str = "ORLOP_REGISTER";
const KUBELET_ENDPOINT: &str = "ORLOP_KUBELET_ENDPOINT";
/// What fits into a socket address, without the final NUL.
const LONGEST: usize = 107;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegistrationSocket {
    pub(crate) path: PathBuf,
    /// The CSI socket, as kubelet sees it.
    pub(crate) endpoint: PathBuf,
}

/// `None`: another program registers this plugin, or none does.
pub(super) fn validate(
    settings: &Settings,
    csi: &Path,
) -> Result<Option<RegistrationSocket>, ConfigError> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let endpoint = given(&settings.kubelet_endpoint);
    let Some(directory) = given(&settings.register) else {
        return match endpoint {
            None => Ok(None),
            Some(_) => Err(ConfigError::new(
                KUBELET_ENDPOINT,
                "is for registering with kubelet; set ORLOP_REGISTER as well, or take it out",
            )),
        };
    };
    let (mode, _) = validate::mode(settings.mode.as_deref())?;
    if !mode.serves_node() {
        return Err(ConfigError::new(
            REGISTER,
            "is set, and this ORLOP_MODE has no calls for kubelet; register only daemons of mode all \
             or node",
        ));
    }
    let directory = PathBuf::from(directory);
    if !directory.is_absolute() {
        let problem =
            format!("is not the absolute path of a directory, such as {DEFAULT_REGISTRY}");
        return Err(ConfigError::new(REGISTER, problem));
    }
    let driver_name = names::driver_name(settings.driver_name.clone())?;
    let path = directory.join(format!("{driver_name}-reg.sock"));
    if path.as_os_str().len() > LONGEST {
        return Err(ConfigError::new(
            REGISTER,
            format!(
                "makes {}, which is longer than the 107 bytes that a socket's path may have; mount \
                 the directory at a shorter path",
                path.display()
            ),
        ));
    }
    let endpoint = match endpoint {
        None => csi.to_owned(),
        Some(text) => on_the_host(&text)?,
    };
    Ok(Some(RegistrationSocket { path, endpoint }))
}

/// kubelet takes a path, and people write it as they write CSI_ENDPOINT.
fn on_the_host(text: &str) -> Result<PathBuf, ConfigError> {
    match text.starts_with('/') {
        true => endpoint::parse(KUBELET_ENDPOINT, &format!("unix://{text}")),
        false => endpoint::parse(KUBELET_ENDPOINT, text),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const CSI: &str = "/csi/csi.sock";

    fn with(
        register: &str,
        endpoint: &str,
        mode: &str,
    ) -> Result<Option<RegistrationSocket>, ConfigError> {
        let settings = Settings {
            register: Some(register.to_owned()),
            kubelet_endpoint: Some(endpoint.to_owned()),
            mode: Some(mode.to_owned()),
            ..Settings::default()
        };
        validate(&settings, Path::new(CSI))
    }

    #[test]
    fn registers_the_csi_socket_under_the_name_of_the_driver() {
        assert_eq!(validate(&Settings::default(), Path::new(CSI)).unwrap(), None);
        assert_eq!(with("", "", "router").unwrap(), None);
        let path = PathBuf::from("/registry/csi.orlop.io-reg.sock");
        for (text, endpoint) in
            [("", CSI), ("/host/csi.sock", "/host/csi.sock"), ("unix:///h/csi.sock", "/h/csi.sock")]
        {
            let expected = RegistrationSocket { path: path.clone(), endpoint: endpoint.into() };
            assert_eq!(with("/registry", text, "node").unwrap(), Some(expected), "{text}");
        }
    }

    #[test]
    fn mistakes_name_their_setting() {
        let long = format!("/{}", "x".repeat(90));
        for (register, endpoint, mode, setting) in [
            ("/registry", "", "controller", REGISTER),
            ("/registry", "", "router", REGISTER),
            ("registry", "", "all", REGISTER),
            ("true", "", "all", REGISTER),
            (long.as_str(), "", "all", REGISTER),
            ("/registry", "csi.sock", "all", KUBELET_ENDPOINT),
            ("/registry", "/host/csi", "all", KUBELET_ENDPOINT),
            ("", "/host/csi.sock", "all", KUBELET_ENDPOINT),
        ] {
            let error = with(register, endpoint, mode).unwrap_err().to_string();
            assert!(error.starts_with(setting), "{register} {endpoint} {mode}: {error}");
        }
    }
}
