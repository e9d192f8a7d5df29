//! Which blocks a snapshot holds, and which have changed, as streams.

use std::time::{Duration, Instant};

use orlop_csi::proto::csi::v1;
use orlop_csi::proto::csi::v1::snapshot_metadata_client::SnapshotMetadataClient;
use orlop_model::{ByteRange, Error, VolumeId};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use crate::plugin::{MIB, NO_SNAPSHOT, Plugin, code};
use crate::required_fields::needs;

const BLOCK: u64 = 4096;

fn metadata(plugin: &Plugin) -> SnapshotMetadataClient<Channel> {
    SnapshotMetadataClient::new(plugin.channel())
}

fn allocated(snapshot_id: &str) -> v1::GetMetadataAllocatedRequest {
    v1::GetMetadataAllocatedRequest { snapshot_id: snapshot_id.to_owned(), ..Default::default() }
}

fn delta(base: &str, target: &str) -> v1::GetMetadataDeltaRequest {
    v1::GetMetadataDeltaRequest {
        base_snapshot_id: base.to_owned(),
        target_snapshot_id: target.to_owned(),
        ..Default::default()
    }
}

fn write(plugin: &Plugin, volume: &v1::Volume, blocks: impl IntoIterator<Item = u64>) {
    let id: VolumeId = volume.volume_id.parse().unwrap();
    for block in blocks {
        let range = ByteRange { start: block * BLOCK, length: BLOCK };
        plugin.pool.write_blocks(&id, range).unwrap();
    }
}

/// Every other block of the first `count` pairs, so that each is a separate range.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|number| number * 2)
}

async fn collected<Message>(mut stream: Streaming<Message>) -> (Vec<Message>, Option<Status>) {
    let mut messages = Vec::new();
    loop {
        match stream.message().await {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => return (messages, None),
            Err(status) => return (messages, Some(status)),
        }
    }
}

async fn allocated_messages(
    plugin: &Plugin,
    request: v1::GetMetadataAllocatedRequest,
) -> Vec<v1::GetMetadataAllocatedResponse> {
    let stream = metadata(plugin).get_metadata_allocated(request).await.unwrap().into_inner();
    let (messages, status) = collected(stream).await;
    assert!(status.is_none(), "{status:?}");
    for message in &messages {
        assert_eq!(message.block_metadata_type(), v1::BlockMetadataType::VariableLength, "SM-08");
        assert_eq!(message.volume_capacity_bytes, 400 * MIB, "SM-11, SM-12");
    }
    messages
}

fn offsets(messages: &[v1::GetMetadataAllocatedResponse]) -> Vec<i64> {
    let tuples = messages.iter().flat_map(|message| &message.block_metadata);
    tuples.map(|tuple| tuple.byte_offset).collect()
}

#[tokio::test]
async fn messages_respect_max_results_and_cover_everything() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    write(&plugin, &volume, scattered(2100));
    let id = plugin.snapshot(&volume, "s").await.snapshot_id;
    let expected: Vec<_> = (0..2100).map(|number| number * 8192).collect();
    for (max_results, sizes) in
        [(0, vec![1024, 1024, 52]), (700, vec![700, 700, 700]), (i32::MAX, vec![2100])]
    {
        let request = v1::GetMetadataAllocatedRequest { max_results, ..allocated(&id) };
        let messages = allocated_messages(&plugin, request).await;
        let found: Vec<_> = messages.iter().map(|message| message.block_metadata.len()).collect();
        assert_eq!(found, sizes, "SM-13, SM-14");
        assert_eq!(offsets(&messages), expected, "SM-02 to SM-04, SM-19");
    }
}

#[tokio::test]
async fn stream_resumes_at_any_offset() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    write(&plugin, &volume, scattered(10));
    let id = plugin.snapshot(&volume, "s").await.snapshot_id;
    for cut in 0..10 {
        let request =
            v1::GetMetadataAllocatedRequest { starting_offset: cut * 8192, ..allocated(&id) };
        let rest = offsets(&allocated_messages(&plugin, request).await);
        assert_eq!(rest, (cut..10).map(|number| number * 8192).collect::<Vec<_>>(), "SM-18");
    }
    let request = v1::GetMetadataAllocatedRequest { starting_offset: 400 * MIB, ..allocated(&id) };
    let at_the_end = allocated_messages(&plugin, request).await;
    assert_eq!((at_the_end.len(), offsets(&at_the_end).len()), (1, 0), "open point 9");
}

#[tokio::test]
async fn empty_volume_is_one_message() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    let (s, t) = (plugin.snapshot(&volume, "s").await, plugin.snapshot(&volume, "t").await);
    let messages = allocated_messages(&plugin, allocated(&s.snapshot_id)).await;
    assert_eq!((messages.len(), offsets(&messages).len()), (1, 0), "SM-22");
    let request = delta(&s.snapshot_id, &t.snapshot_id);
    let stream = metadata(&plugin).get_metadata_delta(request).await.unwrap().into_inner();
    let (messages, status) = collected(stream).await;
    assert!(status.is_none());
    assert_eq!(messages.len(), 1);
    assert!(messages[0].block_metadata.is_empty());
    assert_eq!(messages[0].volume_capacity_bytes, 400 * MIB);
}

#[tokio::test]
async fn delta_is_what_was_written_between_snapshots() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    write(&plugin, &volume, 0..100);
    let base = plugin.snapshot(&volume, "base").await.snapshot_id;
    write(&plugin, &volume, [7, 8, 200]);
    let target = plugin.snapshot(&volume, "target").await.snapshot_id;
    let request = v1::GetMetadataDeltaRequest { max_results: 1, ..delta(&base, &target) };
    let stream = metadata(&plugin).get_metadata_delta(request).await.unwrap().into_inner();
    let (messages, status) = collected(stream).await;
    assert!(status.is_none());
    let found: Vec<_> = messages
        .iter()
        .map(|message| {
            (message.block_metadata[0].byte_offset, message.block_metadata[0].size_bytes)
        })
        .collect();
    assert_eq!(found, [(7 * 4096, 2 * 4096), (200 * 4096, 4096)], "SM-24");

    let swapped = metadata(&plugin).get_metadata_delta(delta(&target, &base)).await;
    assert_eq!(code(swapped), Code::InvalidArgument, "SM-34");
    let other = plugin.volume("b").await;
    let foreign = plugin.snapshot(&other, "foreign").await.snapshot_id;
    let mixed = metadata(&plugin).get_metadata_delta(delta(&base, &foreign)).await;
    assert_eq!(code(mixed), Code::InvalidArgument, "SM-34");
}

#[tokio::test]
async fn wrong_arguments_are_refused_before_the_stream() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    let id = plugin.snapshot(&volume, "s").await.snapshot_id;
    let mut client = metadata(&plugin);
    needs!(metadata(&plugin), get_metadata_allocated(allocated(NO_SNAPSHOT)), [snapshot_id]);
    needs!(
        metadata(&plugin),
        get_metadata_delta(delta(NO_SNAPSHOT, NO_SNAPSHOT)),
        [base_snapshot_id, target_snapshot_id]
    );
    for (starting_offset, max_results, expected) in [
        (-1, 0, Code::OutOfRange),
        (400 * MIB + 1, 0, Code::OutOfRange),
        (0, -1, Code::InvalidArgument),
    ] {
        let request =
            v1::GetMetadataAllocatedRequest { starting_offset, max_results, ..allocated(&id) };
        assert_eq!(code(client.get_metadata_allocated(request).await), expected, "SM-15, SM-27");
        let request =
            v1::GetMetadataDeltaRequest { starting_offset, max_results, ..delta(&id, &id) };
        assert_eq!(code(client.get_metadata_delta(request).await), expected, "SM-32");
    }
    for missing in [NO_SNAPSHOT, "fake"] {
        assert_eq!(code(client.get_metadata_allocated(allocated(missing)).await), Code::NotFound);
        for (base, target) in [(missing, id.as_str()), (id.as_str(), missing)] {
            let answer = client.get_metadata_delta(delta(base, target)).await;
            assert_eq!(code(answer), Code::NotFound, "SM-30");
        }
    }
}

#[tokio::test]
async fn read_error_ends_the_stream_with_its_status() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    write(&plugin, &volume, scattered(10));
    let id = plugin.snapshot(&volume, "s").await.snapshot_id;
    plugin.pool.fail_after("range", 5, Error::failed("read the extents", "EIO"));
    let request = v1::GetMetadataAllocatedRequest { max_results: 2, ..allocated(&id) };
    let stream = metadata(&plugin).get_metadata_allocated(request).await.unwrap().into_inner();
    let (messages, status) = collected(stream).await;
    assert_eq!(messages.len(), 2);
    let status = status.unwrap();
    assert_eq!(status.code(), Code::Internal, "SM-20");
    assert!(status.message().contains("EIO"), "{}", status.message());
}

/// Reached only by what never comes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What is awaited in vain fails the test rather than hang it.
async fn in_time<T>(what: &str, awaited: impl Future<Output = T>) -> T {
    let came = tokio::time::timeout(TIMEOUT, awaited).await;
    came.unwrap_or_else(|_| panic!("{what} never came"))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TIMEOUT, "{what} never came");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn endless(plugin: &Plugin) -> Streaming<v1::GetMetadataAllocatedResponse> {
    plugin.gate.make_endless();
    let volume = plugin.volume("a").await;
    let id = plugin.snapshot(&volume, "s").await.snapshot_id;
    metadata(plugin).get_metadata_allocated(allocated(&id)).await.unwrap().into_inner()
}

/// What fits into the windows of the connection is read, and then no more.
async fn standstill(plugin: &Plugin) {
    let mut before = 0;
    until("a standstill", || {
        std::thread::sleep(Duration::from_millis(100));
        let (read, _) = plugin.gate.endless();
        std::mem::replace(&mut before, read) == read && read > 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_reader_pauses_and_hangup_ends_reading() {
    let plugin = Plugin::start().await;
    let mut stream = endless(&plugin).await;
    stream.message().await.unwrap().unwrap();
    standstill(&plugin).await;
    assert_eq!(plugin.gate.endless().1, 1);
    drop(stream);
    until("the end of the reading", || plugin.gate.endless().1 == 0).await;
}

/// As many as read at once, and more: none of them finds anything, for as long as it is asked.
#[tokio::test(flavor = "multi_thread")]
async fn fruitless_reads_can_be_cancelled_and_take_turns() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    let id = plugin.snapshot(&volume, "s").await.snapshot_id;
    plugin.gate.make_endless();
    plugin.gate.make_barren(true);
    let open = || async { metadata(&plugin).get_metadata_allocated(allocated(&id)).await.unwrap() };
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(in_time("a stream", open()).await);
    }
    plugin.gate.make_barren(false);
    // Each gets its turn, however many read.
    for stream in &mut streams {
        in_time("its turn", stream.get_mut().message()).await.unwrap().unwrap();
    }
    plugin.gate.make_barren(true);
    drop(streams);
    until("the end of the reading", || plugin.gate.endless().1 == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_ends_a_fruitless_read() {
    let mut plugin = Plugin::start().await;
    plugin.gate.make_barren(true);
    let stream = endless(&plugin).await;
    plugin.stop();
    let (_, status) = in_time("the stream's end", collected(stream)).await;
    assert_eq!(status.unwrap().code(), Code::Unavailable);
    in_time("the stop", &mut plugin.serving).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_limited_and_leave_room_for_calls() {
    let plugin = Plugin::start().await;
    let volume = plugin.volume("a").await;
    let id = plugin.snapshot(&volume, "s").await.snapshot_id;
    plugin.gate.make_endless();
    let mut streams = Vec::new();
    for _ in 0..2 {
        // Half of all are left for others.
        let channel = plugin.connect().await;
        let open = async || {
            let mut client = SnapshotMetadataClient::new(channel.clone());
            client.get_metadata_allocated(allocated(&id)).await
        };
        for _ in 0..32 {
            streams.push(open().await.unwrap().into_inner());
        }
        assert_eq!(code(open().await), Code::ResourceExhausted);
    }
    let refused = metadata(&plugin).get_metadata_allocated(allocated(&id)).await;
    assert_eq!(code(refused), Code::ResourceExhausted);
    drop(streams);
    until("the end of the reading", || plugin.gate.endless().1 == 0).await;
    metadata(&plugin).get_metadata_allocated(allocated(&id)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_ends_a_stream_that_is_read() {
    let mut plugin = Plugin::start().await;
    let mut stream = endless(&plugin).await;
    stream.message().await.unwrap().unwrap();
    plugin.stop();
    let (_, status) = collected(stream).await;
    assert_eq!(status.unwrap().code(), Code::Unavailable);
    (&mut plugin.serving).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_does_not_wait_for_an_unread_stream() {
    let mut plugin = Plugin::start().await;
    let stream = endless(&plugin).await;
    standstill(&plugin).await;
    plugin.stop();
    (&mut plugin.serving).await.unwrap().unwrap();
    drop(stream);
    until("the end of the reading", || plugin.gate.endless().1 == 0).await;
}
