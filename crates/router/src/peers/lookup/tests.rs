use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;

use super::{Lookups, Resolved};

fn found(addresses: &[&str]) -> Resolved {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    Resolved { addresses, problem: None }
}

fn lost() -> io::Result<Vec<SocketAddr>> {
    Err(io::Error::other("temporary failure in name resolution"))
}

#[tokio::test]
async fn a_running_lookup_is_not_started_again() {
    let lookups = Lookups::default();
    let (let_go, held) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let first = lookups.clone();
    let first = tokio::spawn(async move {
        let look_up = move |_: &str| {
            begun.send(()).unwrap();
            held.recv().unwrap();
            Ok(vec!["127.0.0.1:1".parse().unwrap()])
        };
        first.resolve_by("peers:1", look_up).await
    });
    tokio::task::spawn_blocking(move || has_begun.recv().unwrap()).await.unwrap();

    let second = lookups.resolve_by("peers:1", |_| panic!("a second lookup of the name")).await;
    assert_eq!(second.problem.as_deref(), Some("the name service does not answer"));
    let other = lookups.resolve_by("others:1", |_| Ok(Vec::new())).await;
    assert_eq!(other, found(&[]), "another name does not wait");

    let_go.send(()).unwrap();
    assert_eq!(first.await.unwrap(), found(&["127.0.0.1:1"]));
    let third = lookups.resolve_by("peers:1", |_| Ok(Vec::new())).await;
    assert_eq!(third, found(&[]), "it can be looked up once the first lookup has ended");
}

#[tokio::test]
async fn an_address_needs_no_lookup() {
    let lookups = Lookups::default();
    let resolved = lookups.resolve_by("[::1]:7000", |_| panic!("a lookup of an address")).await;
    assert_eq!(resolved, found(&["[::1]:7000"]));
}

/// The daemons are where they were: they do not end with the name service.
#[tokio::test]
async fn a_name_that_is_lost_stands_for_what_it_stood_for() {
    let lookups = Lookups::default();
    let address = |text: &str| Ok(vec![text.parse().unwrap()]);
    let unknown = lookups.resolve_by("peers:1", |_| lost()).await;
    assert_eq!(unknown.addresses, []);
    let first = lookups.resolve_by("peers:1", move |_| address("127.0.0.1:1")).await;
    assert_eq!(first, found(&["127.0.0.1:1"]));
    for _ in 0..2 {
        let kept = lookups.resolve_by("peers:1", |_| lost()).await;
        assert_eq!(kept.addresses, first.addresses);
        assert_eq!(kept.problem.as_deref(), Some("temporary failure in name resolution"));
        let other = lookups.resolve_by("others:1", |_| lost()).await;
        assert_eq!(other.addresses, []);
    }
    let moved = lookups.resolve_by("peers:1", move |_| address("127.0.0.2:1")).await;
    assert_eq!(moved, found(&["127.0.0.2:1"]));
    let kept = lookups.resolve_by("peers:1", |_| lost()).await;
    assert_eq!(kept.addresses, moved.addresses);
}
