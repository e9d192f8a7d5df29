//! The controller is killed at some moment of every call, and the call repeated, as orchestrators
//! do: it succeeds, the data is what it was, and in the end nothing is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_sys::ceph::{Access, IoCtx};
use orlop_tests::*;

use crate::ceph::orphans::Orphans;

const VOLUME: u64 = 16 * MIB;
const DATA: usize = 1 << 20;
/// Milliseconds. Most calls are done by then, where nothing else is running.
const LATEST_MOMENT: u64 = 60;
/// The cluster takes a client that was killed for alive for half a minute; then it is tried again.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Asked until it succeeds. For a moment the killed one counts as a user of what it had open.
pub(crate) async fn answered<T, F: Future<Output = Answer<T>>>(call: impl Fn() -> F) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(status) => {
                let passing = [Code::Aborted, Code::Unavailable, Code::FailedPrecondition];
                assert!(passing.contains(&status.code()), "{status}");
                assert!(Instant::now() < deadline, "{status}");
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

struct Fixture {
    controller: Daemon,
    io: Arc<IoCtx>,
    rng: Rng,
}

impl Fixture {
    async fn new(namespace: &str) -> Self {
        let ceph = TestCeph::shared();
        ceph.rbd(&["namespace", "create", &format!("rbd/{namespace}")]);
        let launch = ceph.launch("killed-c", "controller").env("ORLOP_RBD_NAMESPACE", namespace);
        Self { controller: launch.start().await, io: ceph.io(namespace), rng: Rng::with_seed(7) }
    }

    /// The answer to the call that was repeated after its daemon was killed.
    async fn killed<T, F>(&mut self, call: impl Fn(Client) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = Answer<T>> + Send + 'static,
    {
        let begun = tokio::spawn(call(self.controller.client()));
        tokio::time::sleep(Duration::from_millis(self.rng.u64(..LATEST_MOMENT))).await;
        self.controller.kill9();
        // It may have been answered, or not.
        let _ = begun.await;
        self.controller.restart().await;
        let client = self.controller.client();
        answered(|| call(client.clone())).await
    }

    async fn grow(&mut self, volume: &str, bytes: u64) {
        let volume = volume.to_owned();
        let grown = self
            .killed(|client| {
                let volume = volume.clone();
                async move { client.expand(&volume, bytes).await }
            })
            .await;
        assert_eq!(grown.capacity_bytes, int(bytes));
    }

    async fn delete(&mut self, volume: &str) {
        let volume = volume.to_owned();
        self.killed(|client| {
            let volume = volume.clone();
            async move { client.delete(&volume).await }
        })
        .await;
    }

    fn write(&self, volume: &str, seed: u64) {
        let image = self.io.open_image(volume, Access::ReadWrite).unwrap();
        image.write(0, &Pattern::new(seed).bytes(0, DATA)).unwrap();
        image.flush().unwrap();
    }

    fn check(&self, volume: &str, seed: u64, size: u64) {
        let image = self.io.open_image(volume, Access::ReadOnly).unwrap();
        assert_eq!(image.size().unwrap(), size);
        let mut found = vec![0; DATA];
        image.read(0, &mut found).unwrap();
        assert!(found == Pattern::new(seed).bytes(0, DATA), "{volume} has other data");
    }
}

/// Two volumes and a snapshot come from one, and go again.
async fn live_through(fixture: &mut Fixture, round: u64) {
    let seed = round + 1;
    let name = |what: &str| format!("{what} {round}");
    let source = name("source");
    let made = fixture.killed(|c| c.create(&source).size(VOLUME).block().send()).await;
    let id = &made.volume_id;
    fixture.write(id, seed);
    let (snapshot_name, of) = (name("snapshot"), id.clone());
    let snapshot = fixture
        .killed(|client| {
            let (name, of) = (snapshot_name.clone(), of.clone());
            async move { client.snapshot(&name, &of).await }
        })
        .await
        .snapshot_id;
    fixture.write(id, 100 + seed);
    let restored = fixture
        .killed(|c| {
            let create = c.create(&name("restored")).size(VOLUME).block();
            create.from_snapshot(&snapshot).send()
        })
        .await;
    fixture.check(&restored.volume_id, seed, VOLUME);
    let copied = fixture
        .killed(|c| c.create(&name("copied")).size(2 * VOLUME).block().from_volume(id).send())
        .await;
    fixture.check(&copied.volume_id, 100 + seed, 2 * VOLUME);
    fixture.grow(id, 2 * VOLUME).await;
    fixture.check(id, 100 + seed, 2 * VOLUME);
    fixture.delete(id).await;
    fixture.delete(&copied.volume_id).await;
    fixture
        .killed(|client| {
            let snapshot = snapshot.clone();
            async move { client.delete_snapshot(&snapshot).await }
        })
        .await;
    fixture.check(&restored.volume_id, seed, VOLUME);
    fixture.delete(&restored.volume_id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_of_a_killed_controller_can_be_repeated() {
    needs_root!();
    let mut fixture = Fixture::new("killed").await;
    for round in 0..3 {
        live_through(&mut fixture, round).await;
    }
    Orphans::of("killed").until_none().await;
}

/// The cluster takes the killed one for alive for half a minute, with the image open; its successor
/// knows better.
#[tokio::test(flavor = "multi_thread")]
async fn successor_does_not_wait_for_a_killed_controller() {
    needs_root!();
    let ceph = TestCeph::shared();
    let mut controller = ceph.controller("succeeded-c").await;
    let (client, io) = (controller.client(), ceph.io(""));
    let volume = client.create("left open").size(VOLUME).block().done().await.volume_id;
    let users = || {
        let image = io.open_image(&volume, Access::ReadOnly).unwrap();
        image.watchers().unwrap().into_iter().map(|user| user.address).collect::<Vec<_>>()
    };
    let left = loop {
        let grown = client.get_volume(&volume).await.unwrap().volume.unwrap().capacity_bytes;
        let growing = {
            let (client, volume) = (client.clone(), volume.clone());
            let size = u64::try_from(grown).unwrap() + VOLUME;
            tokio::spawn(async move { client.expand(&volume, size).await })
        };
        while users().is_empty() && !growing.is_finished() {}
        controller.kill9();
        let _ = growing.await;
        let left = users();
        if let [address] = left.as_slice() {
            break address.clone();
        }
        // It was done with the image just before.
        controller.restart().await;
    };
    controller.restart().await;
    assert!(ceph.ceph(&["osd", "blocklist", "ls"]).contains(&left));
    client.delete(&volume).await.unwrap();
}

/// No client has to be fenced then, unless it ended in the midst of housekeeping that takes long.
#[tokio::test(flavor = "multi_thread")]
async fn controller_that_stops_cleanly_is_not_blocklisted() {
    needs_root!();
    let ceph = TestCeph::shared();
    ceph.rbd(&["namespace", "create", "rbd/orderly"]);
    let launch = ceph.launch("orderly-c", "controller").env("ORLOP_RBD_NAMESPACE", "orderly");
    let mut controller = launch.start().await;
    let stopped =
        |controller: &Daemon| controller.log().matches("blocklisted the Ceph client").count();
    let mut orderly = false;
    for _ in 0..20 {
        let before = stopped(&controller);
        controller.restart().await;
        orderly = stopped(&controller) == before;
        if orderly {
            break;
        }
    }
    assert!(orderly, "each successor has stopped its predecessor");
    let before = stopped(&controller);
    controller.kill9();
    controller.restart().await;
    assert_eq!(stopped(&controller), before + 1);
}
