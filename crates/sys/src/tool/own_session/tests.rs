#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;

const LONG: Duration = Duration::from_secs(600);

fn sh(script: &str) -> [&str; 2] {
    ["-c", script]
}

/// Of a program that is to end by being killed, so that no limit has to be right for the machine.
fn short() -> Queries {
    Queries::new(Duration::from_millis(50))
}

#[test]
fn status_and_both_outputs_are_kept_apart() {
    let script = "echo out; echo err >&2; exit 5";
    for ended in [run_to_end("sh", sh(script)), Queries::new(LONG).run("sh", sh(script))] {
        let ended = ended.unwrap();
        assert_eq!(ended.status.code(), Some(5));
        assert_eq!((ended.stdout.as_slice(), ended.stderr.as_str()), (&b"out\n"[..], "err\n"));
    }
}

#[test]
fn query_beyond_its_limit_is_killed_with_its_children() {
    let dir = crate::testbed::scratch();
    let pids = dir.path().join("pids");
    let script = format!("sleep 1000 & echo $$ $! > {}; wait", pids.display());
    // Long enough for the shell to have written, however slow the machine is.
    let started = || std::fs::read_to_string(&pids).unwrap_or_default().ends_with('\n');
    let (mut limit, mut refused) = (Duration::from_millis(50), None);
    while !started() {
        refused = Queries::new(limit).run("sh", sh(&script)).err();
        limit *= 2;
    }
    let refused = refused.unwrap();
    assert!(matches!(refused, Error::Unanswered { .. }), "{refused}");
    for pid in std::fs::read_to_string(&pids).unwrap().split_whitespace() {
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The child may still have to be waited for by process 1.
        let has_ended = || stat().is_empty() || stat().contains(") Z ");
        // It ends when it runs next, which another program may hold up.
        let deadline = Instant::now() + Duration::from_secs(60);
        while !has_ended() {
            assert!(Instant::now() < deadline, "{}", stat());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn no_query_is_started_while_a_killed_one_is_stuck() {
    let queries = short();
    // As one that cannot be killed: it gets no signal here.
    let mut command = prepared(&path_of("sh").unwrap(), sh("read -r end"));
    let mut child = spawn(command.stdin(std::process::Stdio::piped())).unwrap();
    let input = child.stdin.take();
    queries.wait_for_killed(child, "sh").unwrap();
    let refused = queries.run("true", [""; 0]).unwrap_err().to_string();
    assert!(refused.contains("an earlier query"), "{refused}");

    drop(input);
    while queries.stuck.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    assert!(Queries { limit: LONG, stuck: queries.stuck }.run("true", [""; 0]).is_ok());
}

#[test]
fn output_is_bounded_and_blocks_no_program() {
    let script = "head -c 40000000 /dev/zero; head -c 1000000 /dev/zero >&2; echo end";
    let ended = run_to_end("sh", sh(script)).unwrap();
    assert!(ended.status.success());
    assert_eq!((ended.stdout.len(), ended.stderr.len()), (LONGEST_OUTPUT, LONGEST_COMPLAINT));
    let refused = Queries::new(LONG).run("sh", sh(script)).unwrap_err().to_string();
    assert!(refused.contains("longer than"), "{refused}");
}

/// dmeventd and lvmpolld are started by commands of LVM, and stay.
#[test]
fn a_background_process_that_keeps_the_pipes_is_not_awaited() {
    let ended = run_to_end("sh", sh("sleep 1000 & echo $!")).unwrap();
    let sleeping: i32 = str::from_utf8(&ended.stdout).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(Pid::from_raw(sleeping).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn a_change_outlives_signals_and_lost_readers() {
    for signal in ["TERM", "INT", "HUP", "PIPE"] {
        let ended = run_to_end("sh", sh(&format!("kill -{signal} $$; echo alive"))).unwrap();
        assert_eq!(ended.stdout, b"alive\n", "{signal}");
    }
    let session = "read -r _ _ _ _ _ session _ < /proc/$$/stat; [ $session = $$ ]";
    assert!(run_to_end("sh", sh(session)).unwrap().status.success());
}
