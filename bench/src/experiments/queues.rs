//! What stands between a loop device and its file, and which setting would take it away.

use std::path::{Path, PathBuf};

use orlop_sys::loopdev::LoopDevice;
use orlop_tests::{GIB, MIB};

use super::io::{Rounds, in_turns};
use crate::Effort;
use crate::baseline;
use crate::fio::{Engine, JOBS};
use crate::results::{QueueRow, Results};
use crate::testbed::{Drivers, Testbed};

/// One way to the same data.
pub(crate) const WAYS: [&str; 5] = [
    "file",
    "file, by a kernel thread",
    "loop device",
    "loop device, queue of 16",
    "loop device, mq-deadline",
];

pub(crate) async fn run(drivers: &Drivers, effort: Effort, results: &mut Results) {
    let testbed = Testbed::new(drivers).await;
    let size = effort.of(GIB, 64 * MIB);
    let file = testbed.directory("queues").join("file");
    drop(baseline::filled_image(&file, size));
    let devices = [(); 3].map(|()| baseline::attach(&file, size));
    let [plain, short, scheduled] = &devices;
    set_queue(short, "nr_requests", "16");
    set_queue(scheduled, "scheduler", "mq-deadline");

    let rounds = effort.of(Rounds { count: 4, each: 250 }, Rounds { count: 1, each: 200 });
    let [plain, short, scheduled] = [plain, short, scheduled].map(LoopDevice::path);
    let ways: [(&Path, Engine); WAYS.len()] = [
        (&file, Engine::Aio),
        (&file, Engine::ByKernelThread),
        (&plain, Engine::Aio),
        (&short, Engine::Aio),
        (&scheduled, Engine::Aio),
    ];
    for job in JOBS.iter().filter(|job| job.is_random()) {
        let figures = in_turns(
            || testbed.settle(),
            &rounds,
            ways,
            |(target, engine), time| job.run(target, size, time, engine),
        );
        let row = QueueRow { job: job.name, unit: job.unit, figures };
        println!("{}", crate::report::queue_line(&row));
        results.queues.push(row);
    }
    for device in &devices {
        baseline::detach(device);
    }
}

fn set_queue(device: &LoopDevice, setting: &str, value: &str) {
    let name = device.path();
    let name = name.file_name().expect("a device has a name");
    let path = PathBuf::from("/sys/block").join(name).join("queue").join(setting);
    std::fs::write(&path, value).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
