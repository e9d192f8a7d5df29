//! One running check: its calls, what it expects of them, and what it has to undo.

mod calls;
mod cleanup;
mod content;
mod full_storage;
mod inventory;
mod local_node;
mod long_paths;
mod method_paths;
mod node_paths;
mod objects;
mod outage;
mod raw_fields;
mod snapshots;
mod special_volumes;
mod streaming;
mod topology;
mod v0_volumes;
mod volume_groups;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tonic::Status;

pub use calls::Answer;
pub use local_node::{Mounted, Statfs};
pub use node_paths::{Placed, Placing};
pub(crate) use objects::BANNED_IN_NAMES;
pub(crate) use snapshots::member_ids;
pub use v0_volumes::V0Placed;

use crate::call_log::Call;
use crate::check::{Check, Failure, Outcome, Stop};
use crate::options::{Options, Pairs};
use crate::plugin::Plugin;
use crate::plugin_features::PluginFeatures;
use crate::undo::Undo;

pub struct CheckContext {
    plugin: Plugin,
    check: &'static str,
    /// Tells the objects of this run from those of others.
    run: String,
    calls: Mutex<Vec<Call>>,
    undo: Mutex<Vec<Undo>>,
    /// Rules for all answers that some answer broke.
    findings: Mutex<Vec<Failure>>,
    /// All that was ever to be undone, for [`CheckContext::resumed`].
    made: Mutex<Vec<Undo>>,
    names: Mutex<HashMap<String, usize>>,
    directories: Mutex<Vec<PathBuf>>,
    /// The storage is away.
    broken: AtomicBool,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CheckContext {
    pub(crate) fn new(plugin: &Plugin, check: &Check, run: &str) -> Self {
        Self {
            plugin: plugin.clone(),
            check: check.name,
            run: run.to_owned(),
            calls: Mutex::default(),
            undo: Mutex::default(),
            findings: Mutex::default(),
            made: Mutex::default(),
            names: Mutex::default(),
            directories: Mutex::default(),
            broken: AtomicBool::default(),
        }
    }

    /// With nothing to do but to take back what an earlier run of the check made.
    pub(crate) fn resumed(plugin: &Plugin, check: &Check, made: Vec<Undo>) -> Self {
        Self { undo: Mutex::new(made), ..Self::new(plugin, check, "") }
    }

    pub(crate) fn made(&self) -> Vec<Undo> {
        held(&self.made).clone()
    }

    pub fn features(&self) -> &PluginFeatures {
        &self.plugin.features
    }

    pub fn options(&self) -> &Options {
        &self.plugin.options
    }

    /// To send along wherever a request has a field for them.
    pub fn secrets(&self) -> Pairs {
        self.options().secrets.clone()
    }

    /// A name that no other check and no other run uses; another one at each call.
    pub fn name(&self, what: &str) -> String {
        let mut names = held(&self.names);
        let number = names.entry(what.to_owned()).or_insert(0);
        *number += 1;
        format!("{}-{}-{what}-{number}", self.run, self.check)
    }

    /// Fails with the last call as the one that was not answered as expected.
    pub fn expect(&self, holds: bool, expected: impl Into<String>) -> Outcome {
        if holds { Ok(()) } else { Err(self.failed(expected)) }
    }

    pub fn failed(&self, expected: impl Into<String>) -> Stop {
        let call = held(&self.calls).last().cloned();
        Stop::Failed(Box::new(Failure { row: None, expected: expected.into(), call }))
    }

    /// The value, or a failure that says what was expected to be there.
    pub fn some<T>(&self, value: Option<T>, expected: &str) -> Outcome<T> {
        value.ok_or_else(|| self.failed(expected))
    }

    pub fn not_applicable<T>(&self, why: impl Into<String>) -> Outcome<T> {
        Err(Stop::NotApplicable(why.into()))
    }

    /// Each rule once, with the first answer that broke it.
    pub(crate) fn findings(&self) -> Vec<Failure> {
        let mut found = held(&self.findings).clone();
        found.sort_by_key(|finding| finding.row);
        found.dedup_by_key(|finding| finding.row);
        found
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        held(&self.calls).clone()
    }

    fn note(&self, path: &str, request: String, answer: String) {
        held(&self.calls).push(Call { path: path.to_owned(), request, answer });
    }

    /// Lets something happen to the plugin; what cannot be done is a failure of the set-up.
    fn hook(&self, what: &str, outcome: Result<(), String>) -> Outcome {
        outcome.map_err(|error| self.failed(format!("the {what} command to succeed: {error}")))
    }

    pub fn restart_plugin(&self) -> Outcome {
        match &self.options().hooks.restarts {
            Some(restarts) => self.hook("restart", restarts()),
            None => self.not_applicable("needs --restart-command"),
        }
    }

    /// All that the plugin has logged so far.
    pub fn logs(&self) -> Outcome<String> {
        match &self.options().hooks.logs {
            Some(logs) => logs().map_err(|error| self.failed(format!("readable logs: {error}"))),
            None => self.not_applicable("needs --logs"),
        }
    }
}

/// Names of codes as the specification spells them.
pub fn code_name(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// Of an answer: OK or the refusal's code.
pub(crate) fn code_of<T>(answer: &Result<T, Status>) -> tonic::Code {
    answer.as_ref().err().map_or(tonic::Code::Ok, Status::code)
}
