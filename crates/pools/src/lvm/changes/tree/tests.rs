use std::collections::BTreeMap;

use super::*;
use crate::lvm::changes::testbed::Written;

fn tree_of(count: u64) -> (Written, u64, BTreeMap<u64, u64>) {
    let mappings: BTreeMap<u64, u64> = (0..count).map(|n| (n * 3, 1000 + n)).collect();
    let mut written = Written::default();
    let root = written.tree(&mappings);
    (written, root, mappings)
}

#[test]
fn everything_is_found() {
    let (mut written, root, mappings) = tree_of(1000);
    for key in 0..3010 {
        let found = find::<Mapping>(&mut written, root, key).unwrap();
        assert_eq!(found, mappings.get(&key).copied().map(Mapping), "{key}");
    }
    let expected: Vec<_> = mappings.iter().map(|(key, chunk)| (*key, Mapping(*chunk))).collect();
    assert_eq!(entries(&mut written, root, 10_000).unwrap(), Some(expected));
    assert_eq!(entries::<Mapping>(&mut written, root, 20).unwrap(), None);
    assert!(find::<Mapping>(&mut written, u64::MAX, 0).is_err());
}

#[test]
fn walk_passes_all_from_a_key_on() {
    let (mut written, root, mappings) = tree_of(1000);
    for from in [0, 1, 1500, 2997, 2998, 5000] {
        let mut walk = Walk::new(&mut written, root, from).unwrap();
        let mut found = Vec::new();
        while let Some(part) = walk.next() {
            if part.height > 0 {
                walk.open(&mut written).unwrap();
            } else {
                found.push((part.from, part.at));
                walk.pass();
            }
        }
        let expected: Vec<_> = mappings.range(from..).map(|(key, chunk)| (*key, *chunk)).collect();
        assert_eq!(found, expected, "{from}");
    }
}

/// None of them ends the daemon, or keeps it reading.
#[test]
fn trees_that_are_none_are_refused() {
    let mut written = Written::default();
    let leaf = written.node(true, &[(5, 1 << 24)]);
    let far = written.node(false, &[(6, leaf)]);
    let lower = written.node(false, &[(0, leaf), (9, leaf)]);
    let uneven = written.node(false, &[(0, lower), (7, leaf)]);
    let childless = written.node(false, &[]);
    let last = u64::try_from(written.blocks.len()).unwrap();
    let circle = written.node(false, &[(0, last)]);
    assert_eq!(circle, last);

    let walked = |root, written: &mut Written| -> Result<(), String> {
        let mut walk = Walk::new(written, root, 0).map_err(|error| error.to_string())?;
        while let Some(part) = walk.next() {
            match part.height {
                0 => walk.pass(),
                _ => walk.open(written).map_err(|error| error.to_string())?,
            }
        }
        Ok(())
    };
    let mut refused = |root| walked(root, &mut written).unwrap_err();
    assert!(refused(far).contains("keys of another node"));
    assert!(refused(lower).contains("keys of another node"));
    assert!(refused(uneven).contains("keys of another node") || refused(uneven).contains("height"));
    assert!(refused(childless).contains("has no children"));
    assert!(refused(circle).contains("without end"));
    assert!(find::<Mapping>(&mut written, circle, 0).unwrap_err().to_string().contains("end"));
    assert_eq!(entries::<Mapping>(&mut written, circle, 100).unwrap(), None);
}
