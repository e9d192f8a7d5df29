//! Becomes another program under a seccomp profile, as a container runtime does it.
//!
//! `confined PROFILE PROGRAM [ARGUMENT...]`; instead of a program, `--load-module` tries that one
//! call and exits with its error number. Instead of a profile, `--without-leases` refuses each lease on a
//! file as if the file were open elsewhere, as NFS and SMB do.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a part of a test")]

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use seccompiler::{BpfProgram, TargetArch, apply_filter, compile_from_json};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let profile = words.next().expect("a profile");
    let filter = if profile == "--without-leases" {
        without_leases()
    } else {
        let profile = fs::read(profile).expect("read the profile");
        filter_of(&serde_json::from_slice(&profile).expect("a profile in JSON"))
    };
    let program = words.next().expect("a program");
    apply_filter(&filter).expect("apply the profile");
    if program == "--load-module" {
        let refused = rustix::system::init_module(&[], c"").expect_err("no module");
        return ExitCode::from(u8::try_from(refused.raw_os_error()).unwrap());
    }
    #[expect(clippy::disallowed_methods, reason = "the program under test is no host tool")]
    let error = Command::new(program).args(words).exec();
    panic!("{error}");
}

/// Runtimes pass over calls that the machine does not have, and so does this.
fn filter_of(profile: &Value) -> BpfProgram {
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    let mut rules = Vec::new();
    for group in profile["syscalls"].as_array().unwrap() {
        assert_eq!(group["action"], "SCMP_ACT_ALLOW");
        assert!(group.get("args").is_none(), "arguments are not looked at here");
        let names = group["names"].as_array().unwrap().iter();
        let named = names.map(|name| json!({ "syscall": name }));
        rules.extend(named.filter(|rule| compiled(std::slice::from_ref(rule), 1).is_some()));
    }
    assert!(rules.len() > 100, "{} calls are known", rules.len());
    let errno = profile["defaultErrnoRet"].as_u64().unwrap();
    compiled(&rules, errno).expect("a filter")
}

fn without_leases() -> BpfProgram {
    const EAGAIN: u32 = 11;
    const F_SETLEASE: u64 = 1024;
    const F_UNLCK: u64 = 2;
    let argument = |index: u8, op: &str, value: u64| json!({ "index": index, "type": "dword", "op": op, "val": value });
    let filter = json!({ "all": {
        "mismatch_action": "allow",
        "match_action": { "errno": EAGAIN },
        "filter": [{
            "syscall": "fcntl",
            "args": [argument(1, "eq", F_SETLEASE), argument(2, "ne", F_UNLCK)],
        }],
    }});
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("an architecture it knows");
    let mut filters = compile_from_json(filter.to_string().as_bytes(), arch).expect("a filter");
    filters.remove("all").expect("a filter")
}

fn compiled(rules: &[Value], errno: u64) -> Option<BpfProgram> {
    let filter = json!({ "all": {
        "mismatch_action": { "errno": errno }, "match_action": "allow", "filter": rules,
    }});
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("an architecture it knows");
    compile_from_json(filter.to_string().as_bytes(), arch).ok()?.remove("all")
}
