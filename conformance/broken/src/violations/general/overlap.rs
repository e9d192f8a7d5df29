//! Calls that overlap, that are given up, and that come again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use csi_conformance::wire::csi::v1::{
    ControllerUnpublishVolumeRequest, CreateVolumeRequest, ValidateVolumeCapabilitiesRequest,
};
use tonic::Status;

use crate::interceptor::Interceptor;
use crate::violation::{Violation, violation};

/// Tells whether a name came before.
#[derive(Default)]
struct Seen(Mutex<BTreeSet<String>>);

impl Seen {
    fn again(&self, name: &str) -> bool {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !names.insert(name.to_owned())
    }
}

pub(super) const ALL: &[Violation] = &[
    violation("overlapping-calls-clash", "GEN-23", "fails one of two equal calls", || {
        let seen = Seen::default();
        Interceptor::default().answer::<CreateVolumeRequest>(move |request| {
            let clash = Status::already_exists("somebody else is making it");
            seen.again(&request.name).then_some(Err(clash))
        })
    }),
    violation("overlapping-calls-all-make-one", "GEN-24", "makes a volume for each call", || {
        let calls = AtomicUsize::new(0);
        Interceptor::default().ask::<CreateVolumeRequest>(move |request| {
            let number = calls.fetch_add(1, Ordering::Relaxed);
            request.name.push_str(&format!("-{number}"));
        })
    }),
    violation("a-second-try-is-refused", "GEN-25", "does not take up what was given up", || {
        let seen = Seen::default();
        Interceptor::default().answer::<CreateVolumeRequest>(move |request| {
            let stuck = Status::internal("half a volume of that name is in the way");
            seen.again(&request.name).then_some(Err(stuck))
        })
    }),
    violation("hanging-up-deletes", "GEN-26", "undoes what a caller gave up", || {
        // The second call is the one that is given up.
        let calls = std::sync::Arc::new(AtomicUsize::new(0));
        let counted = std::sync::Arc::clone(&calls);
        Interceptor::default()
            .ask::<CreateVolumeRequest>(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
            })
            .answer::<ValidateVolumeCapabilitiesRequest>(move |_| {
                let gone = Status::not_found("no such volume");
                (calls.load(Ordering::Relaxed) > 1).then_some(Err(gone))
            })
    }),
    violation("detaching-comes-too-early", "GEN-27", "forgets a detach that came early", || {
        Interceptor::default().forget::<ControllerUnpublishVolumeRequest>()
    }),
];
