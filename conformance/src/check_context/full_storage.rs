//! Storage without any room.

use tonic::Code;

use super::CheckContext;
use crate::check::Outcome;
use crate::wire::Rpc;
use crate::wire::csi::v1::{CreateVolumeRequest, Volume};

/// What is asked for first, and what is too little to go on asking.
const MOST: i64 = 1 << 40;
const LEAST: i64 = 1 << 20;
const CUTS: u8 = 4;
/// Between cuts; more than `LEAST`.
const WRITTEN: usize = 4 << 20;

impl CheckContext {
    /// A request for a volume that takes all of its space.
    pub fn new_filling_volume(&self, size: i64) -> CreateVolumeRequest {
        let mut request = self.new_volume_for(self.quick_capability());
        request.parameters.extend(self.options().filling_parameters.clone());
        request.capacity_range = self.range(size, 0);
        request
    }

    /// Makes volumes, ever smaller ones, until not even a small one fits.
    pub async fn fill_storage(&self) -> Outcome {
        let mut size = MOST;
        while size >= LEAST {
            match self.settled(self.new_filling_volume(size)).await? {
                Ok(_) => {}
                Err(status) if is_full(status.code()) => size /= 2,
                Err(_) => return Err(self.failed("OK, RESOURCE_EXHAUSTED or OUT_OF_RANGE")),
            }
        }
        Ok(())
    }

    /// What follows when a cut is repeated on full storage: each one is of other data, so that
    /// no storage can do without space for long.
    pub async fn cut_until_full<R: Rpc>(&self, cut: impl Fn(&Volume) -> R) -> Outcome {
        let volume = self.create(self.new_filling_volume(self.size())).await?;
        let placed = self.placed_if_local(&volume).await?;
        self.fill_storage().await?;
        for byte in 0..CUTS {
            match self.settled(cut(&volume)).await? {
                Ok(_) => {}
                Err(status) => {
                    let fits = status.code() == Code::ResourceExhausted;
                    return self.expect(fits, "OK, or RESOURCE_EXHAUSTED if there is no space");
                }
            }
            let Some(placed) = &placed else { break };
            // It may not succeed: the storage is full, which is what it is for.
            self.put(placed, &vec![byte; WRITTEN]).ok();
        }
        self.not_applicable("where no volume fits, a snapshot still does")
    }
}

fn is_full(code: Code) -> bool {
    code == Code::ResourceExhausted || code == Code::OutOfRange
}
