//! What an answer of ALREADY_EXISTS tells: what is there, and what was asked for. Mount flags and
//! arguments for mkfs are never shown.

use std::fmt::Display;

use orlop_model::{AccessType, ContentSource, Encryption, VolumeCapability, VolumeParameters};

/// `what` is that of the thing that is there.
pub(crate) fn differs(what: &str, there: impl Display, asked: impl Display) -> String {
    format!("{what} is {there}, but {asked} is asked for")
}

pub(crate) fn readonly_differs(there: bool) -> String {
    differs("readonly", there, !there)
}

pub(crate) fn capability_differs(there: &VolumeCapability, asked: &VolumeCapability) -> String {
    const WHAT: &str = "volume_capability";
    if !there.same_use(asked) {
        return differs(WHAT, there, asked);
    }
    match (&there.access, &asked.access) {
        (AccessType::Mount(there), AccessType::Mount(asked)) if there.group != asked.group => {
            let named = |group: Option<u32>| group.map_or("none".to_owned(), |id| id.to_string());
            differs("volume_mount_group", named(there.group), named(asked.group))
        }
        _ => format!("{WHAT} is {there} with other mount flags than are asked for"),
    }
}

pub(crate) fn parameters_differ(there: &VolumeParameters, asked: &VolumeParameters) -> String {
    let named = |pool: &Option<String>| pool.clone().unwrap_or_else(|| "not given".to_owned());
    if there.pool != asked.pool {
        return differs("its parameter pool", named(&there.pool), named(&asked.pool));
    }
    if there.provisioning != asked.provisioning {
        let (there, asked) = (there.provisioning.as_str(), asked.provisioning.as_str());
        return differs("its parameter provisioning", there, asked);
    }
    if there.lvm != asked.lvm {
        return differs("its layout on disks", there.lvm, asked.lvm);
    }
    if there.encryption != asked.encryption {
        let named = |encryption: Option<Encryption>| match encryption {
            None => "none".to_owned(),
            Some(Encryption { kind, discard }) => {
                format!("{} with encryptionDiscard {discard}", kind.as_str())
            }
        };
        let (there, asked) = (named(there.encryption), named(asked.encryption));
        return differs("its parameter encryption", there, asked);
    }
    "its parameter mkfsOptions is another one than is asked for".to_owned()
}

pub(crate) fn source_differs(
    there: Option<&ContentSource>,
    asked: Option<&ContentSource>,
) -> String {
    let named = |source: Option<&ContentSource>| match source {
        None => "none".to_owned(),
        Some(ContentSource::Snapshot(id)) => format!("snapshot {id}"),
        Some(ContentSource::Volume(id)) => format!("volume {id}"),
    };
    differs("its volume_content_source", named(there), named(asked))
}
