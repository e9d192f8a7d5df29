//! I/O of volumes that are staged here, only if the settings allow: each has a label of its own, with the
//! name that the orchestrator gave it.

use orlop_engine::{Engine, VolumeIo};
use orlop_model::id::shown;

use super::family::{Family, Kind};

/// As many as a node is meant to have.
const MAX_VOLUMES: usize = 1000;

/// `None`: not allowed, or not known yet.
pub(super) fn families(engine: Option<&Engine>) -> Vec<Family> {
    let (volumes, left_out) = match engine.map(|engine| engine.volume_io(MAX_VOLUMES)) {
        Some(Ok(found)) => (found.volumes, found.left_out),
        Some(Err(error)) => {
            tracing::debug!(%error, "cannot list the volumes that are staged here");
            (Vec::new(), 0)
        }
        None => (Vec::new(), 0),
    };
    let counter = |name, help| Family::new(name, Kind::Counter, help);
    let mut read = counter("orlop_volume_read_bytes", "Bytes read from the volume's device");
    let mut written = counter("orlop_volume_written_bytes", "Bytes written to the volume's device");
    let mut reads = counter("orlop_volume_reads", "Reads that the device has finished");
    let mut writes = counter("orlop_volume_writes", "Writes that the device has finished");
    let mut read_time = counter("orlop_volume_read_seconds", "Time that all reads took together");
    let mut write_time =
        counter("orlop_volume_write_seconds", "Time that all writes took together");
    let mut busy = counter("orlop_volume_io_seconds", "Time in which any I/O was in flight");
    let mut in_flight = Family::new("orlop_volume_io_in_flight", Kind::Gauge, "I/O in flight");
    for VolumeIo { id, name, pool, io, .. } in &volumes {
        let (id, name) = (id.to_string(), shown(name.as_str()));
        let labels = [("pool", pool.as_str()), ("volume", &id), ("name", &name)];
        read.add(&labels, io.bytes_read);
        written.add(&labels, io.bytes_written);
        reads.add(&labels, io.reads);
        writes.add(&labels, io.writes);
        read_time.add_real(&labels, io.read_time.as_secs_f64());
        write_time.add_real(&labels, io.write_time.as_secs_f64());
        busy.add_real(&labels, io.busy_time.as_secs_f64());
        in_flight.add(&labels, io.in_flight);
    }
    let mut not_shown = Family::new(
        "orlop_volumes_not_shown",
        Kind::Gauge,
        "Volumes staged here beyond those whose I/O is shown",
    );
    not_shown.add_count(&[], left_out);
    vec![read, written, reads, writes, read_time, write_time, busy, in_flight, not_shown]
}
