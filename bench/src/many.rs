//! Several callers at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::task::JoinSet;

use crate::contender::{Contender, Kind};

/// Volumes that differ in nothing but their names.
#[derive(Clone)]
pub(crate) struct Crowd {
    pub(crate) prefix: String,
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Creates them all, or as many as there is time for; returns their ids.
pub(crate) async fn create(
    contender: &Contender,
    crowd: &Crowd,
    callers: u64,
    deadline: Option<Instant>,
) -> Vec<String> {
    let next = Arc::new(AtomicU64::new(crowd.from));
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (client, crowd, next) = (contender.client.clone(), crowd.clone(), Arc::clone(&next));
        tasks.spawn(async move {
            let mut ids = Vec::new();
            while deadline.is_none_or(|deadline| Instant::now() < deadline) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= crowd.to {
                    break;
                }
                let name = format!("{}-{number}", crowd.prefix);
                let create = client.create(&name).size(crowd.bytes);
                let volume = create.capability(crowd.kind.capability()).done().await;
                ids.push(volume.volume_id);
            }
            ids
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

pub(crate) async fn delete(contender: &Contender, ids: Vec<String>, callers: usize) {
    let share = ids.len().div_ceil(callers).max(1);
    let mut tasks = JoinSet::new();
    for ids in ids.chunks(share) {
        let (client, ids) = (contender.client.clone(), ids.to_vec());
        tasks.spawn(async move {
            for id in ids {
                client.delete(&id).await.unwrap_or_else(|status| panic!("delete {id}: {status}"));
            }
        });
    }
    tasks.join_all().await;
}
