//! `orlop volume limit`

use std::collections::BTreeMap;

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::controller_client::ControllerClient;
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::output::Answer;
use crate::plugin::Offer;
use crate::session::{Change, Session};
use crate::{inventory, pairs, resolve};

/// A limit that is lifted, in the words of Orlop's parameters.
const NONE: &str = "max";

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The options set Orlop's parameters readIops, writeIops, readBytesPerSecond and \
    writeBytesPerSecond; `none` lifts a limit. For another plugin, give its own as KEY=VALUE."
)]
pub(super) struct LimitArguments {
    /// Its id or name, or the beginning of one
    volume: String,

    /// Mutable parameters as the plugin has them, as of a VolumeAttributesClass
    #[arg(value_name = "KEY=VALUE", value_parser = pairs::parse)]
    parameters: Vec<(String, String)>,

    /// Reads per second
    #[arg(long, value_name = "COUNT", value_parser = count)]
    read_iops: Option<String>,

    /// Writes per second
    #[arg(long, value_name = "COUNT", value_parser = count)]
    write_iops: Option<String>,

    /// Bytes read per second, such as 50MiB
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    read_rate: Option<String>,

    /// Bytes written per second, such as 50MiB
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    write_rate: Option<String>,

    #[command(flatten)]
    change: Change,
}

fn count(text: &str) -> std::result::Result<String, String> {
    match text {
        "none" => Ok(NONE.to_owned()),
        _ => text
            .parse::<u64>()
            .map(|count| count.to_string())
            .map_err(|_| "it is neither a whole number nor none".to_owned()),
    }
}

fn rate(text: &str) -> std::result::Result<String, String> {
    match text {
        "none" => Ok(NONE.to_owned()),
        _ => pairs::rate(text).map(|bytes| bytes.to_string()),
    }
}

impl LimitArguments {
    fn wanted(&self) -> Result<BTreeMap<String, String>> {
        let mut wanted = pairs::collected("limit", &self.parameters)?;
        for (key, given) in [
            ("readIops", &self.read_iops),
            ("writeIops", &self.write_iops),
            ("readBytesPerSecond", &self.read_rate),
            ("writeBytesPerSecond", &self.write_rate),
        ] {
            if let Some(value) = given
                && wanted.insert(key.to_owned(), value.clone()).is_some()
            {
                return Err(Failure::usage(format!("limit gives {key:?} twice")));
            }
        }
        match wanted.is_empty() {
            true => Err(Failure::usage("no limit is given; give one, such as --write-rate 50MiB")),
            false => Ok(wanted),
        }
    }
}

pub(super) async fn run(session: &Session, arguments: &LimitArguments) -> Result<()> {
    let wanted = arguments.wanted()?;
    let plugin = &session.plugin;
    let id = resolve::volume(plugin, &arguments.volume).await?;
    let doing = format!("change volume {id}");
    plugin.require(Offer::ModifyVolume, &doing)?;
    if arguments.change.dry_run {
        return session.would(&format!("change volume {id}: {}", pairs::joined(&wanted)));
    }
    let request = v1::ControllerModifyVolumeRequest {
        volume_id: id.clone(),
        secrets: plugin.secrets.clone(),
        mutable_parameters: wanted.clone(),
    };
    let send = |channel, request| async move {
        ControllerClient::new(channel).controller_modify_volume(request).await
    };
    plugin.ask(&doing, request, send).await?;
    // `None`: the plugin does not say them.
    let now = match plugin.offers(Offer::GetVolume) {
        true => inventory::volume(plugin, &id).await?.limits,
        false => None,
    };
    let text = match &now {
        Some(limits) if limits.is_empty() => format!("volume {id} has no limits now"),
        Some(limits) => format!("volume {id} has these limits now: {}", pairs::joined(limits)),
        None => format!("changed volume {id}: {}", pairs::joined(&wanted)),
    };
    session.show(&Answer::new(
        vec![id.clone()],
        &json!({ "id": id, "changed": wanted, "limits": now }),
        text,
    )?)
}
