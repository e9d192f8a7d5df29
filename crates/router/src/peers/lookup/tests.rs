use std::sync::mpsc;

use super::Lookups;

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
    assert_eq!(second, Err("the name service does not answer".to_owned()));
    let other = lookups.resolve_by("others:1", |_| Ok(Vec::new())).await;
    assert_eq!(other, Ok(Vec::new()), "another name does not wait");

    let_go.send(()).unwrap();
    assert_eq!(first.await.unwrap(), Ok(vec!["127.0.0.1:1".parse().unwrap()]));
    let third = lookups.resolve_by("peers:1", |_| Ok(Vec::new())).await;
    assert_eq!(third, Ok(Vec::new()), "it can be looked up once the first lookup has ended");
}

#[tokio::test]
async fn an_address_needs_no_lookup() {
    let lookups = Lookups::default();
    let found = lookups.resolve_by("[::1]:7000", |_| panic!("a lookup of an address")).await;
    assert_eq!(found, Ok(vec!["[::1]:7000".parse().unwrap()]));
}
