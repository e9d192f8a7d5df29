#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Seek};

use rustix::process::getsid;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(60);

fn start(script: &str, output: &File) -> DependentProgram {
    let variables = [(OsString::from("GIVEN"), OsString::from("value"))];
    DependentProgram::start(Path::new("/bin/sh"), &["-c", script], &variables, output).unwrap()
}

fn contents(mut output: File) -> String {
    let mut text = String::new();
    output.rewind().unwrap();
    output.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn program_gets_given_variables_only_and_one_output_file() {
    let output = tempfile::tempfile().unwrap();
    let mut program = start("echo $GIVEN; echo ${HOME-none} >&2; exit 3", &output);
    let status = program.ended_within(TIMEOUT).unwrap();
    assert_eq!(status.and_then(|status| status.code()), Some(3));
    assert_eq!(contents(output), "value\nnone\n");
}

#[test]
fn program_leads_a_session_and_ends_by_a_signal() {
    let output = tempfile::tempfile().unwrap();
    let mut program = start("exec sleep 600", &output);
    assert_eq!(program.ended().unwrap(), None);
    let pid = Pid::from_child(&program.child);
    assert_eq!(getsid(Some(pid)).unwrap(), pid);
    program.send(Signal::TERM).unwrap();
    assert!(program.ended_within(TIMEOUT).unwrap().is_some());
    program.kill().unwrap();
}

#[test]
fn program_ends_with_the_thread_that_started_it() {
    let output = tempfile::tempfile().unwrap();
    let shared = output.try_clone().unwrap();
    let starting = std::thread::spawn(move || start("exec sleep 600", &shared));
    let mut program = starting.join().unwrap();
    assert!(program.ended_within(TIMEOUT).unwrap().is_some(), "it outlived its parent");
}
