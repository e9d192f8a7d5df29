//! What a run by hand chooses by environment variables.

/// A number; `None` if it is not set.
pub fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// For a run that is not the repetition of another.
pub fn random_seed() -> u64 {
    u64::from_le_bytes(orlop_sys::rand::random_bytes().expect("random bytes"))
}
