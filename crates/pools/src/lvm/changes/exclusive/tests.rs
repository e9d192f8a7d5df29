use std::collections::BTreeMap;

use fastrand::Rng;

use super::*;
use crate::lvm::changes::testbed::Written;

#[test]
fn exclusive_chunks_are_those_that_no_other_device_has() {
    for seed in 0..30 {
        let mut rng = Rng::with_seed(seed);
        let size = rng.u64(1..300);
        let mut next = 0;
        let mut devices: Vec<BTreeMap<u64, u64>> = vec![BTreeMap::new()];
        for _ in 0..rng.usize(1..6) {
            // A copy of one that is there, or another volume.
            let mut device = if rng.bool() {
                devices[rng.usize(..devices.len())].clone()
            } else {
                BTreeMap::new()
            };
            for _ in 0..rng.u64(0..size) {
                next += 1;
                device.insert(rng.u64(0..size), next);
            }
            devices.push(device);
        }
        let mut written = Written::default();
        let roots: Vec<u64> = devices.iter().map(|device| written.tree(device)).collect();
        for (index, device) in devices.iter().enumerate() {
            let is_other = |other: &usize| *other != index;
            let others = (0..devices.len()).filter(is_other);
            let is_own = |(key, chunk): &(&u64, &u64)| {
                others.clone().all(|other| devices[other].get(key) != Some(chunk))
            };
            let expected = u64::try_from(device.iter().filter(is_own).count()).unwrap();
            let roots_of_others = others.clone().map(|other| roots[other]);
            let found =
                exclusive_chunks(&mut written, roots[index], roots_of_others.clone(), 1 << 20);
            assert_eq!(found.unwrap(), Some(expected), "seed {seed}, device {index}");
            let given_up = exclusive_chunks(&mut written, roots[index], roots_of_others, 1);
            assert_eq!(given_up.unwrap(), None);
        }
    }
}
