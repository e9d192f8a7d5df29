//! Paths of a certain length, and where a volume is to be found on the node.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tonic::Code;

use super::local::point_of;
use super::{Placed, Trial};
use crate::capability::is_block;
use crate::check::Outcome;
use crate::wire::csi::v1::NodeGetVolumeStatsRequest;
use crate::wire::csi::v1::node_service_capability::rpc::Type::GetVolumeStats;

/// Every plugin has to take a path of this many bytes.
const LONG_PATH: usize = 128;

const MOUNT_TABLE: &str = "/proc/self/mountinfo";

impl Trial {
    /// As [`Trial::staging_path`], of 128 bytes or a little more.
    pub fn long_staging_path(&self) -> Outcome<String> {
        let path = lengthened(self.options().staging_dir.join(self.name("stage")));
        self.made_directory(&path)?;
        self.text_of(&path)
    }

    /// As [`Trial::target_path`], of 128 bytes or a little more.
    pub fn long_target_path(&self) -> Outcome<String> {
        let parent = self.options().target_dir.join(self.name("target"));
        self.made_directory(&parent)?;
        self.text_of(&lengthened(parent.join("volume")))
    }

    /// How many mounts there are at this path and below.
    pub fn mounts_below(&self, path: &Path) -> Outcome<usize> {
        let lines = self.mount_table()?;
        let points = lines.iter().filter_map(|line| point_of(line));
        Ok(points.filter(|point| point.starts_with(path)).count())
    }

    /// Numbers (`7:3`) of the devices that are mounted at this path and below; `/` for all.
    pub fn devices_below(&self, path: &Path) -> Outcome<BTreeSet<String>> {
        let lines = self.mount_table()?;
        let there = lines.iter().filter(|it| point_of(it).is_some_and(|at| at.starts_with(path)));
        Ok(there.filter_map(|line| number_of(line)).collect())
    }

    fn mount_table(&self) -> Outcome<Vec<String>> {
        let table = Path::new(MOUNT_TABLE);
        let text = self.could(fs::read_to_string(table), "read", table)?;
        Ok(text.lines().map(str::to_owned).collect())
    }

    pub fn stats(&self, placed: &Placed, volume_path: &str) -> NodeGetVolumeStatsRequest {
        NodeGetVolumeStatsRequest {
            volume_id: placed.volume.volume_id.clone(),
            volume_path: volume_path.to_owned(),
            staging_target_path: placed.staging.clone(),
        }
    }

    /// Is the volume published at its target? By looking, or else by asking the plugin.
    pub async fn is_published(&self, placed: &Placed) -> Outcome<bool> {
        let target = placed.target_path();
        if self.options().local_files {
            return if is_block(&placed.capability) {
                Ok(self.is_block_device(&target))
            } else {
                self.is_mounted(&target)
            };
        }
        if !self.offers().has_node(GetVolumeStats) {
            return self.not_applicable("what is at a path cannot be seen from here");
        }
        match self.settled(self.stats(placed, &placed.target)).await? {
            Ok(_) => Ok(true),
            Err(status) if status.code() == Code::NotFound => Ok(false),
            Err(_) => Err(self.failed("OK or NOT_FOUND")),
        }
    }
}

fn lengthened(path: PathBuf) -> PathBuf {
    let missing = LONG_PATH.saturating_sub(path.as_os_str().len());
    let mut text = path.into_os_string();
    text.push("x".repeat(missing));
    text.into()
}

fn number_of(line: &str) -> Option<String> {
    line.split(' ').nth(2).map(str::to_owned)
}
