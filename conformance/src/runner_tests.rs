#![allow(clippy::unwrap_used)]

use std::future::pending;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::run_one;
use crate::check::{Check, Outcome, Section, Service, check, run};
use crate::check_context::CheckContext;
use crate::options::{Action, Hooks, Options};
use crate::plugin::Plugin;

static GIVEN_UP: Check = check("given-up", "breaks the storage and hangs", &[], run!(given_up));

static SECTION: Section =
    Section { title: "Outages", service: Service::Protocol, needs: &[], checks: &[], unseen: &[] };

async fn given_up(t: &CheckContext) -> Outcome {
    let hanging = t.during_outage(pending::<Outcome>());
    tokio::time::timeout(Duration::ZERO, hanging).await.unwrap_err();
    Err(t.failed("an end"))
}

#[tokio::test]
async fn storage_is_mended_before_the_plugin_is_restarted() {
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
    let ran = run_one(&Plugin::absent(options).unwrap(), &SECTION, &GIVEN_UP).await;
    assert!(ran.outcome.is_err());
    assert_eq!(*happened.lock().unwrap(), ["break", "mend", "restart"]);
}
