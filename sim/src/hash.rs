//! The hash of a run: equal runs have equal hashes, whatever machine or thread they ran on.

/// Folds values in order.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceHash(u64);

impl TraceHash {
    /// Folds a number in.
    pub const fn fold(&mut self, value: u64) {
        let z = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = (z ^ (z >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb).rotate_left(23);
    }

    /// Folds bytes in.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.fold(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.fold(u64::from_le_bytes(last));
    }

    /// The hash so far.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }
}

/// Hash of one piece of bytes.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> u64 {
    let mut hash = TraceHash::default();
    hash.bytes(bytes);
    hash.value()
}
