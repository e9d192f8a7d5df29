//! CRC-32C, which ext4, XFS, btrfs and thin pools keep over their metadata.

const REVERSED_POLYNOMIAL: u32 = 0x82F6_3B78;
/// Taken at a time: thin pools have a checksum over each 4 KiB that are read of them.
const STEP: usize = 8;
/// Of each byte of a step, what it becomes once the rest of the step is passed.
static TABLES: [[u32; 256]; STEP] = tables();

const fn tables() -> [[u32; 256]; STEP] {
    let mut tables = [[0; 256]; STEP];
    let mut index = 0;
    let mut byte = 0;
    while index < 256 {
        let mut crc: u32 = byte;
        let mut bit = 0;
        while bit < 8 * STEP {
            crc = if crc & 1 == 1 { crc >> 1 ^ REVERSED_POLYNOMIAL } else { crc >> 1 };
            bit += 1;
            if bit % 8 == 0 {
                tables[STEP - bit / 8][index] = crc;
            }
        }
        index += 1;
        byte += 1;
    }
    tables
}

pub fn crc32c(bytes: &[u8]) -> u32 {
    !running_crc32c(bytes)
}

/// As ext4 and thin pools have it: not inverted at the end.
pub fn running_crc32c(bytes: &[u8]) -> u32 {
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let mut crc = !0;
    for &[a, b, c, d, e, f, g, h] in steps {
        let [low, second, third, high] = u32::to_le_bytes(crc);
        crc = TABLES[0][usize::from(a ^ low)]
            ^ TABLES[1][usize::from(b ^ second)]
            ^ TABLES[2][usize::from(c ^ third)]
            ^ TABLES[3][usize::from(d ^ high)]
            ^ TABLES[4][usize::from(e)]
            ^ TABLES[5][usize::from(f)]
            ^ TABLES[6][usize::from(g)]
            ^ TABLES[7][usize::from(h)];
    }
    for byte in rest {
        let [low, ..] = crc.to_le_bytes();
        crc = crc >> 8 ^ TABLES[STEP - 1][usize::from(low ^ byte)];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_standard_one() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        // From RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xff; 32]), 0x62A8_AB43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&rising), 0x46DD_794E);
        assert_eq!(crc32c(b""), 0);
    }
}
