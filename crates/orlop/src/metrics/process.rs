//! The daemon's process, under the names that all Prometheus clients use.

use orlop_sys::process_usage;

use super::family::{Family, Kind};

pub(super) fn families() -> Vec<Family> {
    let usage = process_usage::of_this();
    let gauge = |name, help| Family::new(name, Kind::Gauge, help);
    let mut cpu = Family::new("process_cpu_seconds", Kind::Counter, "CPU time of the daemon");
    let mut resident = gauge("process_resident_memory_bytes", "Resident memory");
    let mut virtual_memory = gauge("process_virtual_memory_bytes", "Virtual memory");
    let mut threads = gauge("process_threads", "Threads");
    let mut started =
        gauge("process_start_time_seconds", "When the daemon was started, as Unix time");
    let mut open = gauge("process_open_fds", "Open file descriptors");
    let mut most = gauge("process_max_fds", "How many file descriptors may be open");
    if let Ok(usage) = usage {
        cpu.add_real(&[], usage.cpu.as_secs_f64());
        resident.add(&[], usage.resident_bytes);
        virtual_memory.add(&[], usage.virtual_bytes);
        threads.add(&[], usage.threads);
        started.add_real(&[], usage.started.as_secs_f64());
        open.add(&[], usage.open_descriptors);
        if let Some(limit) = usage.most_descriptors {
            most.add(&[], limit);
        }
    }
    vec![cpu, resident, virtual_memory, threads, started, open, most]
}
