//! `orlop node info`: the node behind the socket, and what the plugin offers.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::failure::Result;
use crate::health::{self, Problem};
use crate::output::Answer;
use crate::pairs;
use crate::session::{Common, FindSettings, Session};
use crate::terminal::{Style, printable};

#[derive(Debug, clap::Args)]
pub struct NodeInfoArguments {
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Node {
    node_id: String,
    driver: String,
    version: String,
    /// 0: the plugin names no limit.
    max_volumes: i64,
    topology: BTreeMap<String, String>,
    controller: Vec<String>,
    node: Vec<String>,
    /// What is wrong with the storage of the node; null where the plugin does not say.
    problems: Option<Vec<Problem>>,
}

pub(crate) async fn run(arguments: &NodeInfoArguments, find: FindSettings<'_>) -> Result<()> {
    let session = Session::open(&arguments.common, find).await?;
    let info = session.plugin.node_info().await?;
    let offers = session.plugin.node_offers().await?;
    let node = Node {
        node_id: info.node_id,
        driver: session.plugin.driver.clone(),
        version: session.plugin.version.clone(),
        max_volumes: info.max_volumes_per_node,
        topology: info.accessible_topology.unwrap_or_default().segments,
        controller: session.plugin.offered(),
        node: offers.iter().map(|it| it.as_str_name().to_owned()).collect(),
        problems: health::of_storage(&session.plugin).await,
    };
    let most = match node.max_volumes {
        0 => "no limit".to_owned(),
        most => most.to_string(),
    };
    let text = format!(
        "node        {}\nplugin      {} {}\nvolumes     at most: {most}\ntopology    {}\ncontroller  {}\nnode calls  {}",
        node.node_id,
        node.driver,
        node.version,
        pairs::joined(&node.topology),
        node.controller.join(" "),
        node.node.join(" "),
    );
    let text = format!("{text}{}", storage(&node, session.output.style));
    session.show(&Answer::new(vec![node.node_id.clone()], &node, text)?)
}

/// A line for each problem of the node's storage.
fn storage(node: &Node, style: Style) -> String {
    match node.problems.as_deref() {
        None => String::new(),
        Some([]) => "\nstorage     normal".to_owned(),
        Some(problems) => {
            let line = |problem: &Problem| {
                format!("\nstorage     {}", style.bad(&printable(&problem.text())))
            };
            problems.iter().map(line).collect()
        }
    }
}
