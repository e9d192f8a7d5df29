//! Volumes on LVM, beside LVM alone. For the guest of tests/guest: on one emulated processor only ratios mean anything.

mod accounting;
mod calls;
mod io;

use std::time::Instant;

use crate::Effort;
use crate::series::Ratio;

/// Where the section begins in what this prints, and in the report.
pub(crate) const TITLE: &str = "## LVM, in the guest";

pub(crate) async fn run(effort: Effort) {
    assert!(orlop_tests::device_mapper(), "this kernel has no device-mapper; run bench/lvm");
    let began = Instant::now();
    let io = io::measure(effort).await;
    let calls = calls::measure(effort).await;
    let system = rustix::system::uname();
    let machine = std::env::var("ORLOP_BENCH_MACHINE").expect("run bench/lvm, which says where");
    println!(
        "{TITLE}\n\n\
         Written by `make bench-lvm`, which runs in the virtual machine of `make guest`: Linux {} on one processor; \
         {machine}. Times in an emulated machine say nothing about real ones, so this has ratios alone, of what was \
         measured in turns, with the interval that holds 95 % of what resampling gives. The processor does all the work \
         there and the disk is memory, so that each instruction of the kernel counts many times more than on a machine \
         with disks. More than 1 means that Orlop is faster, but for calls that it is slower. All of it took {} minutes.\n\n\
         ### I/O through a published volume\n\n\
         A raw block volume in a thin pool, beside two logical volumes in the same thin pool that LVM alone made; and an \
         encrypted one, beside two devices of dm-crypt with the same cipher and options on such logical volumes. All are \
         written full beforehand, and used with O_DIRECT, one operation after the other. Below a workload's volume is a \
         linear device that LVM alone would not make ([decision 0064](../decisions/0064-devices-on-logical-volumes.md)); \
         what one costs by itself is shown by another such device on a logical volume, made by dmsetup. The last table is of a \
         volume group on a disk that takes {} ms for each operation (dm-delay): there, as on real disks, the processor \
         waits for the disk.\n",
        system.release().to_string_lossy(),
        began.elapsed().as_secs() / 60,
        io::DELAY
    );
    let tables =
        [("LVM", &io.plain), ("dm-crypt", &io.encrypted), ("LVM on a slow disk", &io.slow)];
    for (title, rows) in tables {
        println!(
            "| job | volume, against {title} alone | two of {title} alone | {title} alone with a linear device | target 0.97 |"
        );
        println!("|---|--:|--:|--:|---|");
        for row in rows {
            println!("| {} | {} |", row.job, row.cells());
        }
        println!();
    }
    println!(
        "### Calls with many volumes\n\n\
         The same calls with {} volumes and with {} in a thin pool, in turns. What each command of LVM took is known from \
         the kernel's process accounting; the rest is everything else, in the daemon and in the kernel. LVM reads and \
         writes the records of all volumes of a volume group with each change.\n",
        calls.few, calls.many
    );
    println!(
        "| call | share of LVM, few | share of LVM, many | all of it, many against few | without LVM's own work | target 1.5 |"
    );
    println!("|---|--:|--:|--:|--:|---|");
    for row in &calls.rows {
        println!("{}", row.line());
    }
}

fn text(ratio: &Ratio) -> String {
    format!("{:.2}x ({:.2} to {:.2})", ratio.value, ratio.low, ratio.high)
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**missed**" }
}
