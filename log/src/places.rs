//! Where the entries of a log lie, in order. The writer has one list, and the readers another that
//! lags behind it; both hold the same chunks once these are full, so that a long log costs its places
//! once, a list grows without ever being moved, and what is given up is given back chunk by chunk
//! (BUGS B33).

use crate::state::EntryAt;
use std::collections::VecDeque;
use std::sync::Arc;

/// Places of a chunk.
const CHUNK: usize = 1024;

/// A list of places. Numbers count from the first that is held.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Slots at the beginning of which nothing is held any more; fewer than [`CHUNK`].
    skip: usize,
    /// Whole chunks. One that another list holds too is copied before it is changed.
    full: VecDeque<Arc<Vec<EntryAt>>>,
    /// What does not fill a chunk yet; fewer than [`CHUNK`] slots.
    tail: Vec<EntryAt>,
}

impl Places {
    /// How many are held.
    pub(crate) fn len(&self) -> usize {
        self.full.len() * CHUNK + self.tail.len() - self.skip
    }

    /// The place with this number.
    pub(crate) fn get(&self, number: usize) -> Option<&EntryAt> {
        let slot = self.skip.checked_add(number)?;
        match self.full.get(slot / CHUNK) {
            Some(chunk) => chunk.get(slot % CHUNK),
            None => self.tail.get(slot - self.full.len() * CHUNK),
        }
    }

    /// The place with this number, to be changed here and in no other list.
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut EntryAt> {
        let slot = self.skip.checked_add(number)?;
        let whole = self.full.len() * CHUNK;
        match self.full.get_mut(slot / CHUNK) {
            Some(chunk) => Arc::make_mut(chunk).get_mut(slot % CHUNK),
            None => self.tail.get_mut(slot - whole),
        }
    }

    /// The last one.
    pub(crate) fn back(&self) -> Option<&EntryAt> {
        self.get(self.len().checked_sub(1)?)
    }

    /// All from this number on.
    pub(crate) fn from(&self, number: usize) -> impl Iterator<Item = &EntryAt> {
        let slot = self.skip.saturating_add(number);
        let first = (slot / CHUNK).min(self.full.len());
        let mut within = slot - first * CHUNK;
        let chunks = self.full.range(first..).map(|chunk| chunk.as_slice());
        chunks.chain([self.tail.as_slice()]).flat_map(move |chunk| {
            let begin = std::mem::take(&mut within).min(chunk.len());
            &chunk[begin..]
        })
    }

    pub(crate) fn push(&mut self, at: EntryAt) {
        self.tail.push(at);
        if self.tail.len() == CHUNK {
            let tail = std::mem::replace(&mut self.tail, Vec::with_capacity(CHUNK));
            self.full.push_back(Arc::new(tail));
        }
    }

    /// Keeps the first `keep` of them.
    pub(crate) fn truncate(&mut self, keep: usize) {
        if keep >= self.len() {
            return;
        }
        let keep = self.skip + keep;
        let chunk = keep / CHUNK;
        if let Some(cut) = self.full.get_mut(chunk) {
            self.tail = std::mem::take(Arc::make_mut(cut));
            self.full.truncate(chunk);
        }
        self.tail.truncate(keep % CHUNK);
    }

    /// Gives up the first `gone` of them.
    pub(crate) fn give_up(&mut self, gone: usize) {
        self.skip += gone.min(self.len());
        let chunks = self.skip / CHUNK;
        self.full.drain(..chunks);
        self.skip %= CHUNK;
    }

    /// Goes on as `other` does, of which this is the beginning: whole chunks are shared.
    pub(crate) fn follow(&mut self, other: &Self) {
        assert!(self.len() <= other.len(), "what is shown is held");
        if self.skip != other.skip {
            // Their chunks begin elsewhere, since less was shown than was given up.
            *self = other.clone();
            return;
        }
        while let Some(chunk) = other.full.get(self.full.len()) {
            self.full.push_back(Arc::clone(chunk));
            self.tail.clear();
        }
        self.tail.extend_from_slice(&other.tail[self.tail.len()..]);
    }

    /// Slots that memory is held for.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.full.len() * CHUNK + self.tail.capacity()
    }

    /// How many chunks `other` holds too.
    #[cfg(test)]
    pub(crate) fn shared_with(&self, other: &Self) -> usize {
        self.full.iter().zip(&other.full).filter(|(a, b)| Arc::ptr_eq(a, b)).count()
    }
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
