use std::collections::BTreeMap;

use super::*;

fn followed<const N: usize>(rounds: usize) -> BTreeMap<(usize, usize), usize> {
    let mut times = BTreeMap::new();
    for round in 0..rounds {
        for pair in order::<N>(round).windows(2) {
            *times.entry((pair[0], pair[1])).or_default() += 1;
        }
    }
    times
}

#[test]
fn order_puts_each_subject_after_each_other_equally_often() {
    let even = followed::<4>(12);
    assert_eq!(even.len(), 12);
    assert!(even.values().all(|times| *times == 3), "{even:?}");
    let odd = followed::<5>(10);
    assert_eq!(odd.len(), 20);
    assert!(odd.values().all(|times| *times == 2), "{odd:?}");
    assert_eq!(order::<1>(7), [0]);
}
