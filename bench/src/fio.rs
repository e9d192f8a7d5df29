//! fio, and the one figure of its report that is wanted.

use std::path::Path;
use std::time::Duration;

use orlop_sys::tool;
use serde_json::Value;

use crate::results::Unit;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    /// As fio calls it.
    pub(crate) pattern: &'static str,
    pub(crate) block: &'static str,
    pub(crate) depth: u32,
    pub(crate) unit: Unit,
}

pub(crate) const JOBS: [Job; 6] = [
    Job::random("4 KiB random read, depth 1", "randread", 1),
    Job::random("4 KiB random read, depth 32", "randread", 32),
    Job::random("4 KiB random write, depth 1", "randwrite", 1),
    Job::random("4 KiB random write, depth 32", "randwrite", 32),
    Job::sequential("1 MiB sequential read", "read"),
    Job::sequential("1 MiB sequential write", "write"),
];

#[derive(Debug, Clone, Copy)]
pub(crate) enum Engine {
    Aio,
    /// Each operation is handed to a thread of the kernel, as a loop device does it.
    ByKernelThread,
}

impl Engine {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Aio => &["--ioengine=libaio"],
            Self::ByKernelThread => &["--ioengine=io_uring", "--force_async=1"],
        }
    }
}

impl Job {
    pub(crate) fn is_random(&self) -> bool {
        self.pattern.starts_with("rand")
    }

    const fn random(name: &'static str, pattern: &'static str, depth: u32) -> Self {
        Self { name, pattern, block: "4k", depth, unit: Unit::Rate }
    }

    const fn sequential(name: &'static str, pattern: &'static str) -> Self {
        Self { name, pattern, block: "1m", depth: 8, unit: Unit::Throughput }
    }

    fn arguments(&self, target: &Path, bytes: u64, duration: Duration) -> Vec<String> {
        vec![
            "--name=bench".to_owned(),
            format!("--filename={}", target.display()),
            format!("--rw={}", self.pattern),
            format!("--bs={}", self.block),
            format!("--iodepth={}", self.depth),
            format!("--size={bytes}"),
            format!("--runtime={}ms", duration.as_millis()),
            "--time_based".to_owned(),
            "--direct=1".to_owned(),
            "--randrepeat=0".to_owned(),
            "--output-format=json".to_owned(),
        ]
    }

    /// Operations or bytes a second.
    pub(crate) fn run(&self, target: &Path, bytes: u64, duration: Duration, engine: Engine) -> f64 {
        let mut arguments = self.arguments(target, bytes, duration);
        arguments.extend(engine.arguments().iter().map(|&argument| argument.to_owned()));
        let output = tool::run("fio", arguments).expect("run fio");
        let report: Value = serde_json::from_slice(&output.stdout).expect("a report in JSON");
        let direction = if self.pattern.ends_with("read") { "read" } else { "write" };
        let figures = &report["jobs"][0][direction];
        let figure = match self.unit {
            Unit::Throughput => &figures["bw_bytes"],
            Unit::Rate | Unit::Time | Unit::Bytes => &figures["iops"],
        };
        figure.as_f64().unwrap_or_else(|| panic!("no figure in {report}"))
    }
}
