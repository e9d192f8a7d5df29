use std::sync::mpsc::{self, Receiver};
use std::thread::Scope;
use std::time::Duration;

use super::*;

const SHORT: Duration = Duration::from_millis(200);
const LONG: Duration = Duration::from_secs(60);

/// Tells when it is its turn, which is over then.
fn begin_change<'a>(scope: &'a Scope<'a, '_>, turns: &'a Turns) -> Receiver<()> {
    let (sender, receiver) = mpsc::channel();
    scope.spawn(move || {
        let _turn = turns.begin_change();
        sender.send(()).unwrap();
    });
    receiver
}

#[test]
fn change_waits_for_reports_before_it_alone() {
    let turns = Turns::default();
    std::thread::scope(|scope| {
        let report = turns.begin_report();
        let change = begin_change(scope, &turns);
        assert!(change.recv_timeout(SHORT).is_err());
        // This one came later.
        let _later = turns.begin_report();
        drop(report);
        change.recv_timeout(LONG).unwrap();
    });
}

#[test]
fn few_changes_run_at_once_and_no_report_waits_for_them() {
    let turns = Turns::default();
    std::thread::scope(|scope| {
        let mut running: Vec<Turn<'_>> = (0..MOST_CHANGES).map(|_| turns.begin_change()).collect();
        drop(turns.begin_report());
        let change = begin_change(scope, &turns);
        assert!(change.recv_timeout(SHORT).is_err());
        drop(running.pop());
        change.recv_timeout(LONG).unwrap();
    });
}
