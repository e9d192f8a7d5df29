//! Many callers that list all volumes at the same time.

use std::fs::File;

use orlop_tests::*;

const VOLUMES: usize = 5000;
const CALLERS: usize = 100;
/// Lists whose records may be in memory at once. Two are built at once; the rest is for an allocator that keeps some of
/// what was freed.
const LISTS_IN_MEMORY: u64 = 6;
/// What a caller has not read yet is in memory, encoded.
const COPIES_OF_A_REPLY: u64 = 1;

/// Made by hand, as thousands of calls would take minutes.
async fn pool_with_many_volumes(pool: &TestPool, daemon: &mut Daemon) {
    let first = daemon.client().create("first").size(MIB).block().done().await.volume_id;
    daemon.terminate();
    let record = std::fs::read_to_string(pool.volume_record(&first)).unwrap();
    let (prefix, _) = first.rsplit_once('-').unwrap();
    for number in 0..VOLUMES - 1 {
        let id = format!("{prefix}-{number:032x}");
        std::fs::create_dir(pool.volume_record(&id).parent().unwrap()).unwrap();
        std::fs::write(pool.volume_record(&id), record.replace(&first, &id)).unwrap();
        File::create_new(pool.volume_data(&id)).unwrap().set_len(MIB).unwrap();
    }
    daemon.restart().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_does_not_grow_with_the_number_of_callers_that_list() {
    needs_root!();
    let pool = TestPool::in_memory(PoolFs::Directory, 2 * GIB);
    let launch = Launch::on(&pool).env("ORLOP_POOL_OVERCOMMIT", "1000");
    let mut daemon = launch.start().await;
    pool_with_many_volumes(&pool, &mut daemon).await;
    let pid = daemon.pid();

    let before = resident_bytes(pid);
    forget_peak(pid);
    let listed = daemon.client().list_volumes().await.unwrap();
    assert_eq!(listed.len(), VOLUMES);
    let one = peak_resident_bytes(pid).saturating_sub(before);
    let reply =
        listed.iter().map(|entry| u64::try_from(prost::Message::encoded_len(entry)).unwrap());
    let replies = reply.sum::<u64>() * u64::try_from(CALLERS).unwrap();

    forget_peak(pid);
    let clients: Vec<_> = (0..CALLERS).map(|_| daemon.client()).collect();
    let lists = clients.into_iter().map(|client| {
        tokio::spawn(async move { client.list_volumes().await.map(|listed| listed.len()) })
    });
    for list in lists.collect::<Vec<_>>() {
        assert_eq!(list.await.unwrap().unwrap(), VOLUMES);
    }
    let all = peak_resident_bytes(pid).saturating_sub(before);
    report(&format!("one list takes {} KiB, {CALLERS} at once {} KiB", one >> 10, all >> 10));
    let bound = LISTS_IN_MEMORY * one + COPIES_OF_A_REPLY * replies;
    assert!(all < bound, "one list takes {one} bytes, {CALLERS} at once {all}, more than {bound}");
}
