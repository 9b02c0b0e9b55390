//! Log matching: if two logs hold an entry with the same index and term, they hold the same entry
//! there, and the same entries before it (Raft figure 3). Checked at each write: an entry, wherever
//! it is written, has the content and the predecessor that it had the first time.

use super::{Verdict, Violation};
use holdfast_consensus::{Entry, LogId};
use std::collections::BTreeMap;

/// Name of the property.
pub const PROPERTY: &str = "log-matching";

/// Every entry that any log ever held.
#[derive(Debug, Default)]
pub struct History {
    entries: BTreeMap<LogId, (LogId, Entry)>,
}

impl History {
    /// A member writes an entry behind `prev`.
    ///
    /// # Errors
    /// If the same entry had another content or predecessor elsewhere.
    pub fn on_entry(&mut self, who: &str, prev: LogId, entry: &Entry) -> Verdict {
        let Some((known_prev, known)) = self.entries.get(&entry.id) else {
            self.entries.insert(entry.id, (prev, entry.clone()));
            return Ok(());
        };
        if *known_prev != prev {
            return Err(Violation::new(
                PROPERTY,
                format!(
                    "{who} writes {} behind {prev}; elsewhere it follows {known_prev}",
                    entry.id
                ),
            ));
        }
        if known != entry {
            return Err(Violation::new(
                PROPERTY,
                format!("{who} writes {} as {entry:?}; elsewhere it is {known:?}", entry.id),
            ));
        }
        Ok(())
    }

    /// The entry before this one, and this one.
    #[must_use]
    pub fn get(&self, id: LogId) -> Option<&(LogId, Entry)> {
        self.entries.get(&id)
    }

    /// The chain that ends at `last`, from behind `base` on, oldest first; `None` if it does not
    /// go back to `base`'s index or an entry of it was never seen.
    #[must_use]
    pub fn chain(&self, base: LogId, last: LogId) -> Option<Vec<LogId>> {
        let mut chain = Vec::new();
        let mut at = last;
        while at.index > base.index {
            chain.push(at);
            at = self.entries.get(&at)?.0;
        }
        chain.reverse();
        (at == base).then_some(chain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_consensus::Body;

    fn entry(term: u64, index: u64, body: &'static [u8]) -> Entry {
        Entry { id: LogId::new(term, index), time: 0, body: Body::Command(body.into()) }
    }

    #[test]
    fn another_content_under_one_id_is_seen() {
        let mut history = History::default();
        let root = LogId::default();
        assert_eq!(history.on_entry("a", root, &entry(1, 1, b"x")), Ok(()));
        assert_eq!(history.on_entry("b", root, &entry(1, 1, b"x")), Ok(()));
        assert!(history.on_entry("b", root, &entry(1, 1, b"y")).is_err());
    }

    #[test]
    fn another_predecessor_is_seen() {
        let mut history = History::default();
        assert_eq!(history.on_entry("a", LogId::new(1, 1), &entry(3, 2, b"x")), Ok(()));
        assert!(history.on_entry("b", LogId::new(2, 1), &entry(3, 2, b"x")).is_err());
    }

    #[test]
    fn chains_go_back_to_their_base_or_do_not_exist() {
        let mut history = History::default();
        let root = LogId::default();
        for (prev, e) in [(root, entry(1, 1, b"a")), (LogId::new(1, 1), entry(2, 2, b"b"))] {
            history.on_entry("a", prev, &e).expect("new");
        }
        assert_eq!(
            history.chain(root, LogId::new(2, 2)),
            Some(vec![LogId::new(1, 1), LogId::new(2, 2)])
        );
        assert_eq!(history.chain(LogId::new(9, 1), LogId::new(2, 2)), None);
        assert_eq!(history.chain(root, LogId::new(5, 5)), None);
    }
}
