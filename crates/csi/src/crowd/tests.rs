#![allow(clippy::unwrap_used)]

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// What a caller holds, and what this process does.
struct Ends {
    caller: UnixStream,
    ours: Option<Connection>,
}

fn connect(crowd: &mut Crowd) -> Ends {
    let (caller, ours) = UnixStream::pair().unwrap();
    Ends { caller, ours: crowd.admit(ours) }
}

fn full(crowd: &mut Crowd) -> Vec<Ends> {
    (0..MOST).map(|_| connect(crowd)).collect()
}

async fn is_sent_away(ends: &mut Ends) -> bool {
    let ours = ends.ours.as_mut().unwrap();
    // Something to read for those who are still there.
    ends.caller.write_all(b"x").await.is_err() || ours.read_u8().await.is_err()
}

#[tokio::test]
async fn the_longest_silent_makes_room() {
    let mut crowd = Crowd::within(None);
    let mut all = full(&mut crowd);
    all[0].caller.write_all(b"hello").await.unwrap();
    all[0].ours.as_mut().unwrap().read_u8().await.unwrap();
    let mut late = connect(&mut crowd);
    assert!(is_sent_away(&mut all[1]).await);
    for index in [0, 2, MOST - 1] {
        assert!(!is_sent_away(&mut all[index]).await, "{index}");
    }
    assert!(!is_sent_away(&mut late).await);
}

#[tokio::test]
async fn whoever_waits_for_an_answer_stays() {
    let mut crowd = Crowd::within(None);
    let mut all = full(&mut crowd);
    let peer = |ends: &Ends| ends.ours.as_ref().unwrap().connect_info();
    let busy = Busy::with(&peer(&all[0]));
    let _late = connect(&mut crowd);
    assert!(is_sent_away(&mut all[1]).await);
    drop(busy);
    assert!(!is_sent_away(&mut all[0]).await);
}

#[tokio::test]
async fn when_all_are_busy_the_newcomer_goes() {
    let mut crowd = Crowd::within(None);
    let all = full(&mut crowd);
    let busy: Vec<_> =
        all.iter().map(|ends| Busy::with(&ends.ours.as_ref().unwrap().connect_info())).collect();
    assert!(connect(&mut crowd).ours.is_none());
    drop(busy);
    assert!(connect(&mut crowd).ours.is_some());
}

#[tokio::test]
async fn those_who_left_are_not_counted() {
    let mut crowd = Crowd::within(None);
    drop(full(&mut crowd));
    let mut first = connect(&mut crowd);
    let _others: Vec<_> = (1..MOST).map(|_| connect(&mut crowd)).collect();
    assert!(!is_sent_away(&mut first).await);
}

#[tokio::test]
async fn a_process_with_few_descriptors_has_fewer_connections() {
    let mut crowd = Crowd::within(Some(64));
    let mut all: Vec<_> = (0..16).map(|_| connect(&mut crowd)).collect();
    assert!(!is_sent_away(&mut all[0]).await);
    let mut late = connect(&mut crowd);
    assert!(is_sent_away(&mut all[1]).await);
    assert!(!is_sent_away(&mut late).await);
    assert_eq!(Crowd::within(Some(0)).most, 1);
    assert_eq!(Crowd::within(Some(1 << 20)).most, MOST);
}
