//! Many calls at once.

use std::sync::Barrier;

use super::*;

#[test]
fn hundred_creations_at_once_make_a_hundred_volumes() {
    const COUNT: usize = 100;
    let Some(pool) = Pool::new(128 * MIB) else { return };
    let names: Vec<String> = (0..COUNT).map(|number| format!("pvc-{number}")).collect();
    let start = Barrier::new(COUNT);
    std::thread::scope(|scope| {
        let (pool, start) = (&pool, &start);
        let threads: Vec<_> = names
            .iter()
            .map(|name| {
                scope.spawn(move || {
                    start.wait();
                    pool.create(name, MIB)
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
    let mut found = pool.lv_names();
    found.sort();
    let mut expected: Vec<String> =
        names.iter().map(|name| pool.volume_id(name).to_string()).collect();
    expected.sort();
    assert_eq!(found, expected);
    let listed = |pool: &Pool| pool.opened.catalogue.volumes(None, 0).unwrap();
    let before = listed(&pool);
    assert_eq!(before.len(), COUNT);
    let pool = pool.reopen();
    assert_eq!(listed(&pool), before, "the next daemon finds the same");
    std::thread::scope(|scope| {
        for (id, _) in &before {
            let pool = &pool;
            scope.spawn(move || pool.provisioner().ensure_no_volume(id).unwrap());
        }
    });
    assert_eq!(pool.lv_names(), [""; 0]);
}

/// The pool has room for half of them.
#[test]
fn creations_at_once_get_no_more_than_there_is() {
    let Some(pool) = Pool::new(64 * MIB) else { return };
    let start = Barrier::new(16);
    let made = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|number| {
                let (pool, start) = (&pool, &start);
                scope.spawn(move || {
                    let new = pool.new_volume(&format!("v{number}"), 8 * MIB, None);
                    start.wait();
                    pool.provisioner().begin_volume(&new).and_then(Draft::commit)
                })
            })
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join().unwrap());
        ended
            .filter(|made| match made {
                Ok(_) => true,
                Err(Error::Exhausted(_)) => false,
                Err(other) => panic!("{other}"),
            })
            .count()
    });
    assert!((1..=8).contains(&made), "{made}");
    assert_eq!(pool.lv_names().len(), made);
    // What is just being made may count twice for others, and no longer than that.
    for number in made..8 {
        pool.create(&format!("more{number}"), 8 * MIB);
    }
    assert!(pool.provisioner().begin_volume(&pool.new_volume("ninth", MIB, None)).is_err());
}
