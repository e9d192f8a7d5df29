//! Several callers at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::task::JoinSet;

use crate::driver::{Driver, Kind};

/// Volumes that differ in nothing but their names.
#[derive(Clone)]
pub(crate) struct VolumeBatch {
    pub(crate) prefix: String,
    pub(crate) kind: Kind,
    pub(crate) bytes: u64,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// Creates them all, or as many as there is time for; returns their ids.
pub(crate) async fn create(
    driver: &Driver,
    batch: &VolumeBatch,
    callers: u64,
    deadline: Option<Instant>,
) -> Vec<String> {
    let next = Arc::new(AtomicU64::new(batch.from));
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (client, batch, next) = (driver.client.clone(), batch.clone(), Arc::clone(&next));
        tasks.spawn(async move {
            let mut ids = Vec::new();
            while deadline.is_none_or(|deadline| Instant::now() < deadline) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= batch.to {
                    break;
                }
                let name = format!("{}-{number}", batch.prefix);
                let create = client.create(&name).size(batch.bytes);
                let volume = create.capability(batch.kind.capability()).done().await;
                ids.push(volume.volume_id);
            }
            ids
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

pub(crate) async fn delete(driver: &Driver, ids: Vec<String>, callers: usize) {
    let share = ids.len().div_ceil(callers).max(1);
    let mut tasks = JoinSet::new();
    for ids in ids.chunks(share) {
        let (client, ids) = (driver.client.clone(), ids.to_vec());
        tasks.spawn(async move {
            for id in ids {
                client.delete(&id).await.unwrap_or_else(|status| panic!("delete {id}: {status}"));
            }
        });
    }
    tasks.join_all().await;
}
