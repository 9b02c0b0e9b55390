//! A shared, contiguous run of log entries.

use crate::types::{Entry, Index, LogId};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A contiguous run of entries: one allocation per batch, shared by persist, sends and apply.
/// Cloning and slicing are cheap.
///
/// Invariant: indexes are consecutive, and terms and times never decrease.
#[derive(Clone)]
pub struct Entries {
    // Not a shared slice: making one would copy every entry.
    shared: Arc<Vec<Entry>>,
    range: Range<usize>,
}

impl Entries {
    /// No entries.
    #[must_use]
    pub fn empty() -> Self {
        Self { shared: Arc::default(), range: 0..0 }
    }

    /// A run of entries, or `None` if they are not contiguous or not ordered.
    #[must_use]
    pub fn new(entries: Vec<Entry>) -> Option<Self> {
        let ordered = entries.windows(2).all(|pair| {
            pair[1].id.index == pair[0].id.index.next()
                && pair[1].id.term >= pair[0].id.term
                && pair[1].time >= pair[0].time
        });
        let starts_well = entries.first().is_none_or(|e| e.id.index > Index(0));
        (ordered && starts_well).then(|| {
            let range = 0..entries.len();
            Self { shared: Arc::new(entries), range }
        })
    }

    /// The entries as a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[Entry] {
        &self.shared[self.range.clone()]
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Identity of the first entry.
    #[must_use]
    pub fn first(&self) -> Option<LogId> {
        self.as_slice().first().map(|e| e.id)
    }

    /// Identity of the last entry.
    #[must_use]
    pub fn last(&self) -> Option<LogId> {
        self.as_slice().last().map(|e| e.id)
    }

    /// The entries whose index is at least `from`.
    #[must_use]
    pub fn starting_at(&self, from: Index) -> Self {
        let skip = match self.first() {
            Some(first) if from > first.index => {
                usize::try_from(from.0 - first.index.0).unwrap_or(usize::MAX).min(self.len())
            }
            _ => 0,
        };
        Self { shared: Arc::clone(&self.shared), range: self.range.start + skip..self.range.end }
    }

    /// The first `count` entries (all if there are fewer).
    #[must_use]
    pub fn take(&self, count: usize) -> Self {
        let end = self.range.start + count.min(self.len());
        Self { shared: Arc::clone(&self.shared), range: self.range.start..end }
    }

    /// The longest prefix of weight at most `max_bytes`, but always at least one entry if any.
    #[must_use]
    pub fn within(&self, max_bytes: usize) -> Self {
        let mut sum = 0usize;
        let fit = self
            .as_slice()
            .iter()
            .take_while(|e| {
                sum = sum.saturating_add(e.weight());
                sum <= max_bytes
            })
            .count();
        self.take(fit.max(1))
    }

    /// Sum of the entries' weights.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.as_slice().iter().map(Entry::weight).sum()
    }

    /// Iterates over the entries.
    pub fn iter(&self) -> std::slice::Iter<'_, Entry> {
        self.as_slice().iter()
    }
}

impl Default for Entries {
    fn default() -> Self {
        Self::empty()
    }
}

impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Entries {}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl<'a> IntoIterator for &'a Entries {
    type Item = &'a Entry;
    type IntoIter = std::slice::Iter<'a, Entry>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
