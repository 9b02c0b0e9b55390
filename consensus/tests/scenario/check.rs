//! What an observer of the whole cluster knows.

use holdfast_consensus::core::Core;
use holdfast_consensus::entries::Entries;
use holdfast_consensus::types::*;
use std::collections::BTreeMap;

/// The observer.
#[derive(Default)]
pub(crate) struct Ghost {
    leaders: BTreeMap<Term, MemberId>,
    /// Every entry ever written, with the entry before it.
    written: BTreeMap<LogId, Entry>,
    /// Every committed entry, with the lowest term in which it was seen committed.
    committed: BTreeMap<Index, (LogId, Term)>,
    reads: BTreeMap<Ticket, Index>,
    pub(crate) served: u64,
}

impl Ghost {
    pub(crate) fn last_committed(&self) -> Index {
        self.committed.keys().next_back().copied().unwrap_or(Index(0))
    }

    /// Log matching: one identity, one content.
    pub(crate) fn appended(&mut self, entries: &Entries) -> Result<(), String> {
        for entry in entries {
            let known = self.written.entry(entry.id).or_insert_with(|| entry.clone());
            if known != entry {
                return Err(format!("two entries with one identity: {known:?} and {entry:?}"));
            }
        }
        Ok(())
    }

    /// State machine safety: one index, one committed entry.
    pub(crate) fn committed(
        &mut self,
        by: MemberId,
        term: Term,
        ids: &[(LogId, Entries)],
    ) -> Result<(), String> {
        for (id, _) in ids {
            let known = self.committed.entry(id.index).or_insert((*id, term));
            if known.0 != *id {
                return Err(format!("{by} commits {id}, but {} was committed", known.0));
            }
            known.1 = known.1.min(term);
        }
        Ok(())
    }

    /// Election safety and leader completeness.
    pub(crate) fn elected(&mut self, id: MemberId, core: &Core) -> Result<(), String> {
        let term = core.hard().term;
        let first = *self.leaders.entry(term).or_insert(id);
        if first != id {
            return Err(format!("{first} and {id} both lead {term}"));
        }
        for (index, (committed, seen)) in &self.committed {
            if *seen < term
                && *index >= core.first()
                && core.term_at(*index) != Some(committed.term)
            {
                let has = core.term_at(*index);
                return Err(format!("{id} leads {term} without {committed}: {has:?}"));
            }
        }
        Ok(())
    }

    pub(crate) fn read_asked(&mut self, ticket: Ticket) {
        self.reads.insert(ticket, self.last_committed());
    }

    /// A read must cover all that was committed anywhere when it was asked.
    pub(crate) fn read_at(&mut self, ticket: Ticket, index: Index) -> Result<(), String> {
        self.served += 1;
        match self.reads.remove(&ticket) {
            Some(floor) if index < floor => Err(format!("read {ticket} at {index} misses {floor}")),
            Some(_) => Ok(()),
            None => Err(format!("read {ticket} was served twice")),
        }
    }
}
