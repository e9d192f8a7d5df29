use std::path::Path;

use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Context, Result};

/// Bytes from the kernel's generator, waiting at early boot until it is seeded.
pub fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // Up to 256 bytes come whole; a longer read may be cut short by a signal.
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())
            .on("read random bytes from", Path::new("getrandom"))?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::random_bytes;

    #[test]
    fn random_values_differ() {
        let draw = || random_bytes::<512>().ok();
        assert!(draw().is_some());
        assert_ne!(draw(), draw());
    }
}
