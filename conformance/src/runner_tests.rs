#![allow(clippy::unwrap_used)]

use std::future::pending;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::run_one;
use crate::check::{Chapter, Check, Outcome, Service, check, run};
use crate::options::{Action, Hooks, Options};
use crate::plugin::Plugin;
use crate::trial::Trial;

static GIVEN_UP: Check = check("given-up", "breaks the storage and hangs", &[], run!(given_up));

static CHAPTER: Chapter =
    Chapter { title: "Outages", service: Service::Protocol, needs: &[], checks: &[], unseen: &[] };

async fn given_up(t: &Trial) -> Outcome {
    let hanging = t.during_outage(pending::<Outcome>());
    tokio::time::timeout(Duration::ZERO, hanging).await.unwrap_err();
    Err(t.failed("an end"))
}

#[tokio::test]
async fn storage_that_a_check_left_broken_is_mended_before_the_plugin_is_restarted() {
    let happened = Arc::new(Mutex::new(Vec::new()));
    let hook = |name: &'static str| -> Option<Action> {
        let happened = Arc::clone(&happened);
        Some(Arc::new(move || {
            happened.lock().unwrap().push(name);
            Ok(())
        }))
    };
    let mut options = Options::new(PathBuf::from("/nonexistent/csi.sock"));
    let (breaks, mends, restarts) = (hook("break"), hook("mend"), hook("restart"));
    options.hooks = Hooks { breaks, mends, restarts, logs: None };
    let ran = run_one(&Plugin::absent(options).unwrap(), &CHAPTER, &GIVEN_UP).await;
    assert!(ran.outcome.is_err());
    assert_eq!(*happened.lock().unwrap(), ["break", "mend", "restart"]);
}
