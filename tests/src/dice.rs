//! Choices that can be repeated.

pub struct Dice {
    state: u64,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring choices.
        let mut dice = Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 };
        for _ in 0..8 {
            dice.roll(u64::MAX);
        }
        dice
    }

    /// Below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % sides
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let sides = u64::try_from(from.len()).expect("a short list");
        let index = usize::try_from(self.roll(sides)).expect("an index");
        &from[index]
    }

    /// Once in `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.roll(times) == 0
    }
}
