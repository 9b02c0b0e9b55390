//! The one generator of the core: SplitMix64, seeded by the world that runs it.

/// SplitMix64 (Steele, Lea, Flood 2014): small, clonable, the same on every machine.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A value in `low..high` (half open); `low` if the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        match high.checked_sub(low) {
            None | Some(0) => low,
            // The bias of a 64-bit modulus over spans this small is far below one in 2^30.
            Some(span) => low + self.next_u64() % span,
        }
    }

    /// True with probability `per_mille / 1000`.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.between(0, 1000) < per_mille
    }
}
