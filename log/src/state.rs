//! What the log holds, as the records say: the same steps while recovery replays them and while
//! the writer adds them.

use crate::places::Places;
use crate::record::{Content, EntryFacts, Item, Kind, Meta};
use crate::segment::SegmentHeader;
use holdfast_consensus::{
    HardState, Index, LogId, Membership, Micros, Recovered, SnapshotMeta, Term,
};
use std::collections::BTreeMap;

/// Where an entry lies.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryAt {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    /// Bytes of the whole record; zero if the entry is damaged: a hole.
    pub(crate) size: u64,
    pub(crate) weight: u32,
    /// Identity among members, with the index; without meaning in a hole of unknown identity.
    pub(crate) crc: u32,
    pub(crate) term: Term,
    pub(crate) time: Micros,
}

impl EntryAt {
    /// True if the entry cannot be read.
    pub(crate) const fn is_hole(&self) -> bool {
        self.size == 0
    }
}

/// The live content of the log.
///
/// Invariants: `entries` holds `base.index + 1 ..= last.index` without a gap; `terms` holds the
/// first entry of every run of equal terms among them; the live entries of one segment begin at
/// that segment's first index or above, since whatever cuts below it opens a fresh segment; entries
/// of size zero and `holes` are the same. The term of a hole of unknown identity has no meaning.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) hard: HardState,
    pub(crate) base: LogId,
    pub(crate) base_time: Micros,
    pub(crate) entries: Places,
    pub(crate) last: LogId,
    pub(crate) time: Micros,
    pub(crate) terms: Vec<LogId>,
    /// Configurations by index; the first may be at or below the base.
    pub(crate) memberships: Vec<(Index, Membership)>,
    /// The newest base record, while the segment that holds it may be copied.
    pub(crate) rebased: Option<(u64, u64, Box<SnapshotMeta>)>,
    pub(crate) commit: Index,
    pub(crate) boot: u64,
    pub(crate) meta: Meta,
    /// Damaged entries; true where the identity is known (R15).
    pub(crate) holes: BTreeMap<Index, bool>,
}

impl State {
    /// What there is to report of it; of snapshots it knows nothing, nor whether it is held.
    pub(crate) fn recovered(&self) -> Recovered {
        Recovered {
            hard: self.hard,
            first: self.first(),
            base: self.base,
            last: self.last,
            time: self.time,
            terms: self.known_terms(),
            memberships: self.memberships.clone(),
            snapshot: None,
            commit: self.commit,
            boot: self.boot,
            holes: self.named_holes(),
            held: None,
        }
    }

    /// First index that is held.
    pub(crate) fn first(&self) -> Index {
        self.base.index.next()
    }

    pub(crate) fn entry(&self, index: Index) -> Option<&EntryAt> {
        let at = index.0.checked_sub(self.first().0)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// Identity of the entry at `index`, if it is held or is the base.
    pub(crate) fn id_at(&self, index: Index) -> Option<LogId> {
        if index == self.base.index {
            return Some(self.base);
        }
        if index <= self.base.index || index > self.last.index {
            return None;
        }
        let run = self.terms.partition_point(|start| start.index <= index);
        Some(LogId { term: self.terms.get(run.checked_sub(1)?)?.term, index })
    }

    /// Log time of the entry at `index`, if it is held or is the base.
    pub(crate) fn time_at(&self, index: Index) -> Option<Micros> {
        if index == self.base.index {
            return Some(self.base_time);
        }
        self.entry(index).map(|e| e.time)
    }

    /// The configuration in force at `index`.
    pub(crate) fn membership_at(&self, index: Index) -> Option<&(Index, Membership)> {
        self.memberships.iter().rev().find(|(at, _)| *at <= index)
    }

    /// What a fresh segment that begins behind `prev` has to repeat.
    pub(crate) fn meta_at(&self, prev: LogId) -> Meta {
        Meta {
            boot: self.boot,
            commit: self.commit,
            time: self.time_at(prev.index).unwrap_or(self.time),
            membership: self.membership_at(prev.index).cloned(),
            ..self.meta.clone()
        }
    }

    pub(crate) fn append(
        &mut self,
        id: LogId,
        at: EntryAt,
        membership: Option<Membership>,
    ) -> Result<(), String> {
        if id.index != self.last.index.next() || id.term < self.last.term || at.time < self.time {
            return Err(format!("entry {id} cannot follow {}", self.last));
        }
        if self.terms.last().is_none_or(|run| run.term != id.term) {
            self.terms.push(id);
        }
        if let Some(membership) = membership {
            self.memberships.push((id.index, membership));
        }
        self.time = at.time;
        self.last = id;
        self.entries.push(at);
        Ok(())
    }

    /// Cuts the log from `from` on. `from` must lie above the base.
    pub(crate) fn truncate(&mut self, from: Index) -> Result<(), String> {
        let last = self.id_at(from.prev()).filter(|_| from > self.base.index);
        let Some(last) = last else {
            return Err(format!("a cut from {from} does not fit {}..={}", self.first(), self.last));
        };
        let keep = usize::try_from(last.index.0 - self.base.index.0).unwrap_or(usize::MAX);
        self.entries.truncate(keep);
        self.terms.retain(|run| run.index < from);
        self.memberships.retain(|(at, _)| *at < from);
        self.holes.split_off(&from);
        self.time = self.entries.back().map_or(self.base_time, |e| e.time);
        self.last = last;
        Ok(())
    }

    /// True if a snapshot that ends at `last` leaves the suffix behind it standing (R25).
    pub(crate) fn keeps_suffix(&self, last: LogId) -> bool {
        match self.holes.get(&last.index) {
            Some(false) => self.may_be(last),
            _ => self.id_at(last.index) == Some(last),
        }
    }

    /// Moves the base to the end of a snapshot. With the suffix kept, nothing happens if the base
    /// is there or above already; without it the log is empty behind the snapshot, whatever it
    /// held (what older segments would say of it may be gone).
    pub(crate) fn rebase(&mut self, meta: &SnapshotMeta, kept: bool) -> Result<(), String> {
        if kept && meta.last.index <= self.base.index {
            return Ok(());
        }
        if kept {
            if self.id_at(meta.last.index).is_none() {
                return Err(format!("a base at {} is behind the end {}", meta.last, self.last));
            }
            self.drop_through(meta.last);
            // The entry at its end may have been a hole, of which no time was known.
            self.time = self.time.max(meta.time);
        } else {
            self.entries = Places::default();
            self.terms.clear();
            self.memberships.clear();
            self.holes.clear();
            self.last = meta.last;
            self.time = meta.time;
        }
        self.base = meta.last;
        self.base_time = meta.time;
        self.memberships.retain(|(at, _)| *at > meta.last.index);
        self.memberships.insert(0, (meta.membership_index, meta.membership.clone()));
        Ok(())
    }

    /// Forgets the entries up to `through`, which becomes the base.
    pub(crate) fn compact(&mut self, through: Index) {
        let Some(base) = self.id_at(through).filter(|id| id.index > self.base.index) else {
            return;
        };
        let time = self.time_at(through).unwrap_or(self.base_time);
        self.drop_through(base);
        (self.base, self.base_time) = (base, time);
        // The configuration in force at the base stays, whatever its index.
        let newer = self.memberships.partition_point(|(at, _)| *at <= through);
        self.memberships.drain(..newer.saturating_sub(1));
    }

    fn drop_through(&mut self, base: LogId) {
        let gone = usize::try_from(base.index.0 - self.base.index.0).unwrap_or(usize::MAX);
        self.holes = self.holes.split_off(&base.index.next());
        self.entries.give_up(gone);
        let run = self.terms.partition_point(|start| start.index <= base.index);
        let first = base.index.next();
        let crossing = run.checked_sub(1).map(|at| self.terms[at].term);
        self.terms.drain(..run);
        let starts = self.terms.first().map(|start| start.index);
        if let Some(term) = crossing
            && first <= self.last.index
            && starts != Some(first)
        {
            self.terms.insert(0, LogId { term, index: first });
        }
    }

    /// Replays one record of the segment with this header, whose first meta record was `opening`.
    pub(crate) fn replay(
        &mut self,
        header: &SegmentHeader,
        opening: Option<&Meta>,
        found: &crate::segment::Found,
    ) -> Result<(), String> {
        match &found.content {
            Content::Batch(batch) => self.hard = batch.head.hard,
            Content::Entry(facts) => {
                let at = place_of(header, found, facts);
                self.append(found.header.id, at, facts.membership.as_deref().cloned())?;
            }
            Content::Repair(facts) => {
                let at = place_of(header, found, facts);
                let membership = facts.membership.as_deref().cloned();
                self.remember(found.header.id.index, membership.as_ref());
                self.fill(found.header.id, at, membership)?;
            }
            // A lost repair fills nothing: the hole is open again.
            Content::Lost { .. } if found.header.kind == Kind::Repair => {}
            Content::Lost { crc } => self.append_lost(header.unique, found.header.id, *crc)?,
            Content::Gap(resume) => self.gap(header, **resume)?,
            Content::Truncate { .. } => {
                let from = found.header.id.index;
                // Older segments that held the entry before may be gone: this one stands alone.
                if from <= self.base.index && from == header.first {
                    let lost = "the record that says what came before the segment is lost";
                    self.begin(header, opening.ok_or(lost)?);
                } else {
                    self.truncate(from)?;
                }
            }
            Content::Watermark { commit, .. } => self.commit = self.commit.max(*commit),
            Content::Base { kept, meta } => {
                self.rebase(meta, *kept)?;
                self.rebased = Some((header.unique, found.offset, meta.clone()));
            }
            Content::Meta(meta) => {
                self.boot = self.boot.max(meta.boot);
                self.commit = self.commit.max(meta.commit);
                self.meta = Meta { membership: None, ..meta.as_ref().clone() };
            }
            Content::Seal | Content::Index | Content::LostBatch { .. } => {}
        }
        Ok(())
    }

    /// A configuration that was given back while the segment that is now the oldest was in use: what
    /// that one repeats of the log before it was written without it. Only what is committed is given
    /// up, and a cut this deep begins anew, so that it is the one that was in force.
    fn remember(&mut self, index: Index, membership: Option<&Membership>) {
        let newest = self.memberships.iter().rfind(|(at, _)| *at <= self.base.index);
        let newer = newest.is_none_or(|(at, _)| *at < index);
        if let Some(membership) = membership.filter(|_| newer && index <= self.base.index) {
            self.memberships.retain(|(at, _)| *at > self.base.index);
            self.memberships.insert(0, (index, membership.clone()));
        }
    }

    /// Starts from what a segment says about the log before it.
    pub(crate) fn begin(&mut self, header: &SegmentHeader, opening: &Meta) {
        self.entries = Places::default();
        self.terms.clear();
        self.holes.clear();
        (self.base, self.base_time) = (header.prev, opening.time);
        (self.last, self.time) = (header.prev, opening.time);
        self.memberships = opening.membership.iter().cloned().collect();
    }

    /// Takes in an item that was written at `offset` of `segment`.
    pub(crate) fn written(&mut self, segment: u64, offset: u64, item: &Item) -> Result<(), String> {
        match item {
            Item::Entry { id, time, weight, membership, crc, .. } => {
                let (size, weight, time, crc) = (item.size(), *weight, *time, *crc);
                let at = EntryAt { segment, offset, size, weight, crc, term: id.term, time };
                self.append(*id, at, membership.as_deref().cloned())
            }
            Item::Truncate { from, .. } => self.truncate(*from),
            Item::Watermark { commit, .. } => {
                self.commit = self.commit.max(*commit);
                Ok(())
            }
            Item::Base { kept, meta, .. } => self.rebase(meta, *kept),
            Item::Repair(entry) => {
                let Item::Entry { id, time, weight, membership, crc, .. } = entry.as_ref() else {
                    return Err("a repair record without an entry".into());
                };
                let (size, weight, time, crc) = (item.size(), *weight, *time, *crc);
                let at = EntryAt { segment, offset, size, weight, crc, term: id.term, time };
                self.fill(*id, at, membership.as_deref().cloned())
            }
            Item::Meta(_) | Item::Seal { .. } | Item::Index(_) => Ok(()),
        }
    }
}

fn place_of(header: &SegmentHeader, found: &crate::segment::Found, facts: &EntryFacts) -> EntryAt {
    EntryAt {
        segment: header.unique,
        offset: found.offset,
        size: found.header.size(),
        weight: facts.weight,
        crc: facts.crc,
        term: found.header.id.term,
        time: facts.time,
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
