use std::sync::mpsc;

use super::*;

const SHORT: Duration = Duration::from_millis(50);

#[test]
fn nothing_is_waited_for_while_commands_end() {
    let progress = Progress::default();
    progress.wait(Duration::ZERO);
    let (first, _second) = (progress.begin(), progress.begin());
    progress.wait(Duration::from_secs(3600));
    std::thread::sleep(SHORT);
    drop(first);
    // The second has run for longer, but another has just ended.
    progress.wait(Duration::from_secs(3600));
}

#[test]
fn command_without_end_is_waited_for_until_it_ends() {
    let progress = Progress::default();
    let stuck = progress.begin();
    std::thread::sleep(SHORT);
    std::thread::scope(|scope| {
        let (send, returned) = mpsc::channel();
        let progress = &progress;
        scope.spawn(move || {
            progress.wait(SHORT);
            send.send(()).unwrap();
        });
        assert!(returned.recv_timeout(4 * SHORT).is_err(), "it returned while the command ran");
        drop(stuck);
        returned.recv_timeout(Duration::from_secs(60)).unwrap();
    });
}
