//! Open-addressed tables for the two questions that the search asks for every transition: was this
//! state seen, and what did this node do with this input before. Their order is never looked at.

/// Folds words into 128 bits: two lanes of multiply-and-fold with different keys.
pub(super) fn digest(words: &[u32]) -> u128 {
    let (mut a, mut b) = (0x9e37_79b9_7f4a_7c15_u64, 0xd6e8_feb8_6659_fd93_u64);
    for word in words {
        a = mix(a ^ u64::from(*word), 0xa076_1d64_78bd_642f);
        b = mix(b.rotate_left(23) ^ u64::from(*word), 0xe703_7ed1_a0b4_28db);
    }
    let len = words.len() as u64;
    let (a, b) = (mix(a ^ len, 0x8ebc_6af0_9c88_c6e3), mix(b ^ len, 0x5899_65cc_7537_4cc3));
    u128::from(a) << 64 | u128::from(b)
}

/// The two halves of a 128-bit product, folded.
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0x2d35_8dcc_aa6c_78a5) * u128::from(b);
    let low = u64::try_from(product & u128::from(u64::MAX)).unwrap_or(0);
    let high = u64::try_from(product >> 64).unwrap_or(0);
    low ^ high
}

/// Where a key would like to stand in a table of a power of two.
fn home(key: u64, slots: usize) -> usize {
    usize::try_from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20).unwrap_or(0) & (slots - 1)
}

/// A set of 128-bit digests.
#[derive(Debug)]
pub(super) struct Seen {
    /// Zero is an empty slot. Invariant: a power of two of them, at most 7/8 taken.
    slots: Vec<u128>,
    len: usize,
}

impl Seen {
    /// An empty set.
    pub(super) fn new() -> Self {
        Self { slots: vec![0; 1 << 12], len: 0 }
    }

    /// Digests held.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a digest; false if it was there.
    pub(super) fn insert(&mut self, digest: u128) -> bool {
        if self.len * 8 >= self.slots.len() * 7 {
            self.grow();
        }
        let added = Self::place(&mut self.slots, digest.max(1));
        self.len += usize::from(added);
        added
    }

    fn place(slots: &mut [u128], digest: u128) -> bool {
        let low = u64::try_from(digest & u128::from(u64::MAX)).unwrap_or(0);
        let mut at = home(low, slots.len());
        loop {
            match slots[at] {
                0 => {
                    slots[at] = digest;
                    return true;
                }
                held if held == digest => return false,
                _ => at = (at + 1) & (slots.len() - 1),
            }
        }
    }

    fn grow(&mut self) {
        let mut wider = vec![0; self.slots.len() * 2];
        for digest in self.slots.iter().filter(|d| **d != 0) {
            Self::place(&mut wider, *digest);
        }
        self.slots = wider;
    }
}

/// A map from 64-bit keys to 32-bit values. Keys are never zero.
#[derive(Debug)]
pub(super) struct Memo {
    /// Invariant: a power of two of them, at most 3/4 taken.
    slots: Vec<(u64, u32)>,
    len: usize,
}

impl Memo {
    /// An empty map.
    pub(super) fn new() -> Self {
        Self { slots: vec![(0, 0); 1 << 12], len: 0 }
    }

    /// The value of a key.
    pub(super) fn get(&self, key: u64) -> Option<u32> {
        let mut at = home(key, self.slots.len());
        loop {
            match self.slots[at] {
                (0, _) => return None,
                (held, value) if held == key => return Some(value),
                _ => at = (at + 1) & (self.slots.len() - 1),
            }
        }
    }

    /// Sets the value of a key that has none.
    pub(super) fn insert(&mut self, key: u64, value: u32) {
        assert!(key != 0, "zero marks an empty slot");
        if self.len * 4 >= self.slots.len() * 3 {
            let mut wider = vec![(0, 0); self.slots.len() * 2];
            for (key, value) in self.slots.iter().filter(|(key, _)| *key != 0) {
                Self::place(&mut wider, *key, *value);
            }
            self.slots = wider;
        }
        Self::place(&mut self.slots, key, value);
        self.len += 1;
    }

    fn place(slots: &mut [(u64, u32)], key: u64, value: u32) {
        let mut at = home(key, slots.len());
        while slots[at].0 != 0 {
            at = (at + 1) & (slots.len() - 1);
        }
        slots[at] = (key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_what_was_added_while_it_grows() {
        let mut seen = Seen::new();
        for n in 0..20_000 {
            assert!(seen.insert(digest(&[n, 7])), "{n} is new");
        }
        for n in 0..20_000 {
            assert!(!seen.insert(digest(&[n, 7])), "{n} was there");
        }
        assert_eq!(seen.len(), 20_000);
        assert!(seen.insert(digest(&[7, 3])) != seen.insert(digest(&[7, 3])));
    }

    #[test]
    fn a_map_answers_with_what_was_set() {
        let mut memo = Memo::new();
        for key in 1..20_000 {
            assert_eq!(memo.get(key), None);
            memo.insert(key, u32::try_from(key * 3).expect("small"));
        }
        for key in 1..20_000 {
            assert_eq!(memo.get(key), Some(u32::try_from(key * 3).expect("small")));
        }
    }

    #[test]
    fn the_order_and_the_number_of_words_count() {
        assert_ne!(digest(&[1, 2]), digest(&[2, 1]));
        assert_ne!(digest(&[1]), digest(&[1, 0]));
        assert_ne!(digest(&[]), digest(&[0]));
    }
}
