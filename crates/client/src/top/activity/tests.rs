use super::*;

fn counters(reads: u64, writes: u64) -> VolumeIo {
    VolumeIo {
        volume_id: "v-1".to_owned(),
        name: "data".to_owned(),
        reads,
        writes,
        bytes_read: reads * 4096,
        bytes_written: writes * 8192,
        read_nanoseconds: reads * 250_000,
        write_nanoseconds: writes * 12_340_000,
        busy_nanoseconds: (reads + writes) * 1_000_000,
        in_flight: 3,
        ..Default::default()
    }
}

fn named(name: &str, reads: u64, writes: u64) -> Activity {
    let now = VolumeIo { name: name.to_owned(), ..counters(reads, writes) };
    Activity::between(&counters(0, 0), &now, Duration::from_secs(1))
}

#[test]
fn rates_are_by_the_second_and_latency_by_the_operation() {
    let limited = VolumeIo {
        limits: BTreeMap::from([
            ("writeBytesPerSecond".to_owned(), 50 << 20),
            ("readIops".to_owned(), 500),
        ]),
        ..counters(1100, 260)
    };
    let found = Activity::between(&counters(100, 60), &limited, Duration::from_secs(2));
    assert_eq!(
        found.cells(),
        [
            "data",
            "",
            "500",
            "100",
            "1.9 MiB/s",
            "800.0 KiB/s",
            "250 µs",
            "12.3 ms",
            "3",
            "60 %",
            "500 reads/s, write 50.0 MiB/s"
        ]
    );
}

#[test]
fn an_idle_volume_has_no_latency() {
    let found = Activity::between(&counters(5, 5), &counters(5, 5), Duration::from_secs(1));
    assert_eq!(found.iops(), 0);
    assert_eq!(found.read_latency_microseconds, None);
    assert_eq!(found.busy_percent, 0);
}

#[test]
fn a_device_that_was_attached_again_shows_no_nonsense() {
    let found = Activity::between(&counters(1000, 1000), &counters(3, 3), Duration::from_secs(1));
    assert_eq!((found.iops(), found.bytes_per_second(), found.busy_percent), (0, 0, 0));
    // An interval without any length, as of a clock that stands.
    assert!(Activity::between(&counters(0, 0), &counters(1, 1), Duration::ZERO).iops() > 0);
}

#[test]
fn each_key_puts_the_most_first() {
    let mut all = vec![named("idle", 0, 0), named("reader", 90, 1), named("writer", 5, 60)];
    for (key, first) in [
        (SortKey::Name, "idle"),
        (SortKey::Iops, "reader"),
        (SortKey::Reads, "reader"),
        (SortKey::Writes, "writer"),
        (SortKey::Throughput, "writer"),
        (SortKey::ReadRate, "reader"),
        (SortKey::WriteRate, "writer"),
        (SortKey::Latency, "reader"),
        (SortKey::Busy, "reader"),
    ] {
        sort(&mut all, key);
        assert_eq!(all.first().map(Activity::name), Some(first), "{key:?}");
    }
}

#[test]
fn latency_is_readable_at_every_size() {
    for (microseconds, text) in [
        (0, "0 µs"),
        (999, "999 µs"),
        (1000, "1.0 ms"),
        (999_999, "999.9 ms"),
        (2_500_000, "2.5 s"),
    ] {
        assert_eq!(latency(microseconds), text);
    }
}
