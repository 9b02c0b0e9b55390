//! Monotone watermarks: within one life of a replica, term, commit index and applied index never
//! go back (a reopened store may), nothing is applied that is not committed, and a truncation
//! never reaches what is committed or applied (Raft figure 2; R18).

use super::{Verdict, Violation};
use holdfast_consensus::{Index, LogId, Term};

/// Name of the property.
pub const PROPERTY: &str = "watermarks";

/// The marks of one process.
#[derive(Clone, Debug, Default)]
pub struct Watermarks {
    term: Term,
    commit: Index,
    applied: Index,
}

impl Watermarks {
    /// The applied index that a process starts with.
    pub fn start(&mut self, applied: Index) {
        *self = Self { applied, ..Self::default() };
    }

    /// Last applied index that was reported.
    #[must_use]
    pub const fn applied(&self) -> Index {
        self.applied
    }

    /// The term is now this.
    ///
    /// # Errors
    /// If it went back.
    pub fn on_term(&mut self, who: &str, term: Term) -> Verdict {
        if term < self.term {
            return Err(back(who, "term", self.term.0, term.0));
        }
        self.term = term;
        Ok(())
    }

    /// The commit index is now this.
    ///
    /// # Errors
    /// If it did not rise.
    pub fn on_commit(&mut self, who: &str, through: LogId) -> Verdict {
        if through.index < self.commit {
            return Err(back(who, "commit index", self.commit.0, through.index.0));
        }
        self.commit = through.index;
        Ok(())
    }

    /// The applied index is now this.
    ///
    /// # Errors
    /// If it went back or passed the commit index.
    pub fn on_applied(&mut self, who: &str, through: LogId) -> Verdict {
        if through.index < self.applied {
            return Err(back(who, "applied index", self.applied.0, through.index.0));
        }
        self.applied = through.index;
        Ok(())
    }

    /// The store was reopened with this applied index.
    pub fn on_reopened(&mut self, applied: Index) {
        self.applied = applied;
    }

    /// The log was cut from here on.
    ///
    /// # Errors
    /// If a committed or applied entry was cut.
    pub fn on_truncated(&self, who: &str, from: Index) -> Verdict {
        let floor = self.commit.max(self.applied);
        if from <= floor {
            return Err(Violation::new(
                PROPERTY,
                format!(
                    "{who} cuts its log from {from} on, although {floor} is committed or applied"
                ),
            ));
        }
        Ok(())
    }
}

fn back(who: &str, what: &str, before: u64, now: u64) -> Violation {
    Violation::new(PROPERTY, format!("{who}: the {what} went back from {before} to {now}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_that_go_back_are_seen() {
        let mut marks = Watermarks::default();
        marks.start(Index(2));
        assert_eq!(marks.on_term("a", Term(3)), Ok(()));
        assert!(marks.on_term("a", Term(2)).is_err());
        assert_eq!(marks.on_commit("a", LogId::new(1, 5)), Ok(()));
        assert!(marks.on_commit("a", LogId::new(1, 4)).is_err());
        assert_eq!(marks.on_applied("a", LogId::new(1, 4)), Ok(()));
        assert!(marks.on_applied("a", LogId::new(1, 3)).is_err());
        marks.on_reopened(Index(1));
        assert_eq!(marks.on_applied("a", LogId::new(1, 3)), Ok(()));
    }

    #[test]
    fn cutting_what_is_committed_is_seen() {
        let mut marks = Watermarks::default();
        marks.on_commit("a", LogId::new(1, 5)).expect("rises");
        assert!(marks.on_truncated("a", Index(5)).is_err());
        assert_eq!(marks.on_truncated("a", Index(6)), Ok(()));
    }
}
