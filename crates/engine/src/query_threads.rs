//! Threads that query a pool, kept for the next query.
//!
//! A query may hang in the kernel together with its thread, so their number is not fixed. Starting a thread takes
//! longer than most queries, so one that has answered waits a while for the next.

use std::sync::mpsc::{self, SendError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a thread waits for the next query: longer than the interval at which an orchestrator probes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

type Query = Box<dyn FnOnce() + Send>;

pub(crate) struct QueryThreads {
    idle: Arc<IdleThreads>,
    idle_timeout: Duration,
}

impl Default for QueryThreads {
    fn default() -> Self {
        Self { idle: Arc::default(), idle_timeout: IDLE_TIMEOUT }
    }
}

#[derive(Default)]
struct IdleThreads(Mutex<Vec<IdleThread>>);

struct IdleThread {
    id: thread::ThreadId,
    queries: Sender<Query>,
}

impl IdleThreads {
    fn all(&self) -> MutexGuard<'_, Vec<IdleThread>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pop(&self) -> Option<IdleThread> {
        self.all().pop()
    }

    fn push(&self, queries: Sender<Query>) {
        self.all().push(IdleThread { id: thread::current().id(), queries });
    }

    /// Whether the calling thread was still there: if not, it has been given a query.
    fn remove_current(&self) -> bool {
        let id = thread::current().id();
        let mut all = self.all();
        let found = all.iter().position(|idle| idle.id == id);
        found.map(|index| all.swap_remove(index)).is_some()
    }
}

impl QueryThreads {
    /// Returns as soon as a thread has the query.
    pub(crate) fn run(&self, query: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let mut query: Query = Box::new(query);
        while let Some(thread) = self.idle.pop() {
            match thread.queries.send(query) {
                Ok(()) => return Ok(()),
                // The thread ended in between.
                Err(SendError(unsent)) => query = unsent,
            }
        }
        let (idle, timeout) = (Arc::clone(&self.idle), self.idle_timeout);
        let answer = move || answer_queries(&idle, timeout, query);
        thread::Builder::new().name("pool-query".to_owned()).spawn(answer).map(drop)
    }
}

fn answer_queries(idle: &IdleThreads, timeout: Duration, first: Query) {
    let (sender, queries) = mpsc::channel();
    let mut query = first;
    loop {
        query();
        idle.push(sender.clone());
        query = match queries.recv_timeout(timeout) {
            Ok(next) => next,
            Err(_) if idle.remove_current() => return,
            // It was chosen in this instant, and its query follows.
            Err(_) => match queries.recv() {
                Ok(next) => next,
                Err(_) => return,
            },
        };
    }
}

#[cfg(test)]
mod tests;
