#![allow(clippy::unwrap_used)]

use tracing_subscriber::layer::SubscriberExt;

use super::*;

#[test]
fn an_event_has_the_fields_of_its_call() {
    let subscriber = tracing_subscriber::registry().with(layer());
    let _guard = tracing::subscriber::set_default(subscriber);
    let call =
        tracing::error_span!("call", method = "CreateVolume", volume = tracing::field::Empty);
    call.record("volume", tracing::field::display("v-1"));
    tracing::info!(parent: &call, code = "OK", "done");
    tracing::debug!(parent: &call, "a detail");
    tracing::warn!(target: "hyper", "of another crate");
    tracing::error!(volume = "v-2", why = %"x".repeat(1000), "{}", "y".repeat(5000));

    // Other tests may log as well, on their threads without this subscriber.
    let of_volume = |id: &str| {
        let has = |event: &&Event| event.fields.get("volume").is_some_and(|it| it == id);
        let all = recent();
        all.iter().filter(has).cloned().collect::<Vec<_>>()
    };
    let done = of_volume("v-1");
    assert_eq!(done.len(), 1, "{done:?}");
    assert_eq!((done[0].level, done[0].message.as_str()), ("info", "done"));
    assert_eq!(done[0].fields["method"], "CreateVolume");
    assert_eq!(done[0].fields["code"], "OK");
    let long = of_volume("v-2");
    assert_eq!(long[0].level, "error");
    assert!(long[0].message.len() <= LONGEST_MESSAGE + 3 && long[0].message.ends_with("..."));
    assert!(long[0].fields["why"].len() <= LONGEST_FIELD + 3);
    assert!(recent().iter().all(|event| event.message != "of another crate"));
}

fn recent() -> Vec<Event> {
    log().after(0, usize::MAX).events.iter().map(|event| Event::clone(event)).collect()
}

#[test]
fn the_part_that_logs_says_what_kind_it_is() {
    for (target, expected) in [
        ("orlop_csi::layers", "call"),
        ("orlop_engine::pool_breaker", "pool"),
        ("orlop_engine::lost_writes", "volume"),
        ("orlop_pools::image::capacity", "pool"),
        ("orlop_router::peers::known", "peer"),
        ("orlop_host::linux::freezer", "node"),
        ("orlop::serve", "daemon"),
    ] {
        assert_eq!(kind(target), expected, "{target}");
    }
}
