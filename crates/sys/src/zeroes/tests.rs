use super::*;

#[test]
fn a_single_other_byte_is_found_wherever_it_is() {
    for length in [0, 1, 4095, 4096, 4097, 3 * BLOCK, 3 * BLOCK + 5] {
        let mut bytes = vec![0; length];
        assert!(is_zero(&bytes), "{length}");
        for at in [0, 1, BLOCK - 1, BLOCK, 2 * BLOCK + 1, length.saturating_sub(1)] {
            let Some(byte) = bytes.get_mut(at) else { continue };
            *byte = 1;
            assert!(!is_zero(&bytes), "{at} of {length}");
            bytes[at] = 0;
        }
    }
}
