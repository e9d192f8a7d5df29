//! `orlop node`: the daemons of a cluster, as one of them sees them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use orlop_client::Format;
use orlop_csi::proto::peer;
use orlop_csi::{ClusterMemory, Routes};
use orlop_model::PoolId;
use orlop_router::{Informed, Peers, PeersConfig};
use serde::Serialize;

use crate::config::{self, Config, ConfigError};
use crate::doctor::{NOT_EXAMINED, Printer};
use crate::{cluster, complain};

#[derive(clap::Subcommand)]
pub(crate) enum NodeCommand {
    /// Show the node behind a CSI plugin's socket, and what the plugin offers
    Info(orlop_client::NodeInfoArguments),

    #[command(flatten)]
    Cluster(ClusterCommand),
}

#[derive(clap::Subcommand)]
pub(crate) enum ClusterCommand {
    /// List the daemons that this one can reach or has heard of, and their pools
    List {
        #[command(flatten)]
        common: Common,

        /// How to show the result
        #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t)]
        output: Format,
    },

    /// Let deletes of volumes succeed whose node is gone for good
    #[command(
        after_help = "What was on the node's pools counts as deleted from then on: volumes, snapshots and\n\
        groups. Nothing is removed from its disks. If the node comes back, so do its volumes."
    )]
    Forget {
        /// Its node id
        node: String,

        /// The id of a pool that was on it, as in v-POOL-...; needed if no daemon remembers the node
        #[arg(long = "pool", value_name = "ID")]
        pools: Vec<PoolId>,

        #[command(flatten)]
        common: Common,
    },
}

#[derive(clap::Args)]
pub(crate) struct Common {
    /// The TOML file of the daemon; without it and ORLOP_* variables /etc/orlop/orlop.toml, if it is there
    #[arg(long, env = "ORLOP_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(command: ClusterCommand) -> ExitCode {
    let (ClusterCommand::List { common, .. } | ClusterCommand::Forget { common, .. }) = &command;
    let loaded = config::load_without_endpoint(common.config.as_deref());
    let config = match loaded {
        Ok((config, _)) => config,
        Err(error) => return complain(NOT_EXAMINED, &error),
    };
    let printer = match Printer::start() {
        Ok(printer) => printer,
        Err(error) => return complain(NOT_EXAMINED, &error),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(carry_out(command, &config, &printer)),
        Err(error) => return complain(NOT_EXAMINED, &error),
    };
    printer.finish();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(NOT_EXAMINED, &error),
    }
}

async fn carry_out(
    command: ClusterCommand,
    config: &Config,
    printer: &Printer,
) -> Result<(), ConfigError> {
    let peers = find_peers(config).await?;
    match command {
        ClusterCommand::List { output, .. } => list(&peers, output, printer),
        ClusterCommand::Forget { node, pools, .. } => {
            return forget(&peers, &node, &pools, printer).await;
        }
    }
    Ok(())
}

async fn find_peers(config: &Config) -> Result<Peers, ConfigError> {
    let none = || {
        let problem = "is not set, so this daemon has no peers; name them as HOST:PORT. `orlop node info` shows this \
                       node alone";
        config.origin.locate(ConfigError::new("ORLOP_PEERS", problem))
    };
    let given = config.peers.as_ref().filter(|peers| !peers.addresses.is_empty());
    let given = given.ok_or_else(none)?;
    let located = |error| config.origin.locate(error);
    let identity = Arc::new(cluster::load(given, config).map_err(located)?);
    let peers = PeersConfig {
        node: config.node_id.to_string(),
        addresses: given.addresses.clone(),
        forgotten: None,
        is_observer: true,
    };
    let wrong = |why| located(ConfigError::new("ORLOP_NODE_ID", why));
    let peers =
        Peers::new(peers, Routes::default(), identity, ClusterMemory::default()).map_err(wrong)?;
    peers.poll().await;
    Ok(peers)
}

#[derive(Serialize)]
struct Nodes {
    nodes: Vec<ListedNode>,
    /// Addresses at which no daemon has answered yet.
    silent: Vec<SilentAddress>,
    forgotten: Vec<ForgottenPool>,
}

#[derive(Serialize)]
struct ListedNode {
    node_id: String,
    pools: Vec<ListedPool>,
    ready: bool,
    /// Why it is not.
    problem: Option<String>,
}

#[derive(Serialize)]
struct ListedPool {
    name: String,
    id: String,
}

#[derive(Serialize)]
struct SilentAddress {
    address: String,
    problem: String,
}

#[derive(Serialize)]
struct ForgottenPool {
    node_id: String,
    pool_id: String,
}

fn list(peers: &Peers, format: Format, printer: &Printer) {
    let nodes = Nodes::of(peers);
    let ids = nodes.nodes.iter().map(|node| node.node_id.clone()).collect();
    let text = orlop_client::rendered(format, ids, &nodes, nodes.lines().join("\n"));
    if !text.is_empty() {
        printer.say(text.trim_end());
    }
}

impl Nodes {
    fn of(peers: &Peers) -> Self {
        let node = |member: peer::Member| ListedNode {
            ready: member.away.is_empty(),
            problem: Some(member.away).filter(|why| !why.is_empty()),
            pools: member
                .pools
                .into_iter()
                .map(|pool| ListedPool { name: pool.name, id: pool.id })
                .collect(),
            node_id: member.node_id,
        };
        let silent = |(address, problem)| SilentAddress { address, problem };
        let forgotten = |(pool, node): (PoolId, String)| ForgottenPool {
            node_id: node,
            pool_id: pool.to_string(),
        };
        Self {
            nodes: peers.described().into_iter().map(node).collect(),
            silent: peers.silent().into_iter().map(silent).collect(),
            forgotten: peers.forgotten().into_iter().map(forgotten).collect(),
        }
    }

    fn lines(&self) -> Vec<String> {
        let node = |node: &ListedNode| {
            let state = match &node.problem {
                None => "ready".to_owned(),
                Some(why) => format!("unreachable: {why}"),
            };
            format!("{}  {}  {state}", node.node_id, pools_of(node))
        };
        let silent = |it: &SilentAddress| format!("{}  no answer: {}", it.address, it.problem);
        let forgotten =
            |it: &ForgottenPool| format!("{}  pool {}  forgotten", it.node_id, it.pool_id);
        let nodes = self.nodes.iter().map(node);
        nodes
            .chain(self.silent.iter().map(silent))
            .chain(self.forgotten.iter().map(forgotten))
            .collect()
    }
}

fn pools_of(node: &ListedNode) -> String {
    let pool = |pool: &ListedPool| format!("{} ({})", pool.name, pool.id);
    match node.pools.as_slice() {
        [] => "no pool".to_owned(),
        pools => pools.iter().map(pool).collect::<Vec<_>>().join(", "),
    }
}

async fn forget(
    peers: &Peers,
    node: &str,
    given: &[PoolId],
    printer: &Printer,
) -> Result<(), ConfigError> {
    let wrong =
        |problem: &str| Err(ConfigError::new(format!("cannot forget node {node}"), problem));
    let known = peers.described();
    let member = known.iter().find(|member| member.node_id == node);
    let is_there = peers.is_reached(node);
    let mut pools: BTreeSet<PoolId> = given.iter().cloned().collect();
    match member {
        _ if is_there && given.is_empty() => {
            return wrong(
                "it answers, or did so a few seconds ago; stop its daemon first, or name pools \
                 that it has lost with --pool",
            );
        }
        Some(member) if is_there && member.incomplete => {
            return wrong(
                "it is still opening its pools, or one of them is absent; try again later, or \
                 take that pool out of its configuration",
            );
        }
        Some(member) if !is_there => {
            pools.extend(member.pools.iter().filter_map(|pool| pool.id.parse().ok()));
        }
        None if pools.is_empty() => {
            return wrong(
                "no daemon remembers its pools; name them with --pool, as in the ids of its \
                 volumes (v-POOL-...)",
            );
        }
        Some(_) | None => {}
    }
    // Its disk may be in another machine by now.
    let others = known.iter().filter(|member| is_there || member.node_id != node);
    let others: Vec<&peer::Member> = others.collect();
    pools.retain(|pool| {
        let serves = |member: &&&peer::Member| member.pools.iter().any(|it| it.id == pool.as_str());
        let server = others.iter().find(serves);
        if let Some(server) = server {
            printer.say(format!("pool {pool} is kept: node {} serves it", server.node_id));
        }
        server.is_none()
    });
    if is_there && pools.is_empty() {
        return wrong("it answers, and none of these pools is lost");
    }
    let informed = match is_there {
        true => peers.forget_pools(node, pools.clone()).await,
        false => peers.forget(node, pools.clone()).await,
    };
    report(printer, &informed);
    if informed.iter().all(|(_, outcome)| outcome.is_err()) {
        return wrong("no daemon could be informed; is the cluster up?");
    }
    if !is_there {
        printer.say(format!("node {node} is forgotten"));
    }
    for pool in &pools {
        printer.say(format!("what was on its pool {pool} can be deleted"));
    }
    Ok(())
}

fn report(printer: &Printer, informed: &[Informed]) {
    for (other, outcome) in informed {
        match outcome {
            Ok(()) => printer.say(format!("node {other} is informed")),
            Err(why) => printer.say(format!("node {other} could not be informed: {why}")),
        }
    }
}
