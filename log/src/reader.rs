//! Reading durable entries from any thread, beside the single writer.

use crate::disk::{Disk, DiskFile};
use crate::places::Places;
use crate::record::{Header, Parts, shared_entry};
use crate::segment::Segment;
use crate::state::{EntryAt, State};
use crate::sync::RwLock;
use bytes::Bytes;
use holdfast_consensus::damage::{Hole, Identity};
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::traits::LogReader;
use holdfast_consensus::{Body, Entries, Entry, Index, LogId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

/// Most bytes that one view of a segment spans.
const VIEW_MAX: u64 = 1 << 20;

/// What readers see: acknowledged entries and nothing else.
///
/// Invariant: `entries` holds `first..` without a gap, every one below the published length of its
/// segment; whatever is named is in `segments`.
#[derive(Debug)]
pub(crate) struct Table<F> {
    pub(crate) first: Index,
    pub(crate) entries: Places,
    pub(crate) segments: BTreeMap<u64, Arc<Segment<F>>>,
    /// Holes of unknown identity.
    pub(crate) unknown: BTreeSet<Index>,
}

/// What was written of entries that readers see, and what they see only after the sync that it
/// depends on. Entries that follow need no word: they are what the log holds behind the table.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Entries from here on are void, whatever follows now.
    cut: Option<Index>,
    /// Holes that are filled.
    filled: Vec<Index>,
}

impl Changes {
    /// Entries from `from` on are void.
    pub(crate) fn cut(&mut self, from: Index) {
        self.cut = Some(self.cut.map_or(from, |cut| cut.min(from)));
    }

    /// The hole at this index is filled.
    pub(crate) fn fill(&mut self, index: Index) {
        self.filled.push(index);
    }

    /// None of it came to be durable.
    pub(crate) fn clear(&mut self) {
        (self.cut, self.filled) = (None, Vec::new());
    }
}

impl<F> Table<F> {
    pub(crate) fn of(state: &State, segments: &BTreeMap<u64, Arc<Segment<F>>>) -> Self {
        let unknown = state.holes.iter().filter(|(_, known)| !**known).map(|(index, _)| *index);
        Self {
            first: state.first(),
            entries: state.entries.clone(),
            segments: segments.clone(),
            unknown: unknown.collect(),
        }
    }

    /// Shows what the log holds now, all of it durable: `changes` says what became of entries that
    /// were shown before.
    pub(crate) fn follow(
        &mut self,
        state: &State,
        segments: &BTreeMap<u64, Arc<Segment<F>>>,
        changes: &mut Changes,
    ) {
        if state.first() != self.first {
            // A new base: nothing of what was shown stands where it stood.
            *self = Self::of(state, segments);
            return changes.clear();
        }
        for (unique, segment) in segments {
            if !self.segments.contains_key(unique) {
                self.segments.insert(*unique, Arc::clone(segment));
            }
        }
        if let Some(from) = changes.cut.take() {
            let keep = from.0.saturating_sub(self.first.0);
            self.entries.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
            self.unknown.split_off(&from);
        }
        for index in changes.filled.drain(..) {
            let place = index.0.checked_sub(self.first.0).and_then(|n| usize::try_from(n).ok());
            if let Some((n, at)) = place.zip(state.entry(index))
                && let Some(entry) = self.entries.get_mut(n)
            {
                *entry = *at;
            }
            self.unknown.remove(&index);
        }
        self.entries.follow(&state.entries);
    }

    /// Entries before `first`, and this segment, are given up.
    pub(crate) fn compact(&mut self, first: Index, segment: u64) {
        let gone = usize::try_from(first.0.saturating_sub(self.first.0)).unwrap_or(usize::MAX);
        self.entries.give_up(gone);
        self.first = self.first.max(first);
        self.unknown = self.unknown.split_off(&first);
        self.segments.remove(&segment);
    }

    /// Where the entry at an index lies, if the log holds it.
    pub(crate) fn entry(&self, index: Index) -> Option<&EntryAt> {
        let place = index.0.checked_sub(self.first.0)?;
        self.entries.get(usize::try_from(place).ok()?)
    }

    /// The entries from an index on, which is not below the first.
    pub(crate) fn entries_from(&self, index: Index) -> impl Iterator<Item = &EntryAt> {
        let skip = usize::try_from(index.0 - self.first.0).unwrap_or(usize::MAX);
        self.entries.from(skip)
    }

    fn end(&self) -> Index {
        Index(self.first.0 + self.entries.len() as u64)
    }
}

/// Reads durable entries; payloads share the map of their segment and stay valid while they are
/// held, whatever the log gives up meanwhile.
#[derive(Debug)]
pub struct Reader<D: Disk> {
    pub(crate) table: Arc<RwLock<Table<D::File>>>,
}

impl<D: Disk> Clone for Reader<D> {
    fn clone(&self) -> Self {
        Self { table: Arc::clone(&self.table) }
    }
}

/// Entries in a row that lie in one segment.
struct Run<F> {
    segment: Arc<Segment<F>>,
    /// Offset and size of each record.
    records: Vec<(u64, u64)>,
}

impl<D: Disk> Reader<D> {
    /// Where the entries lie; the lock is held no longer than that takes.
    fn runs(
        &self,
        from: Index,
        to: Index,
        max_bytes: usize,
    ) -> Result<Vec<Run<D::File>>, LogFault> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        if from < table.first {
            return Err(LogFault::Compacted { first: table.first });
        }
        if to >= table.end() {
            return Err(LogFault::Refused(format!(
                "entries {from}..={to} are not durable: the log holds {}..={}",
                table.first,
                table.end().prev(),
            )));
        }
        let skip = usize::try_from(from.0 - table.first.0).unwrap_or(usize::MAX);
        let count = usize::try_from((to.0 + 1).saturating_sub(from.0)).unwrap_or(usize::MAX);
        let (mut runs, mut sum): (Vec<Run<D::File>>, _) = (Vec::new(), 0usize);
        for at in table.entries.from(skip).take(count) {
            if at.is_hole() {
                if runs.is_empty() {
                    return Err(hole(&table.entries, skip, from));
                }
                break;
            }
            sum = sum.saturating_add(at.weight as usize);
            if sum > max_bytes && !runs.is_empty() {
                break;
            }
            let record = (at.offset, at.size);
            match runs.last_mut() {
                Some(run) if run.goes_on_in(at) => run.records.push(record),
                _ => {
                    let Some(segment) = table.segments.get(&at.segment) else { break };
                    runs.push(Run { segment: Arc::clone(segment), records: vec![record] });
                }
            }
        }
        Ok(runs)
    }
}

impl<F> Run<F> {
    /// True if one view can span this entry too.
    fn goes_on_in(&self, at: &EntryAt) -> bool {
        let Some((start, _)) = self.records.first() else { return false };
        self.segment.header.unique == at.segment
            && at.offset >= *start
            && at.offset + at.size - start <= VIEW_MAX
    }
}

impl<D: Disk> LogReader for Reader<D> {
    fn read(&self, from: Index, to: Index, max_bytes: usize) -> Result<Entries, LogFault> {
        let runs = self.runs(from, to, max_bytes)?;
        let mut entries = Vec::with_capacity(runs.iter().map(|run| run.records.len()).sum());
        for run in &runs {
            let first = Index(from.0 + entries.len() as u64);
            if let Err(fault) = read_run(run, first, &mut entries) {
                // What verifies before the damage is an answer.
                if entries.is_empty() {
                    return Err(fault);
                }
                break;
            }
        }
        Entries::new(entries).ok_or_else(|| LogFault::Damaged {
            first: from,
            last: to,
            detail: "the entries do not follow one another".into(),
        })
    }

    fn holes(&self, from: Index, to: Index) -> Vec<Hole> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let hole = |index: Index| {
            let place = index.0.checked_sub(table.first.0).and_then(|n| usize::try_from(n).ok());
            let at = place.and_then(|n| table.entries.get(n));
            let at = at.filter(|_| !table.unknown.contains(&index));
            Hole { index, known: at.map(|at| Identity { term: at.term, crc: at.crc }) }
        };
        (from.0..=to.0).map(Index).map(hole).collect()
    }
}

/// The fault that a read of a hole gives; it names the whole run of damaged entries.
fn hole(entries: &Places, skip: usize, from: Index) -> LogFault {
    let run = entries.from(skip).take_while(|at| at.is_hole()).count() as u64;
    LogFault::Damaged {
        first: from,
        last: Index(from.0 + run.saturating_sub(1)),
        detail: "damaged on disk, waiting for a peer that has them".into(),
    }
}

fn read_run<F: DiskFile>(
    run: &Run<F>,
    first: Index,
    entries: &mut Vec<Entry>,
) -> Result<(), LogFault> {
    let (segment, records) = (&run.segment, run.records.as_slice());
    let Some((start, _)) = records.first() else { return Ok(()) };
    // What filled a hole may lie behind entries that follow it.
    let end = records.iter().map(|(offset, size)| offset + size).max().unwrap_or(*start);
    // R17: positioned reads first; the map serves only what they have verified in this open.
    if segment.verify_to(end).is_err() {
        return read_apart(run, first, entries);
    }
    let len = usize::try_from(end - start).unwrap_or(usize::MAX);
    let view = segment
        .file
        .share(*start, len)
        .map_err(|e| LogFault::Poisoned { detail: format!("map {}: {e}", segment.path) })?;
    for (index, (offset, size)) in (first.0..).map(Index).zip(records) {
        let damaged = |why: String| damaged(segment, *offset, index, &why);
        let (at, record) = record_in(&view, offset - start, *size).map_err(damaged)?;
        // By each read, since the view may have changed under it after the first.
        let parts = Parts::checked(record).map_err(damaged)?;
        if parts.id.index != index {
            return Err(damaged(misplaced(parts.id)));
        }
        let body = match parts.command() {
            Some(range) => Body::Command(view.slice(at + range.start..at + range.end)),
            None => parts.other().map_err(damaged)?,
        };
        entries.push(Entry { id: parts.id, time: parts.time, body });
    }
    Ok(())
}

/// A record that lies in a view, and where it begins in it.
#[inline]
fn record_in(view: &Bytes, offset: u64, size: u64) -> Result<(usize, &[u8]), String> {
    let short = || "the view is too short".to_owned();
    let range = usize::try_from(offset).ok().zip(usize::try_from(offset + size).ok());
    let (start, end) = range.ok_or_else(short)?;
    Ok((start, view.get(start..end).ok_or_else(short)?))
}

fn misplaced(id: LogId) -> String {
    format!("entry {id} where another one belongs")
}

fn damaged<F>(segment: &Segment<F>, offset: u64, index: Index, why: &str) -> LogFault {
    let detail = format!("{} offset {offset}: {why}", segment.path);
    LogFault::Damaged { first: index, last: index, detail }
}

/// Reads entries one by one with positioned reads, up to the first that does not verify: something
/// among them was damaged after it was written, and hides nothing but itself.
fn read_apart<F: DiskFile>(
    run: &Run<F>,
    first: Index,
    entries: &mut Vec<Entry>,
) -> Result<(), LogFault> {
    let segment = &run.segment;
    for (index, (offset, size)) in (first.0..).map(Index).zip(&run.records) {
        let read = || -> Result<Entry, String> {
            let mut record = vec![0; usize::try_from(*size).map_err(|e| e.to_string())?];
            segment.file.read_at(*offset, &mut record).map_err(|e| e.to_string())?;
            let header = Header::parse(&record)?;
            if !header.verifies(segment.header.unique, *offset, &record) {
                return Err("the record does not verify".into());
            }
            let entry = shared_entry(&record.into())?;
            if entry.id.index == index { Ok(entry) } else { Err(misplaced(entry.id)) }
        };
        entries.push(read().map_err(|why| damaged(segment, *offset, index, &why))?);
    }
    Ok(())
}
