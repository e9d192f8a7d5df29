//! What the person who runs the suite decides.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::check::{Check, Section};

pub type Pairs = BTreeMap<String, String>;

/// Something that happens to the plugin, and what went wrong with it.
pub type Action = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What the suite cannot do over gRPC: things that happen to a plugin.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Takes the storage away from under the plugin.
    pub breaks: Option<Action>,
    pub mends: Option<Action>,
    /// Ends the plugin without warning and starts it again; returns when its socket is there.
    pub restarts: Option<Action>,
    /// All that the plugin has logged so far.
    pub logs: Option<Arc<dyn Fn() -> Result<String, String> + Send + Sync>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Mount,
    Block,
    Both,
}

impl Access {
    pub fn mount(self) -> bool {
        self != Self::Block
    }

    pub fn block(self) -> bool {
        self != Self::Mount
    }
}

#[derive(Clone)]
pub struct Options {
    /// Where the plugin answers.
    pub socket: PathBuf,
    /// Where its node service answers, if elsewhere.
    pub node_socket: Option<PathBuf>,
    /// Directories that the plugin sees under the same path.
    pub staging_dir: PathBuf,
    pub target_dir: PathBuf,
    pub local_files: bool,
    pub access: Access,
    /// Of a volume, in bytes.
    pub size: i64,
    pub fs_type: String,
    pub parameters: Pairs,
    /// These put a volume where it cannot be grouped with one made with `parameters`.
    pub other_parameters: Pairs,
    /// All the same, one snapshot can be taken of both.
    pub snapshots_across: bool,
    /// Added to `parameters`, these make a volume that takes its space when it is created.
    pub filling_parameters: Pairs,
    /// Two sets of values, each of which the plugin takes; the second to change to.
    pub mutable_parameters: Pairs,
    pub changed_parameters: Pairs,
    pub secrets: Pairs,
    pub snapshot_parameters: Pairs,
    /// Two sets of parameters, with each of which a volume group can be made.
    pub group_parameters: Pairs,
    pub other_group_parameters: Pairs,
    /// So many volumes fit into a group that is made with `group_parameters`.
    pub largest_group: Option<usize>,
    pub other_node: Option<String>,
    /// Of a user who may not create volumes.
    pub weak_secrets: Pairs,
    /// Segments of a second place where volumes can be made.
    pub other_place: Pairs,
    /// For one call.
    pub timeout: Duration,
    /// Checks at a time.
    pub jobs: usize,
    /// Ids, prefixes, services, calls or names of checks; empty: all.
    pub only: Vec<String>,
    pub skip: Vec<String>,
    pub hooks: Hooks,
}

impl Options {
    pub fn new(socket: PathBuf) -> Self {
        let scratch = std::env::temp_dir().join(format!("csi-conformance-{}", std::process::id()));
        Self {
            socket,
            node_socket: None,
            staging_dir: scratch.join("staging"),
            target_dir: scratch.join("targets"),
            local_files: true,
            access: Access::Both,
            size: 1 << 30,
            fs_type: String::new(),
            parameters: Pairs::new(),
            other_parameters: Pairs::new(),
            snapshots_across: false,
            filling_parameters: Pairs::new(),
            mutable_parameters: Pairs::new(),
            changed_parameters: Pairs::new(),
            secrets: Pairs::new(),
            snapshot_parameters: Pairs::new(),
            group_parameters: Pairs::new(),
            other_group_parameters: Pairs::new(),
            largest_group: None,
            other_node: None,
            weak_secrets: Pairs::new(),
            other_place: Pairs::new(),
            timeout: Duration::from_secs(60),
            jobs: 4,
            only: Vec::new(),
            skip: Vec::new(),
            hooks: Hooks::default(),
        }
    }

    pub fn wants(&self, section: &Section, check: &Check) -> bool {
        let named = |patterns: &[String]| patterns.iter().any(|it| names(it, section, check));
        (self.only.is_empty() || named(&self.only)) && !named(&self.skip)
    }
}

fn names(pattern: &str, section: &Section, check: &Check) -> bool {
    let is = |text: &str| text.eq_ignore_ascii_case(pattern);
    is(check.name)
        || is(section.title)
        || is(&section.service.to_string())
        || check.proves.iter().any(|row| is(row) || is(crate::row::prefix_of(row)))
}
