//! Damage below the durable end of a log, as recovery and reads name it (R14, R15; "Protocol-Aware
//! Recovery for Consensus-Based Storage", Alagappan and others, FAST 2018).
//!
//! An entry that does not verify any more is a *hole*. Where the log has kept what the entry was
//! (a term and a checksum beside the record), any member can give it back; where it has not, only
//! a leader can say what belongs there, and only of what is committed.

use crate::codec::{self, CodecError};
use crate::types::{Body, Entry, Index, LogId, Micros, Recovered, Term};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// What identifies an entry at its index among all members.
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Identity {
    /// Term of the entry.
    pub term: Term,
    /// [`entry_crc`] of the entry.
    pub crc: u32,
}

/// An entry that is durable here and does not verify.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hole {
    /// Its index.
    pub index: Index,
    /// Its identity, where the log has kept it elsewhere.
    pub known: Option<Identity>,
}

/// Aligned, so that the checksum takes whole words of it: every read of an entry pays for this.
#[repr(align(8))]
struct Head([u8; 25]);

/// CRC-32C over term, index, form, log time and content of an entry, whatever record holds it: the
/// same on every member. `form` is 0 for an empty entry, 1 for a command, 2 for a configuration
/// (whose content is its encoding by [`codec`]).
#[must_use]
pub fn entry_crc(id: LogId, form: u8, time: Micros, content: &[u8]) -> u32 {
    let mut head = Head([0; 25]);
    head.0[0..8].copy_from_slice(&id.term.0.to_le_bytes());
    head.0[8..16].copy_from_slice(&id.index.0.to_le_bytes());
    head.0[16] = form;
    head.0[17..25].copy_from_slice(&time.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&head.0), content)
}

impl Entry {
    /// What identifies this entry.
    ///
    /// # Errors
    /// [`CodecError`] if a configuration is too large to be encoded; no log holds such an entry.
    pub fn identity(&self) -> Result<Identity, CodecError> {
        let (form, content) = match &self.body {
            Body::Blank => (0, Bytes::new()),
            Body::Command(bytes) => (1, bytes.clone()),
            Body::Membership(m) => (2, codec::encode("configuration", m)?.into()),
        };
        let crc = entry_crc(self.id, form, self.time, &content);
        Ok(Identity { term: self.id.term, crc })
    }
}

impl Recovered {
    /// Term of the entry at `index`; `None` outside of base and log, and for a hole of unknown
    /// identity.
    #[must_use]
    pub fn term_at(&self, index: Index) -> Option<Term> {
        if index == self.base.index {
            return Some(self.base.term);
        }
        if index < self.first || index > self.last.index {
            return None;
        }
        match hole_at(&self.holes, index) {
            Some(hole) => hole.known.map(|known| known.term),
            None => self.terms.iter().rfind(|run| run.index <= index).map(|run| run.term),
        }
    }

    /// True if the entry is the log's, or nothing that was proved says that it is not: a hole of
    /// unknown identity may be any entry whose term its neighbours allow.
    #[must_use]
    pub fn may_hold(&self, id: LogId) -> bool {
        if id.index < self.base.index || id.index > self.last.index {
            return false;
        }
        if let Some(term) = self.term_at(id.index) {
            return term == id.term;
        }
        let known = |index: Index| self.term_at(index);
        allows(id, self.base.index, self.last, known)
    }
}

/// The hole at an index, from a list in ascending order.
#[must_use]
pub fn hole_at(holes: &[Hole], index: Index) -> Option<&Hole> {
    holes.binary_search_by_key(&index, |hole| hole.index).ok().and_then(|at| holes.get(at))
}

/// True if an entry of `id`'s term may stand at its index, between the nearest neighbours whose
/// terms `term_at` knows (the base's is always known): terms never fall along a log. The term of
/// the last entry is known even where nothing else of it is, so nothing else fits there (R15).
#[must_use]
pub fn allows(
    id: LogId,
    base: Index,
    last: LogId,
    term_at: impl Fn(Index) -> Option<Term>,
) -> bool {
    if id.index >= last.index {
        return id == last;
    }
    let mut below = id.index;
    let low = loop {
        if below <= base {
            break term_at(base).unwrap_or_default();
        }
        below = below.prev();
        if let Some(term) = term_at(below) {
            break term;
        }
    };
    let mut above = id.index;
    let high = loop {
        if above >= last.index {
            break last.term;
        }
        above = above.next();
        if let Some(term) = term_at(above) {
            break term;
        }
    };
    low <= id.term && id.term <= high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{MemberId, Membership};

    fn hole(index: u64, known: Option<u64>) -> Hole {
        let known = known.map(|term| Identity { term: Term(term), crc: 7 });
        Hole { index: Index(index), known }
    }

    fn damaged() -> Recovered {
        Recovered {
            first: Index(1),
            last: LogId::new(4, 8),
            terms: vec![LogId::new(1, 1), LogId::new(2, 3), LogId::new(4, 7)],
            holes: vec![hole(4, Some(2)), hole(6, None)],
            ..Recovered::default()
        }
    }

    #[test]
    fn a_hole_of_unknown_identity_has_no_term_and_may_be_what_its_neighbours_allow() {
        let log = damaged();
        assert_eq!(log.term_at(Index(4)), Some(Term(2)));
        assert_eq!(log.term_at(Index(6)), None);
        assert_eq!(log.term_at(Index(9)), None);
        for (term, may) in [(1, false), (2, true), (3, true), (4, true), (5, false)] {
            assert_eq!(log.may_hold(LogId::new(term, 6)), may, "{term}");
        }
        assert!(log.may_hold(LogId::new(2, 4)) && !log.may_hold(LogId::new(3, 4)));
        assert!(log.may_hold(LogId::new(4, 8)) && !log.may_hold(LogId::new(4, 9)));
    }

    #[test]
    fn the_identity_of_an_entry_covers_all_of_it() {
        let body = |n: u8| Body::Command(Bytes::from(vec![n; 9]));
        let entry = |term, index, time, body| Entry { id: LogId::new(term, index), time, body };
        let voters = |n| Membership::of_voters([(MemberId(n), "n".into())]);
        let all = [
            entry(1, 1, 5, body(1)),
            entry(2, 1, 5, body(1)),
            entry(1, 2, 5, body(1)),
            entry(1, 1, 6, body(1)),
            entry(1, 1, 5, body(2)),
            entry(1, 1, 5, Body::Blank),
            entry(1, 1, 5, Body::Command(Bytes::new())),
            entry(1, 1, 5, Body::Membership(voters(1).into())),
            entry(1, 1, 5, Body::Membership(voters(2).into())),
        ];
        let mut seen: Vec<u32> = all.iter().map(|e| e.identity().expect("small").crc).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all.len());
        // Pinned: members of different builds must agree on it.
        let pinned = entry(3, 9, 77, body(4)).identity().expect("small");
        assert_eq!(pinned, Identity { term: Term(3), crc: 0x1b06_76c4 });
    }
}
