#![allow(clippy::unwrap_used)]

mod capabilities;
mod contexts;
mod fields;
mod groups;

use std::collections::BTreeMap;

use orlop_engine::request::NodeInfo;
use orlop_model::{Error, Topology};

use crate::features::{Features, Mode};

fn features(attach: bool, limits: bool) -> Features {
    Features {
        driver_name: "orlop.example".to_owned(),
        version: "0".to_owned(),
        node: NodeInfo {
            id: "node".parse().unwrap(),
            topology: Topology::default(),
            max_volumes: 0,
        },
        attach,
        limits,
        group_snapshots: true,
        mode: Mode::All,
    }
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    entries.iter().map(owned).collect()
}

fn is_invalid<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Invalid { .. }))
}

fn is_precondition<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::Precondition(_)))
}
