//! Holes: entries that were acknowledged and are damaged. How they come to be while recovery
//! replays, what is known of them, and how they are filled (R15).

use crate::record::Resume;
use crate::segment::SegmentHeader;
use crate::state::{EntryAt, State};
use holdfast_consensus::damage::{Hole, Identity, allows};
use holdfast_consensus::{Index, LogId, Membership, Term};

/// Most entries that one place of unknown identity may stand for: more is no damage but nonsense.
const GAP_MAX: u64 = 1 << 24;

impl State {
    /// An entry follows that is damaged and whose identity is known.
    pub(crate) fn append_lost(&mut self, segment: u64, id: LogId, crc: u32) -> Result<(), String> {
        self.append(id, self.hole(segment, id.term, crc), None)?;
        self.holes.insert(id.index, true);
        Ok(())
    }

    const fn hole(&self, segment: u64, term: Term, crc: u32) -> EntryAt {
        EntryAt { segment, offset: 0, size: 0, weight: 0, crc, term, time: self.time }
    }

    /// Something of unknown identity is damaged in this segment; `behind` says where the log stood
    /// after it. It may have held entries, and a cut with other entries in its place.
    ///
    /// What stands before it is believed as far as nothing can have cut it: up to the segment's
    /// first index (a deeper cut opens a segment), up to the commit index known by then (R18), and
    /// up to the last entry of the same term as the one behind (log matching: whoever holds an
    /// entry of a term holds all that the leader of this term had before it). The rest is unknown.
    pub(crate) fn gap(&mut self, header: &SegmentHeader, behind: Resume) -> Result<(), String> {
        let index = if behind.follows { behind.id.index.prev() } else { behind.id.index };
        let resume = LogId { index, ..behind.id };
        let mut sure = self.base.index.max(self.commit).max(header.first.prev());
        let run = self.terms.iter().position(|run| run.term == resume.term);
        if let Some(at) = run {
            let end = self.terms.get(at + 1).map_or(self.last.index, |next| next.index.prev());
            let end = end.min(resume.index);
            if end >= self.terms[at].index {
                sure = sure.max(end);
            }
        }
        // As many records are missing as the log grew by: each was an entry, and none a cut.
        let grown = resume.index.0.checked_sub(self.last.index.0);
        if grown.is_some() && grown == behind.missing {
            sure = self.last.index;
        }
        sure = sure.min(self.last.index);
        if resume.index < sure || resume.term < self.id_at(sure).unwrap_or(self.base).term {
            return Err(format!("the log cannot have ended at {resume} behind a damaged place"));
        }
        if resume.index.0 - sure.0 > GAP_MAX {
            return Err(format!("more than {GAP_MAX} entries are missing before {resume}"));
        }
        if sure < self.last.index {
            self.truncate(sure.next())?;
        }
        for index in sure.0 + 1..=resume.index.0 {
            self.entries.push(self.hole(header.unique, Term(0), 0));
            self.holes.insert(Index(index), false);
        }
        if resume.index > sure {
            let new = self.terms.last().is_none_or(|run| run.term != resume.term);
            if self.terms.is_empty() {
                self.terms.push(LogId { term: self.base.term, index: sure.next() });
            }
            let term = self.terms.last().map_or(resume.term, |run| run.term);
            self.last = LogId { term, index: resume.index };
            if !behind.follows {
                self.last = resume;
                if new {
                    self.terms.push(resume);
                }
            }
        }
        Ok(())
    }

    /// True if a hole of unknown identity may be this entry, as far as its neighbours tell.
    pub(crate) fn may_be(&self, id: LogId) -> bool {
        let known = |index: &Index| self.holes.get(index) != Some(&false);
        let term_at = |index| Some(index).filter(known).and_then(|i| self.id_at(i)).map(|i| i.term);
        allows(id, self.base.index, self.last, term_at)
    }

    /// Why an entry does not belong into a hole, if it does not.
    pub(crate) fn misfit(&self, id: LogId, crc: u32) -> Option<String> {
        let held = self.entry(id.index)?;
        match self.holes.get(&id.index) {
            None => Some(format!("there is no hole at {}", id.index)),
            Some(true) if held.term != id.term || held.crc != crc => {
                let (term, known) = (held.term, held.crc);
                Some(format!(
                    "entry {id} with CRC {crc:08x} is another one than the damaged one of term {term} with CRC {known:08x}"
                ))
            }
            Some(false) if !self.may_be(id) => {
                Some(format!("entry {id} does not fit between the terms around the hole"))
            }
            Some(_) => None,
        }
    }

    /// A hole is filled. What is no hole any more, or was cut meanwhile, stays as it is.
    pub(crate) fn fill(
        &mut self,
        id: LogId,
        at: EntryAt,
        membership: Option<Membership>,
    ) -> Result<(), String> {
        if !self.holes.contains_key(&id.index) {
            return Ok(());
        }
        if let Some(why) = self.misfit(id, at.crc) {
            return Err(why);
        }
        let unknown = self.holes.remove(&id.index) == Some(false);
        let place = usize::try_from(id.index.0 - self.base.index.0 - 1).unwrap_or(usize::MAX);
        if let Some(entry) = self.entries.get_mut(place) {
            *entry = at;
        }
        if unknown {
            self.learn_term(id);
        }
        if let Some(membership) = membership {
            self.memberships.retain(|(at, _)| *at != id.index);
            let place = self.memberships.partition_point(|(at, _)| *at < id.index);
            self.memberships.insert(place, (id.index, membership));
        }
        if id.index == self.last.index {
            self.time = self.time.max(at.time);
        }
        Ok(())
    }

    /// An entry that this open had verified cannot be read any more.
    pub(crate) fn lose(&mut self, index: Index) {
        let place = index.0.checked_sub(self.first().0).and_then(|at| usize::try_from(at).ok());
        if let Some(entry) = place.and_then(|at| self.entries.get_mut(at)) {
            (entry.offset, entry.size, entry.weight) = (0, 0, 0);
            self.holes.insert(index, true);
        }
    }

    /// The holes, as the core wants them.
    pub(crate) fn named_holes(&self) -> Vec<Hole> {
        let hole = |(index, known): (&Index, &bool)| {
            let at = self.entry(*index).filter(|_| *known);
            let known = at.map(|at| Identity { term: at.term, crc: at.crc });
            Hole { index: *index, known }
        };
        self.holes.iter().map(hole).collect()
    }

    /// The runs of terms as the core wants them: a hole of unknown identity opens none.
    pub(crate) fn known_terms(&self) -> Vec<LogId> {
        if !self.holes.values().any(|known| !known) {
            return self.terms.clone();
        }
        let mut runs: Vec<LogId> = Vec::new();
        for (n, run) in self.terms.iter().enumerate() {
            let end = self.terms.get(n + 1).map_or(self.last.index.next(), |next| next.index);
            let known = |index: &Index| self.holes.get(index) != Some(&false);
            let start = (run.index.0..end.0).map(Index).find(known);
            if let Some(index) = start
                && runs.last().is_none_or(|last| last.term != run.term)
            {
                runs.push(LogId { index, ..*run });
            }
        }
        runs
    }

    /// Why nothing may be promised from this state, if so (R5): the last entry is not known.
    pub(crate) fn unproved(&self) -> Option<String> {
        let last = self.last;
        (self.holes.get(&last.index) == Some(&false))
            .then(|| format!("the last entry ({last}) is damaged and its identity is not known"))
    }

    /// The term of an entry becomes known: the runs are cut around it.
    fn learn_term(&mut self, id: LogId) {
        let next = id.index.next();
        let unknown = self.holes.get(&next) == Some(&false);
        let behind = self.id_at(next).map(|at| match unknown {
            true => LogId { term: at.term.max(id.term), ..at },
            false => at,
        });
        self.terms.retain(|run| run.index != id.index && run.index != next);
        for run in [Some(id), behind].into_iter().flatten() {
            let place = self.terms.partition_point(|other| other.index < run.index);
            self.terms.insert(place, run);
        }
        self.terms.dedup_by_key(|run| run.term);
    }
}

#[cfg(test)]
#[path = "holes_tests.rs"]
mod tests;
