//! Volumes on LVM, beside LVM alone. For the guest of tests/guest: on one emulated processor only ratios mean anything.

mod accounting;
mod calls;
mod io;

use crate::Effort;
use crate::series::Ratio;

/// Where the section begins in what this prints, and in the report.
pub(crate) const TITLE: &str = "## LVM, in the guest";

pub(crate) async fn run(effort: Effort) {
    assert!(orlop_tests::device_mapper(), "this kernel has no device-mapper; run bench/lvm");
    let (plain, encrypted) = io::measure(effort).await;
    let calls = calls::measure(effort).await;
    let system = rustix::system::uname();
    println!(
        "{TITLE}\n\n\
         Written by `make bench-lvm`, which runs in the virtual machine of `make guest`, Linux {} on one processor that \
         QEMU emulates. Times there say nothing about real machines, so this has ratios alone, of what was measured in \
         turns, with the interval that holds 95 % of what resampling gives. More than 1 means that Orlop is faster, but \
         for calls that it is slower.\n\n\
         ### I/O through a published volume\n\n\
         A raw block volume in a thin pool, beside two logical volumes in the same thin pool that LVM alone made; and an \
         encrypted one, beside two devices of dm-crypt with the same cipher on such logical volumes. All are written \
         full beforehand, and used with O_DIRECT.\n",
        system.release().to_string_lossy()
    );
    println!(
        "| job | against LVM alone | two of LVM alone | target 0.97 | encrypted, against dm-crypt alone | two of dm-crypt alone | target 0.97 |"
    );
    println!("|---|--:|--:|---|--:|--:|---|");
    for (row, encrypted) in plain.iter().zip(&encrypted) {
        println!("| {} | {} | {} |", row.job, row.cells(), encrypted.cells());
    }
    println!(
        "\n### Calls with many volumes\n\n\
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
