//! Where two snapshots differ, or where one has data, as a strip of cells. It uses the calls of CSI, so that the limits
//! for streams apply, and a router forwards them to the node that has the snapshots.

use std::time::Duration;

use hyper::StatusCode;
use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::snapshot_metadata_client::SnapshotMetadataClient;
use orlop_csi::self_check;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use tonic::{Status, Streaming};

use super::actions::status_refusal;
use super::query::Query;
use super::{Answered, JSON, Page, Refusal, json, whole};

const CELLS: usize = 128;
/// How many ranges are listed with their offsets.
const MAX_LISTED_RANGES: usize = 50;
/// Counting stops after this many ranges.
const MAX_RANGES: usize = 200_000;
const TIMEOUT: Duration = Duration::from_secs(8);

#[derive(Debug, Serialize, PartialEq, Eq)]
struct Strip {
    /// The size of the volume when the later snapshot was taken; 0 if there are no ranges.
    capacity_bytes: u64,
    /// The length of all ranges together.
    bytes: u64,
    ranges: usize,
    /// How much of each cell is in ranges, in percent, and at least 1 if any of it is. All cells are equal parts of the
    /// volume.
    cells: Vec<u64>,
    /// The first ranges.
    listed_ranges: Vec<ListedRange>,
    /// `false`: counting stopped at `counted_bytes`, after a timeout or too many ranges.
    is_complete: bool,
    counted_bytes: u64,
}

#[derive(Debug, Clone, Copy, Serialize, PartialEq, Eq)]
struct ListedRange {
    offset: u64,
    length: u64,
}

#[derive(Debug, Default)]
struct Counting {
    capacity: u64,
    bytes: u64,
    ranges: usize,
    cells: Vec<u64>,
    listed_ranges: Vec<ListedRange>,
    /// Where the last range ends.
    end: u64,
}

impl Page {
    pub(super) async fn blocks(&self, query: &Query) -> Answered {
        let (base, target) = (query.text("base").to_owned(), query.text("target").to_owned());
        if target.is_empty() {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "target: name a snapshot"));
        }
        let Ok(_permit) = self.comparison_permits.try_acquire() else {
            let why = "other snapshots are being compared; try again";
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why));
        };
        let deadline = Instant::now() + TIMEOUT;
        let timed_out = |_| {
            let why = "the daemon has not answered in time; its pool may be busy or hang";
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, why)
        };
        let channel =
            timeout_at(deadline, self_check::connect(&self.csi)).await.map_err(timed_out)?;
        let channel = channel
            .map_err(|error| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
        let mut client = SnapshotMetadataClient::new(channel);
        let counted = match base.is_empty() {
            true => {
                let request =
                    v1::GetMetadataAllocatedRequest { snapshot_id: target, ..Default::default() };
                let stream = client.get_metadata_allocated(request);
                let stream = timeout_at(deadline, stream).await.map_err(timed_out)?;
                let page = |it: v1::GetMetadataAllocatedResponse| {
                    (it.volume_capacity_bytes, it.block_metadata)
                };
                counted(stream.map_err(|it| status_refusal(&it))?.into_inner(), deadline, page)
                    .await
            }
            false => {
                let request = v1::GetMetadataDeltaRequest {
                    base_snapshot_id: base,
                    target_snapshot_id: target,
                    ..Default::default()
                };
                let stream = timeout_at(deadline, client.get_metadata_delta(request)).await;
                let stream = stream.map_err(timed_out)?.map_err(|it| status_refusal(&it))?;
                let page = |it: v1::GetMetadataDeltaResponse| {
                    (it.volume_capacity_bytes, it.block_metadata)
                };
                counted(stream.into_inner(), deadline, page).await
            }
        };
        let strip = counted.map_err(|status| status_refusal(&status))?;
        Ok(whole(JSON, json(&strip)?))
    }
}

/// Counts until the stream ends, or until a limit is reached.
async fn counted<M>(
    mut stream: Streaming<M>,
    deadline: Instant,
    page: impl Fn(M) -> (i64, Vec<v1::BlockMetadata>),
) -> Result<Strip, Status> {
    let mut counting = Counting::default();
    let is_complete = loop {
        match timeout_at(deadline, stream.message()).await {
            Err(_) => break false,
            Ok(message) => match message? {
                None => break true,
                Some(message) => {
                    let (capacity, ranges) = page(message);
                    counting.add_page(capacity, &ranges);
                }
            },
        }
        if counting.ranges >= MAX_RANGES {
            break false;
        }
    };
    Ok(counting.finished(is_complete))
}

impl Counting {
    fn add_page(&mut self, capacity: i64, ranges: &[v1::BlockMetadata]) {
        if self.cells.is_empty() {
            self.capacity = u64::try_from(capacity).unwrap_or(0);
            self.cells = vec![0; CELLS];
        }
        for range in ranges {
            let offset = u64::try_from(range.byte_offset).unwrap_or(0);
            self.add(offset, u64::try_from(range.size_bytes).unwrap_or(0));
        }
    }

    fn add(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length);
        // A range that is longer than a message arrives in several parts.
        if self.ranges > 0 && self.end == offset {
            let is_listed = self.ranges == self.listed_ranges.len();
            if let Some(last) = self.listed_ranges.last_mut().filter(|_| is_listed) {
                last.length = last.length.saturating_add(length);
            }
        } else {
            self.ranges += 1;
            if self.listed_ranges.len() < MAX_LISTED_RANGES {
                self.listed_ranges.push(ListedRange { offset, length });
            }
        }
        self.bytes = self.bytes.saturating_add(length);
        self.end = end;
        for cell in self.cell_of(offset)..=self.cell_of(end).saturating_add(1) {
            let (from, to) = (self.edge(cell), self.edge(cell + 1));
            let covered = end.min(to).saturating_sub(offset.max(from));
            if let Some(sum) = self.cells.get_mut(cell) {
                *sum = sum.saturating_add(covered);
            }
        }
    }

    fn edge(&self, cell: usize) -> u64 {
        let at = u128::from(self.capacity) * wide(cell) / wide(CELLS);
        u64::try_from(at).unwrap_or(u64::MAX)
    }

    /// The cell of an offset, or the cell before it, because edges are rounded.
    fn cell_of(&self, offset: u64) -> usize {
        let cell = u128::from(offset) * wide(CELLS) / u128::from(self.capacity.max(1));
        usize::try_from(cell).unwrap_or(CELLS).min(CELLS)
    }

    fn finished(self, is_complete: bool) -> Strip {
        let percent = |(cell, covered): (usize, &u64)| {
            let size = self.edge(cell + 1).saturating_sub(self.edge(cell)).max(1);
            match *covered {
                0 => 0,
                covered => (covered.saturating_mul(100) / size).clamp(1, 100),
            }
        };
        Strip {
            cells: self.cells.iter().enumerate().map(percent).collect(),
            capacity_bytes: self.capacity,
            bytes: self.bytes,
            ranges: self.ranges,
            counted_bytes: if is_complete { self.capacity } else { self.end },
            listed_ranges: self.listed_ranges,
            is_complete,
        }
    }
}

fn wide(count: usize) -> u128 {
    u128::try_from(count).unwrap_or(u128::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use orlop_csi::{Executor, Mode};
    use tokio::net::UnixListener;

    use super::*;
    use crate::metrics::About;
    use crate::page::MAX_COMPARISONS;

    /// Of a daemon that takes connections on this socket, and answers nothing.
    fn page(csi: std::path::PathBuf) -> Arc<Page> {
        let about = About {
            version: String::new(),
            driver: String::new(),
            mode: "all",
            node: String::new(),
            volumes: false,
        };
        Arc::new(Page::new(about, Mode::All, (Arc::new(Executor::starting()), None), csi, None))
    }

    #[tokio::test]
    async fn comparisons_leave_streams_to_others() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("csi.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let page = page(socket);
        let (mut comparing, mut streams) = (Vec::new(), Vec::new());
        for _ in 0..MAX_COMPARISONS {
            let page = Arc::clone(&page);
            comparing.push(tokio::spawn(async move {
                page.blocks(&Query::parse("target=s")).await.map(drop)
            }));
            streams.push(listener.accept().await.unwrap());
        }
        let one_more = page.blocks(&Query::parse("target=s")).await.unwrap_err();
        assert_eq!(one_more.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(one_more.why.contains("other snapshots"), "{}", one_more.why);
        // A browser that hangs up gives its place back.
        let given_up = comparing.remove(0);
        given_up.abort();
        assert!(given_up.await.unwrap_err().is_cancelled());
        let page = Arc::clone(&page);
        let next =
            tokio::spawn(async move { page.blocks(&Query::parse("target=s")).await.map(drop) });
        listener.accept().await.unwrap();
        comparing.push(next);
        comparing.iter().for_each(tokio::task::JoinHandle::abort);
    }

    fn strip(capacity: i64, pages: &[&[(i64, i64)]]) -> Strip {
        let mut counting = Counting::default();
        for page in pages {
            let ranges: Vec<_> = page
                .iter()
                .map(|(byte_offset, size_bytes)| v1::BlockMetadata {
                    byte_offset: *byte_offset,
                    size_bytes: *size_bytes,
                })
                .collect();
            counting.add_page(capacity, &ranges);
        }
        counting.finished(true)
    }

    #[test]
    fn every_byte_is_in_its_cell_and_no_change_is_lost() {
        let found = strip(12_800, &[&[(0, 100), (150, 50)], &[(200, 50), (12_799, 1)]]);
        assert_eq!(found.cells.len(), CELLS);
        assert_eq!(found.cells[..4], [100, 50, 50, 0]);
        assert_eq!(found.cells[127], 1);
        assert_eq!((found.bytes, found.ranges), (201, 3));
        let middle = ListedRange { offset: 150, length: 100 };
        assert_eq!(found.listed_ranges[1], middle, "one range, though it arrived in two parts");
    }

    #[test]
    fn sizes_that_do_not_divide_are_counted_whole() {
        for capacity in [1, 7, 127, 129, 1_000_003, i64::MAX] {
            let found = strip(capacity, &[&[(0, capacity)]]);
            let size = u64::try_from(capacity).unwrap();
            assert_eq!((found.bytes, found.ranges), (size, 1), "{capacity}");
            let edges = Counting { capacity: size, ..Counting::default() };
            let has_room = |cell: usize| edges.edge(cell + 1) > edges.edge(cell);
            for (cell, percent) in found.cells.iter().enumerate() {
                assert_eq!(*percent, if has_room(cell) { 100 } else { 0 }, "{capacity}: {cell}");
            }
        }
    }

    #[test]
    fn listed_ranges_are_bounded_and_the_rest_is_counted() {
        let ranges: Vec<(i64, i64)> = (0..1000).map(|number| (number * 8192, 4096)).collect();
        let found = strip(1000 * 8192, &[&ranges]);
        assert_eq!((found.ranges, found.listed_ranges.len()), (1000, MAX_LISTED_RANGES));
        assert_eq!(found.bytes, 1000 * 4096);
        assert_eq!(strip(0, &[]).cells, [] as [u64; 0]);
    }
}
