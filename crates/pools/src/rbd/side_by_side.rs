//! Requests to the cluster that do not depend on each other: most of their time passes while they wait for it.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// So many wait at a time. Object stores answer others meanwhile, and a cluster that does not answer keeps no more
/// threads than this waiting for one caller.
const AT_ONCE: usize = 8;

/// What `ask` answers for each item, in the order of the items.
pub(super) fn side_by_side<In: Sync, Out: Send>(
    items: &[In],
    ask: impl Fn(&In) -> Out + Sync,
) -> Vec<Out> {
    let Some(others) = NonZeroUsize::new(AT_ONCE.min(items.len()).saturating_sub(1)) else {
        return items.iter().map(ask).collect();
    };
    let next = AtomicUsize::new(0);
    let work = || {
        let mut answers = Vec::new();
        while let Some((at, item)) = take(items, &next) {
            answers.push((at, ask(item)));
        }
        answers
    };
    let mut answers = thread::scope(|scope| {
        let running: Vec<_> = (0..others.get())
            // Where no thread can be made, the others ask for its share.
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mut answers = work();
        for thread in running {
            // The panic of a request is that of the whole.
            answers.extend(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        answers
    });
    answers.sort_unstable_by_key(|(at, _)| *at);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

fn take<'a, In>(items: &'a [In], next: &AtomicUsize) -> Option<(usize, &'a In)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, items.get(at)?))
}

#[cfg(test)]
mod tests;
