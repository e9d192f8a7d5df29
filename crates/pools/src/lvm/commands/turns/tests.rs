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

#[test]
fn nothing_is_begun_before_an_urgent_change_ends() {
    let turns = Turns::default();
    std::thread::scope(|scope| {
        let running: Vec<Turn<'_>> = (0..MOST_CHANGES).map(|_| turns.begin_change()).collect();
        let report = turns.begin_report();
        let urgent = turns.begin_urgent();
        let change = begin_change(scope, &turns);
        drop((running, report));
        let (of_report, of_second) = (mpsc::channel(), mpsc::channel());
        scope.spawn({
            let (turns, sender) = (&turns, of_report.0);
            move || {
                let _turn = turns.begin_report();
                sender.send(()).unwrap();
            }
        });
        scope.spawn({
            let (turns, sender) = (&turns, of_second.0);
            move || {
                let _turn = turns.begin_urgent();
                sender.send(()).unwrap();
            }
        });
        let (reported, second) = (of_report.1, of_second.1);
        for waiting in [&change, &reported, &second] {
            assert!(waiting.recv_timeout(SHORT).is_err());
        }
        drop(urgent);
        for waiting in [&change, &reported, &second] {
            waiting.recv_timeout(LONG).unwrap();
        }
    });
}
