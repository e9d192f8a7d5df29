//! What calls cost with few and with many volumes.

use std::time::Instant;

use orlop_tests::{Client, Daemon, GIB, LvmSize, MIB, TestLvm, block, v1};

use super::accounting::Accounting;
use super::{text, verdict};
use crate::Effort;
use crate::results::grouped;
use crate::series::Series;

const SIZE: u64 = 16 * MIB;
/// Takes all volumes, without overcommit. On a sparse file, to which nothing is written.
const THIN_POOL: LvmSize = LvmSize { thin: 12 * GIB, free: GIB };
const NAMES: [&str; 7] =
    ["create", "stage", "publish", "list, ten volumes", "unpublish", "unstage", "delete"];
const CALLERS: u64 = 4;
const PAGE: i32 = 10;
const LVM: &str = "lvm";

pub(super) struct Calls {
    pub(super) few: String,
    pub(super) many: String,
    pub(super) rows: Vec<Row>,
}

pub(super) struct Row {
    call: &'static str,
    few: Times,
    many: Times,
}

/// Of the same calls.
#[derive(Default)]
struct Times {
    whole: Series,
    /// Without the commands of LVM.
    rest: Series,
}

impl Times {
    fn add(&mut self, whole: f64, of_lvm: f64) {
        self.whole.push(whole);
        // A command that began before the call may end in it.
        self.rest.push((whole - of_lvm).max(0.0));
    }

    fn share_of_lvm(&self) -> f64 {
        100.0 * (1.0 - self.rest.total() / self.whole.total())
    }
}

impl Row {
    pub(super) fn line(&self) -> String {
        let [whole, rest] =
            [self.many.whole.ratio_to(&self.few.whole), self.many.rest.ratio_to(&self.few.rest)];
        format!(
            "| {} | {:.0} % | {:.0} % | {} | {} | {} |",
            self.call,
            self.few.share_of_lvm(),
            self.many.share_of_lvm(),
            text(&whole),
            text(&rest),
            verdict(rest.value <= 1.5)
        )
    }
}

/// A volume group with so many volumes.
struct Site {
    daemon: Daemon,
    client: Client,
    _group: TestLvm,
}

impl Site {
    async fn new(volumes: u64) -> Self {
        let group = TestLvm::in_memory(THIN_POOL);
        let daemon = group.launch().env("ORLOP_LOG", "warn").start().await;
        let client = daemon.client();
        let mut callers = tokio::task::JoinSet::new();
        for caller in 0..CALLERS {
            let client = client.clone();
            callers.spawn(async move {
                for number in (caller..volumes).step_by(usize::try_from(CALLERS).expect("few")) {
                    client.create(&format!("volume-{number}")).size(SIZE).block().done().await;
                }
            });
        }
        callers.join_all().await;
        println!("{volumes} volumes are there");
        Self { daemon, client, _group: group }
    }

    /// One of each call, in the order of their names; the volume is gone afterwards.
    async fn round(&self, number: usize, clock: &mut Accounting, times: &mut [Times; NAMES.len()]) {
        let [create, stage, publish, list, unpublish, unstage, delete] = times;
        let call = self.client.create(&format!("one-{number}")).size(SIZE).block().done();
        let volume = self.timed(clock, create, call).await;
        let node = self.client.on_node(&volume, block());
        self.timed(clock, stage, node.stage()).await.expect("stage");
        self.timed(clock, publish, node.publish()).await.expect("publish");
        self.timed(clock, list, async {
            let request = v1::ListVolumesRequest { max_entries: PAGE, ..Default::default() };
            let page = self.client.controller().list_volumes(request).await.expect("a page");
            assert!(!page.into_inner().entries.is_empty(), "an empty page");
        })
        .await;
        self.timed(clock, unpublish, node.unpublish()).await.expect("unpublish");
        self.timed(clock, unstage, node.unstage()).await.expect("unstage");
        self.timed(clock, delete, self.client.delete(&volume.volume_id)).await.expect("delete");
    }

    async fn timed<T>(
        &self,
        clock: &mut Accounting,
        times: &mut Times,
        call: impl Future<Output = T>,
    ) -> T {
        let parent = self.daemon.pid();
        clock.take(parent, LVM);
        let began = Instant::now();
        let answer = call.await;
        let took = began.elapsed().as_secs_f64();
        times.add(took, clock.take(parent, LVM));
        answer
    }
}

pub(super) async fn measure(effort: Effort) -> Calls {
    let levels = effort.of([10, 500], [5, 20]);
    let sites = [Site::new(levels[0]).await, Site::new(levels[1]).await];
    let scratch = orlop_tests::Scratch::new();
    let mut clock = Accounting::to(&scratch.join("accounting"));
    let mut times: [[Times; NAMES.len()]; 2] = Default::default();
    for number in 0..effort.of(12, 3) {
        for turn in 0..2 {
            let which = (number + turn) % 2;
            sites[which].round(number, &mut clock, &mut times[which]).await;
        }
    }
    let [few, many] = times;
    let pairs = few.into_iter().zip(many).zip(NAMES);
    let rows = pairs.map(|((few, many), call)| Row { call, few, many }).collect();
    let [few, many] = levels.map(grouped);
    Calls { few, many, rows }
}
