use super::*;
use crate::lvm::testbed::{Testbed, pool_id};

#[test]
fn second_daemon_is_refused_until_the_first_has_gone() {
    let Some(bed) = Testbed::new(1) else { return };
    bed.create_lv("one", 1, &[]);
    bed.create_lv("two", 1, &[]);
    let report = bed.lvm().report().unwrap();
    let [one, two] = ["one", "two"].map(|name| report.lv(name).unwrap());
    let first = PoolLock::take(one).unwrap();
    let refused = PoolLock::take(one).unwrap_err().to_string();
    assert!(refused.contains("another process uses this pool"), "{refused}");
    // Another thin pool of the group is another pool, unless it is a copy.
    let second = PoolLock::take(two).unwrap();
    let id: PoolId = format!("{:08x}", std::process::id()).parse().unwrap();
    first.add(&id).unwrap();
    assert!(second.add(&id).is_err());
    assert!(PoolLock::try_take_unused(one, &id).unwrap().is_none());
    first.release();
    second.release();
    assert!(PoolLock::try_take_unused(one, &id).unwrap().is_some());
    PoolLock::take(one).unwrap().add(&id).unwrap();
    for path in [of_thin_pool(one), of_thin_pool(two), of_id(&id)] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn commands_of_an_earlier_daemon_are_waited_for() {
    let Some(bed) = Testbed::new(1) else { return };
    let lvm = std::sync::Arc::new(bed.lvm());
    let id: PoolId = format!("{:08x}", std::process::id() + (1 << 24)).parse().unwrap();
    lvm.lock_commands(&commands_lock(&id));
    wait_for_commands("p", &commands_lock(&id)).unwrap();
    // As if it were a command before it.
    let held = bed.lock();
    let waits = std::sync::Arc::clone(&lvm);
    let lv = lvm.group().as_str().to_owned();
    let changing = std::thread::spawn(move || {
        waits.change(|| "tag".to_owned(), "vgchange", &["--addtag", "x", &lv])
    });
    while tool::all_ended_within(Duration::ZERO, &commands_lock(&id)).unwrap() {
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(held);
    changing.join().unwrap().unwrap();
    wait_for_commands("p", &commands_lock(&id)).unwrap();
    std::fs::remove_file(commands_lock(&id)).unwrap();
    assert_ne!(id, pool_id());
}
