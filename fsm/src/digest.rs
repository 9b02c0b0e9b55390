//! The state digest: an order-independent 128-bit sum over record hashes.
//!
//! Guarantees: equal sets of records give equal digests on every machine, whatever the order of
//! the writes; the sum is kept incrementally (add what is written, subtract what was replaced).
//! Assumes: nobody searches for collisions. The digest finds rot, bugs and strangers' writes; it
//! is not a signature.

/// Multipliers and increments of the two lanes: odd, taken from the fractional parts of the
/// golden ratio, of the square roots of 3 and 5, and of splitmix64. Frozen: digests are compared
/// between builds and stand in snapshots.
const LANES: [Lane; 2] = [
    Lane { seed: 0x9e37_79b9_7f4a_7c15, word: 0xbb67_ae85_84ca_a73b, step: 0xbf58_476d_1ce4_e5b9 },
    Lane { seed: 0x3c6e_f372_fe94_f82b, word: 0x94d0_49bb_1331_11eb, step: 0xd6e8_feb8_6659_fd93 },
];

#[derive(Copy, Clone)]
struct Lane {
    seed: u64,
    word: u64,
    step: u64,
}

impl Lane {
    /// Takes one word. Each operation is a bijection of the state for a fixed word, and of the
    /// word for a fixed state: two inputs that differ in one word only never meet again.
    #[inline]
    fn take(self, state: u64, word: u64) -> u64 {
        let mixed = word.wrapping_mul(self.word);
        (state ^ mixed ^ (mixed >> 32)).rotate_left(29).wrapping_mul(self.step).wrapping_add(1)
    }

    /// Takes bytes after their length, the last word padded with zeros.
    #[inline]
    fn take_bytes(self, mut state: u64, bytes: &[u8]) -> u64 {
        state = self.take(state, bytes.len() as u64);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            let mut le = [0u8; 8];
            le.copy_from_slice(word);
            state = self.take(state, u64::from_le_bytes(le));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut le = [0u8; 8];
            le[..rest.len()].copy_from_slice(rest);
            state = self.take(state, u64::from_le_bytes(le));
        }
        state
    }

    /// The finalizer of splitmix64: every bit of the state reaches every bit of the result.
    fn finish(state: u64) -> u64 {
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Hash of one record: 128 bits over table, key and value.
#[must_use]
pub fn record_hash(table: u8, key: &[u8], value: &[u8]) -> u128 {
    let [high, low] = LANES.map(|lane| {
        let state = lane.take(lane.seed, u64::from(table));
        let state = lane.take_bytes(state, key);
        Lane::finish(lane.take_bytes(state, value))
    });
    u128::from(high) << 64 | u128::from(low)
}

#[cfg(test)]
mod tests {
    use super::record_hash;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_hash_of_known_records_never_changes() {
        assert_eq!(record_hash(0, b"", b""), 0x06df_5b01_81bd_e101_1a41_0edb_ec15_8ddb);
        assert_eq!(record_hash(5, b"key", b"value"), 0xc189_c9db_4836_f18d_6364_96e6_87cb_a10f);
        assert_eq!(
            record_hash(1, b"orders", &[7u8; 100]),
            0xb817_bb2d_c4b6_c30d_f09f_53a2_021b_bd5f
        );
    }

    #[test]
    fn moving_a_byte_between_table_key_and_value_changes_the_hash() {
        let all = [
            record_hash(1, b"ab", b"c"),
            record_hash(1, b"a", b"bc"),
            record_hash(1, b"", b"abc"),
            record_hash(1, b"abc", b""),
            record_hash(2, b"ab", b"c"),
            record_hash(1, b"ab", b"c\0"),
            record_hash(1, b"ab\0", b"c"),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn a_hundred_thousand_small_records_give_different_halves() {
        let mut high = BTreeSet::new();
        let mut low = BTreeSet::new();
        for n in 0u32..100_000 {
            let hash = record_hash(5, &n.to_be_bytes(), b"x");
            assert!(high.insert(hash >> 64), "upper half repeats at {n}");
            assert!(low.insert(hash << 64), "lower half repeats at {n}");
        }
    }

    #[test]
    fn every_flipped_bit_changes_about_half_of_the_bits() {
        let value: Vec<u8> = (0u8..40).collect();
        let base = record_hash(3, b"somebody", &value);
        let mut changed = 0u32;
        for bit in 0..value.len() * 8 {
            let mut other = value.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            let distance = (base ^ record_hash(3, b"somebody", &other)).count_ones();
            assert!((30..=98).contains(&distance), "bit {bit} changes {distance} bits");
            changed += distance;
        }
        let mean = f64::from(changed) / 320.0;
        assert!((62.0..66.0).contains(&mean), "mean {mean}");
    }

    proptest! {
        #[test]
        fn records_that_differ_anywhere_differ_in_their_hash(
            a in (0u8..8, prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..80)),
            b in (0u8..8, prop::collection::vec(any::<u8>(), 0..40), prop::collection::vec(any::<u8>(), 0..80)),
        ) {
            let equal = a == b;
            prop_assert_eq!(record_hash(a.0, &a.1, &a.2) == record_hash(b.0, &b.1, &b.2), equal);
        }
    }
}
