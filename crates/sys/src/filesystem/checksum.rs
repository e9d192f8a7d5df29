//! CRC-32C, which ext4, XFS and btrfs alike keep over their superblocks.

const REVERSED_POLYNOMIAL: u32 = 0x82F6_3B78;
const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    let mut byte = 0;
    while index < table.len() {
        let mut crc: u32 = byte;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ REVERSED_POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
        byte += 1;
    }
    table
}

pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    !running_crc32c(bytes)
}

/// As ext4 has it: not inverted at the end.
pub(super) fn running_crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(!0, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        crc >> 8 ^ TABLE[usize::from(low ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_standard_one() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }
}
