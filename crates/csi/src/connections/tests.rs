#![allow(clippy::unwrap_used)]

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// What a caller holds, and what this process does.
struct Ends {
    caller: UnixStream,
    ours: Option<Connection>,
}

fn connect(connections: &ConnectionTable) -> Ends {
    let (caller, ours) = UnixStream::pair().unwrap();
    Ends { caller, ours: connections.admit(ours) }
}

fn full(connections: &ConnectionTable) -> Vec<Ends> {
    (0..MAX_CONNECTIONS).map(|_| connect(connections)).collect()
}

async fn is_closed(ends: &mut Ends) -> bool {
    let ours = ends.ours.as_mut().unwrap();
    // Something to read for those who are still there.
    ends.caller.write_all(b"x").await.is_err() || ours.read_u8().await.is_err()
}

#[tokio::test]
async fn the_longest_idle_connection_is_closed() {
    let connections = ConnectionTable::within(None, &Arc::default());
    let mut all = full(&connections);
    all[0].caller.write_all(b"hello").await.unwrap();
    all[0].ours.as_mut().unwrap().read_u8().await.unwrap();
    let mut late = connect(&connections);
    assert!(is_closed(&mut all[1]).await);
    for index in [0, 2, MAX_CONNECTIONS - 1] {
        assert!(!is_closed(&mut all[index]).await, "{index}");
    }
    assert!(!is_closed(&mut late).await);
}

#[tokio::test]
async fn a_connection_with_a_call_stays() {
    let connections = ConnectionTable::within(None, &Arc::default());
    let mut all = full(&connections);
    let peer = |ends: &Ends| ends.ours.as_ref().unwrap().connect_info();
    let busy = InFlight::with(&peer(&all[0]));
    let _late = connect(&connections);
    assert!(is_closed(&mut all[1]).await);
    drop(busy);
    assert!(!is_closed(&mut all[0]).await);
}

#[tokio::test]
async fn new_connection_is_closed_when_all_are_busy() {
    let connections = ConnectionTable::within(None, &Arc::default());
    let all = full(&connections);
    let busy: Vec<_> = all
        .iter()
        .map(|ends| InFlight::with(&ends.ours.as_ref().unwrap().connect_info()))
        .collect();
    assert!(connect(&connections).ours.is_none());
    drop(busy);
    assert!(connect(&connections).ours.is_some());
}

#[tokio::test]
async fn closed_connections_are_not_counted() {
    let connections = ConnectionTable::within(None, &Arc::default());
    drop(full(&connections));
    let mut first = connect(&connections);
    let _others: Vec<_> = (1..MAX_CONNECTIONS).map(|_| connect(&connections)).collect();
    assert!(!is_closed(&mut first).await);
}

#[tokio::test]
async fn connection_limit_follows_the_descriptor_limit() {
    let connections = ConnectionTable::within(Some(64), &Arc::default());
    let mut all: Vec<_> = (0..16).map(|_| connect(&connections)).collect();
    assert!(!is_closed(&mut all[0]).await);
    let mut late = connect(&connections);
    assert!(is_closed(&mut all[1]).await);
    assert!(!is_closed(&mut late).await);
    assert_eq!(ConnectionTable::within(Some(0), &Arc::default()).max, 1);
    assert_eq!(ConnectionTable::within(Some(1 << 20), &Arc::default()).max, MAX_CONNECTIONS);
}

#[tokio::test]
async fn clients_read_responses_while_connections_stay_open() {
    let connections = ConnectionTable::within(None, &Arc::default());
    let mut all = [connect(&connections), connect(&connections)];
    connections.hang_up();
    for ends in &mut all {
        let mut heard = Vec::new();
        ends.caller.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"");
    }
}
