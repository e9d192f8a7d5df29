//! Mistakes that several calls have in common.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use csi_conformance::wire::Rpc;
use tonic::{Code, Status};

use crate::interceptor::Interceptor;

/// Paths of this length have to be taken.
const LONG_PATH: usize = 128;

/// Refuses what it has to take.
pub(crate) fn refusing<R: Rpc>(
    code: Code,
    when: impl Fn(&R) -> bool + Send + Sync + 'static,
) -> Interceptor {
    Interceptor::default()
        .answer::<R>(move |request| when(request).then(|| Err(Status::new(code, "not like this"))))
}

/// Says that it did what it never did.
pub(crate) fn pretending<R: Rpc>(when: impl Fn(&R) -> bool + Send + Sync + 'static) -> Interceptor {
    Interceptor::default()
        .answer::<R>(move |request| when(request).then(|| Ok(R::Reply::default())))
}

/// Says of every failure that all went well.
pub(crate) fn hiding_failures<R: Rpc>() -> Interceptor {
    Interceptor::default().refusal::<R>(|_, _| Ok(R::Reply::default()))
}

/// The first call of a kind succeeds, all others do not.
pub(crate) fn refusing_repeats<R: Rpc>(
    code: Code,
    kind: impl Fn(&R) -> String + Send + Sync + 'static,
) -> Interceptor {
    let done = Mutex::new(BTreeSet::new());
    Interceptor::default().outcome::<R>(move |request, answer| {
        let reply = answer?;
        let is_first = done.lock().unwrap_or_else(PoisonError::into_inner).insert(kind(request));
        if is_first { Ok(reply) } else { Err(Status::new(code, "that was done before")) }
    })
}

/// Has a buffer that is one byte too small.
pub(crate) fn refusing_long_paths<R: Rpc>(
    path: impl Fn(&R) -> &str + Send + Sync + 'static,
) -> Interceptor {
    refusing::<R>(Code::InvalidArgument, move |request| path(request).len() >= LONG_PATH)
}
