//! What is appended: bytes that no compression shrinks.

use bytes::Bytes;

/// Bytes that payloads are cut from. More than a batch, less than the caches hold of a peer's work.
const POOL: usize = 4 << 20;

/// Source of payloads. Consecutive entries are consecutive slices, so that the bare disk can be
/// given the whole batch without a copy.
#[derive(Debug)]
pub(crate) struct Payloads {
    pool: Bytes,
    at: usize,
}

/// Entries to append with one sync.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Index of the first entry; one is the first of a log.
    pub(crate) first: u64,
    /// All payloads in a row.
    pub(crate) whole: Bytes,
    /// Bytes of one payload.
    pub(crate) bytes: usize,
}

impl Payloads {
    /// The same bytes in every run (xorshift64* from a fixed seed).
    pub(crate) fn new() -> Self {
        let mut pool = Vec::with_capacity(POOL);
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        while pool.len() < POOL {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            pool.extend_from_slice(&state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
        }
        Self { pool: pool.into(), at: 0 }
    }

    /// The next `count` payloads of `bytes` bytes each, for entries from `first` on.
    pub(crate) fn batch(&mut self, first: u64, count: usize, bytes: usize) -> Batch {
        let len = count * bytes;
        if self.at + len > self.pool.len() {
            self.at = 0;
        }
        let whole = self.pool.slice(self.at..self.at + len);
        self.at += len;
        Batch { first, whole, bytes }
    }
}

impl Batch {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.whole.len() / self.bytes
    }

    /// The payloads with their indexes.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, Bytes)> + '_ {
        let cut = |n: usize| self.whole.slice(n * self.bytes..(n + 1) * self.bytes);
        (self.first..).zip((0..self.len()).map(cut))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_its_entries_in_a_row() {
        let mut payloads = Payloads::new();
        for _ in 0..10 {
            let batch = payloads.batch(5, 256, 4096);
            let joined: Vec<u8> = batch.entries().flat_map(|(_, p)| p.to_vec()).collect();
            assert_eq!(joined, batch.whole);
            let indexes: Vec<u64> = batch.entries().map(|(index, _)| index).collect();
            assert_eq!((indexes[0], indexes[255], indexes.len()), (5, 260, 256));
        }
    }
}
