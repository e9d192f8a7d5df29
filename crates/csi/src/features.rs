//! What this instance serves and can do; fixed before the first call is answered.

use orlop_engine::request::NodeInfo;
use orlop_model::{Error, Result};

/// Which services an instance registers. Identity is always there (ID-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Controller,
    Node,
    All,
}

impl Mode {
    pub fn serves_controller(self) -> bool {
        match self {
            Self::Controller | Self::All => true,
            Self::Node => false,
        }
    }

    pub fn serves_node(self) -> bool {
        match self {
            Self::Node | Self::All => true,
            Self::Controller => false,
        }
    }
}

#[derive(Debug, Clone)]
pub struct Features {
    pub driver_name: String,
    pub version: String,
    pub node: NodeInfo,
    /// Does the controller publish volumes to nodes before they are staged?
    pub attach: bool,
    /// Can I/O limits be set?
    pub limits: bool,
    /// Are atomic group snapshots possible?
    pub group_snapshots: bool,
    pub mode: Mode,
}

impl Features {
    pub(crate) fn require_attach(&self, call: &'static str) -> Result<()> {
        if self.attach {
            return Ok(());
        }
        let reason = "attaching volumes to nodes is off in this plugin's configuration";
        Err(Error::NotOffered(call, reason.to_owned()))
    }

    pub(crate) fn require_limits(&self, call: &'static str) -> Result<()> {
        if self.limits {
            return Ok(());
        }
        let reason = "I/O limits cannot be set here: no workload cgroup with an I/O controller";
        Err(Error::NotOffered(call, reason.to_owned()))
    }
}
