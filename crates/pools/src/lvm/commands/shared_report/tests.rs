use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use orlop_model::Error;

use super::*;
use crate::lvm::report::sample_report;

const HOUR: Duration = Duration::from_secs(3600);

/// Reports that tell by their revision how many were read before.
#[derive(Default)]
struct Reader {
    shared: SharedReport,
    read: AtomicU64,
}

impl Reader {
    fn read(&self) -> Result<GroupReport> {
        Ok(sample_report(self.read.fetch_add(1, Ordering::SeqCst) + 1))
    }

    fn get(&self) -> u64 {
        self.shared.get(|| self.read()).unwrap().group.revision
    }

    fn recent(&self, age: Duration) -> u64 {
        self.shared.recent(age, || self.read()).unwrap().group.revision
    }
}

#[test]
fn recent_report_is_used_until_something_changes() {
    let reader = Reader::default();
    assert_eq!((reader.recent(HOUR), reader.recent(HOUR)), (1, 1));
    assert_eq!((reader.get(), reader.recent(HOUR)), (2, 2), "one that is asked for is a new one");
    reader.shared.forget();
    assert_eq!((reader.recent(HOUR), reader.recent(Duration::ZERO)), (3, 4));
}

#[test]
fn change_while_a_report_is_read_makes_it_old() {
    let reader = Reader::default();
    reader
        .shared
        .get(|| {
            reader.shared.forget();
            reader.read()
        })
        .unwrap();
    assert_eq!(reader.recent(HOUR), 2);
}

#[test]
fn callers_that_ask_while_one_runs_share_the_next() {
    let reader = Reader::default();
    let (begun, wait_for_begin) = mpsc::channel();
    let (go_on, wait_to_go_on) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let reader = &reader;
        let first = scope.spawn(move || {
            let read = || {
                begun.send(()).unwrap();
                wait_to_go_on.recv().unwrap();
                reader.read()
            };
            reader.shared.get(read).unwrap().group.revision
        });
        wait_for_begin.recv().unwrap();
        let others: Vec<_> = (0..20).map(|_| scope.spawn(move || reader.get())).collect();
        while lock(&reader.shared.state).begun < 1 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(100));
        go_on.send(()).unwrap();
        assert_eq!(first.join().unwrap(), 1);
        let seen: Vec<u64> = others.into_iter().map(|other| other.join().unwrap()).collect();
        assert!(seen.iter().all(|revision| *revision > 1), "{seen:?}");
    });
    let read = reader.read.load(Ordering::SeqCst);
    assert!(read < 20, "{read} reports for 21 callers");
}

#[test]
fn failure_that_took_long_is_not_repeated_at_once() {
    let shared = SharedReport::default();
    let age = Duration::from_millis(500);
    let failing = || {
        std::thread::sleep(2 * age);
        Err(Error::failed("read", "no"))
    };
    assert!(shared.recent(age, failing).is_err());
    assert!(shared.recent(age, || Ok(sample_report(1))).is_err());
    std::thread::sleep(2 * age);
    shared.recent(age, || Ok(sample_report(1))).unwrap();
}

#[test]
fn failure_is_shared_and_a_panic_is_not() {
    let shared = SharedReport::default();
    let failed = || Err(Error::failed("read", "no"));
    assert!(shared.get(failed).is_err());
    assert!(shared.recent(HOUR, || Ok(sample_report(1))).is_err());
    let panicking = std::panic::AssertUnwindSafe(|| shared.get(|| panic!("it panics")));
    assert!(std::panic::catch_unwind(panicking).is_err());
    assert_eq!(shared.get(|| Ok(sample_report(2))).unwrap().group.revision, 2);
}
