//! A check: what it does, which rows it proves, and what it needs.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use crate::call_log::Call;
use crate::check_context::CheckContext;
use crate::need::Need;

/// How a check, or a step of one, ended.
pub type Outcome<T = ()> = Result<T, Stop>;

pub type Running<'t> = Pin<Box<dyn Future<Output = Outcome> + Send + 't>>;

/// Why a check did not come to its end.
#[derive(Debug, Clone)]
pub enum Stop {
    Failed(Box<Failure>),
    /// The rule has no meaning for this plugin, or cannot be seen with these options.
    NotApplicable(String),
}

#[derive(Debug, Clone)]
pub struct Failure {
    /// The row that was broken; `None`: those that the check names.
    pub row: Option<&'static str>,
    pub expected: String,
    /// The call whose answer was not as expected.
    pub call: Option<Call>,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "expected: {}", self.expected)?;
        match &self.call {
            Some(call) => write!(formatter, "\n{call}"),
            None => Ok(()),
        }
    }
}

/// Lets a failure count for one row only, of the several that a check proves.
pub fn blamed<T>(row: &'static str, outcome: Outcome<T>) -> Outcome<T> {
    outcome.map_err(|stop| match stop {
        Stop::Failed(mut failure) => {
            failure.row = failure.row.or(Some(row));
            Stop::Failed(failure)
        }
        Stop::NotApplicable(why) => Stop::NotApplicable(why),
    })
}

/// `None` for what the plugin does not have, where a check can go on without it.
pub fn optional<T>(outcome: Outcome<T>) -> Outcome<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(Stop::NotApplicable(_)) => Ok(None),
        Err(failed @ Stop::Failed(_)) => Err(failed),
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Unique, and made for `--only`.
    pub name: &'static str,
    /// One sentence.
    pub does: &'static str,
    /// Ids of rows.
    pub proves: &'static [&'static str],
    pub needs: &'static [Need],
    /// Not at the same time as other checks, because it counts or breaks what they use.
    pub alone: bool,
    pub run: for<'t> fn(&'t CheckContext) -> Running<'t>,
}

impl Check {
    pub const fn needs(mut self, needs: &'static [Need]) -> Self {
        self.needs = needs;
        self
    }

    pub const fn alone(mut self) -> Self {
        self.alone = true;
        self
    }
}

pub const fn check(
    name: &'static str,
    does: &'static str,
    proves: &'static [&'static str],
    run: for<'t> fn(&'t CheckContext) -> Running<'t>,
) -> Check {
    Check { name, does, proves, needs: &[], alone: false, run }
}

/// An `async fn(&Trial) -> Outcome` as the plain function that [`check`] takes.
macro_rules! run {
    ($step:path) => {
        |check_context| Box::pin($step(check_context))
    };
}
pub(crate) use run;

/// Checks of one call or subject.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// `CreateVolume`
    pub title: &'static str,
    pub service: Service,
    /// What all of its checks need.
    pub needs: &'static [Need],
    pub checks: &'static [Check],
    /// Rows of this subject that no call can show, each with the reason. A plugin has to test
    /// them inside.
    pub unseen: &'static [(&'static str, &'static str)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    Protocol,
    Identity,
    Controller,
    Node,
    GroupController,
    SnapshotMetadata,
    V0,
    VolumeGroup,
    AddonsIdentity,
    ReclaimSpace,
}

impl fmt::Display for Service {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Protocol => "protocol",
            Self::Identity => "identity",
            Self::Controller => "controller",
            Self::Node => "node",
            Self::GroupController => "group-controller",
            Self::SnapshotMetadata => "snapshot-metadata",
            Self::V0 => "v0",
            Self::VolumeGroup => "volume-group",
            Self::AddonsIdentity => "addons-identity",
            Self::ReclaimSpace => "reclaim-space",
        })
    }
}
