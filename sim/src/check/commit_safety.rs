//! Commit safety: what one member knows committed, no member ever knows differently (Raft figure 3,
//! state machine safety, on the log). Holds the one committed log of the run.

use super::log_matching::History;
use super::{Verdict, Violation};
use holdfast_consensus::{Entry, Index, LogId};

/// Name of the property.
pub const PROPERTY: &str = "commit-safety";

/// The committed log: the entry of index i stands at i - 1.
#[derive(Debug, Default)]
pub struct Committed {
    log: Vec<LogId>,
}

impl Committed {
    /// The last committed entry.
    #[must_use]
    pub fn last(&self) -> LogId {
        self.log.last().copied().unwrap_or_default()
    }

    /// The committed entry of an index.
    #[must_use]
    pub fn at(&self, index: Index) -> Option<LogId> {
        let position = usize::try_from(index.0.checked_sub(1)?).ok()?;
        self.log.get(position).copied()
    }

    /// A member says that everything up to `through` is committed. Returns the entries that were
    /// not known committed before.
    ///
    /// # Errors
    /// If another entry was committed in one of these places.
    pub fn on_commit(
        &mut self,
        who: &str,
        through: LogId,
        history: &History,
    ) -> Result<Vec<Entry>, Violation> {
        self.agrees(who, through)?;
        if through.index <= self.last().index {
            return Ok(Vec::new());
        }
        let Some(chain) = history.chain(self.last(), through) else {
            return Err(Violation::new(
                PROPERTY,
                format!(
                    "{who} commits {through}, whose history does not contain {}, committed before",
                    self.last()
                ),
            ));
        };
        let entries =
            chain.iter().filter_map(|id| history.get(*id)).map(|(_, e)| e.clone()).collect();
        self.log.extend(chain);
        Ok(entries)
    }

    /// Checks a claim that an entry is committed, as far as the committed log reaches.
    ///
    /// # Errors
    /// If another entry was committed in that place.
    pub fn agrees(&self, who: &str, claim: LogId) -> Verdict {
        match self.at(claim.index) {
            Some(known) if known != claim => Err(Violation::new(
                PROPERTY,
                format!("{who} holds {claim} for committed, elsewhere {known} was committed there"),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_consensus::Body;

    #[test]
    fn two_entries_committed_in_one_place_are_seen() {
        let mut history = History::default();
        let ids = [(0, 0, 1, 1), (1, 1, 1, 2), (1, 1, 2, 2), (2, 2, 2, 3)];
        for (pt, pi, term, index) in ids {
            let entry = Entry { id: LogId::new(term, index), time: 0, body: Body::Blank };
            history.on_entry("x", LogId::new(pt, pi), &entry).expect("new");
        }
        let mut committed = Committed::default();
        let news = committed.on_commit("a", LogId::new(1, 2), &history).expect("fine");
        assert_eq!(news.len(), 2);
        assert_eq!(committed.on_commit("b", LogId::new(1, 1), &history), Ok(Vec::new()));
        assert!(committed.on_commit("b", LogId::new(2, 2), &history).is_err(), "same place");
        assert!(committed.on_commit("b", LogId::new(2, 3), &history).is_err(), "another branch");
    }
}
