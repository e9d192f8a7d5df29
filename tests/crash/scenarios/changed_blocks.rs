//! Changed blocks of thin volumes: to read them, the metadata of the thin pool is reserved and released again. On other pools
//! these calls have no effect (`read_only_calls.rs`).

use orlop_tests::{Answer, MIB, OnNode, Pattern, block, v1, write_direct};

use crate::each_crash_point::{Scenario, ScenarioRunner};
use crate::fixture::Fixture;

const FIRST: Pattern = Pattern::new(11);
const SECOND: Pattern = Pattern::new(12);
/// In whole chunks of the thin pool.
const LENGTH: u64 = 128 << 10;
const SECOND_AT: u64 = 4 * MIB;

pub(crate) async fn all(runner: &mut impl ScenarioRunner) {
    runner.run(&Read { since_the_first: false }).await;
    runner.run(&Read { since_the_first: true }).await;
}

struct Read {
    /// What has changed since the first snapshot, or all that the second one holds.
    since_the_first: bool,
}

struct Snapshots {
    volume: OnNode,
    first: String,
    second: String,
}

/// Offsets and lengths.
async fn ranges(read: &Read, fixture: &Fixture, of: &Snapshots) -> Answer<Vec<(i64, i64)>> {
    let mut client = fixture.client().snapshot_metadata();
    let mut found = Vec::new();
    let pair = |range: v1::BlockMetadata| (range.byte_offset, range.size_bytes);
    if read.since_the_first {
        let request = v1::GetMetadataDeltaRequest {
            base_snapshot_id: of.first.clone(),
            target_snapshot_id: of.second.clone(),
            ..Default::default()
        };
        let mut stream = client.get_metadata_delta(request).await?.into_inner();
        while let Some(page) = stream.message().await? {
            found.extend(page.block_metadata.into_iter().map(pair));
        }
    } else {
        let request = v1::GetMetadataAllocatedRequest {
            snapshot_id: of.second.clone(),
            ..Default::default()
        };
        let mut stream = client.get_metadata_allocated(request).await?.into_inner();
        while let Some(page) = stream.message().await? {
            found.extend(page.block_metadata.into_iter().map(pair));
        }
    }
    Ok(found)
}

impl Scenario for Read {
    type State = Snapshots;

    fn name(&self) -> &'static str {
        if self.since_the_first { "metadata-delta" } else { "metadata-allocated" }
    }

    fn rpc(&self) -> &'static str {
        match self.since_the_first {
            true => "csi.v1.SnapshotMetadata/GetMetadataDelta",
            false => "csi.v1.SnapshotMetadata/GetMetadataAllocated",
        }
    }

    async fn prepare(&self, fixture: &Fixture, tag: &str) -> Snapshots {
        let client = fixture.client();
        let volume = client.create(tag).size(32 * MIB).block().done().await;
        let volume = client.on_node(&volume, block());
        volume.up().await;
        FIRST.write(&volume.target, LENGTH);
        let first = client.snapshot(&format!("{tag}-first"), &volume.id).await;
        let length = usize::try_from(LENGTH).expect("a small number");
        let second = SECOND.bytes(0, length);
        write_direct(&volume.target, SECOND_AT, &second).expect("write");
        let second = client.snapshot(&format!("{tag}-second"), &volume.id).await;
        volume.down().await;
        let [first, second] =
            [first, second].map(|snapshot| snapshot.expect("a snapshot").snapshot_id);
        Snapshots { volume, first, second }
    }

    async fn call(&self, fixture: &Fixture, state: &Snapshots) -> Answer<()> {
        ranges(self, fixture, state).await.map(drop)
    }

    async fn holds(&self, fixture: &Fixture, state: &Snapshots) {
        let [length, second_at] = [LENGTH, SECOND_AT].map(orlop_tests::int);
        let mut expected = vec![(0, length), (second_at, length)];
        if self.since_the_first {
            expected.remove(0);
        }
        assert_eq!(ranges(self, fixture, state).await.expect("ranges"), expected);
    }

    /// Nothing is left that would fill the metadata.
    async fn roll_back(&self, fixture: &Fixture, _: &Snapshots) {
        assert!(!fixture.pool.has_reserved_metadata(), "the metadata is still reserved");
    }

    async fn clear(&self, fixture: &Fixture, state: Snapshots) {
        let client = fixture.client();
        for snapshot in [&state.first, &state.second] {
            client.delete_snapshot(snapshot).await.expect("delete a snapshot");
        }
        client.delete(&state.volume.id).await.expect("delete");
    }
}
