//! Reading durable entries from any thread, beside the single writer.

use crate::disk::{Disk, DiskFile};
use crate::record::{Header, shared_entry};
use crate::segment::Segment;
use crate::state::{EntryAt, State};
use crate::sync::RwLock;
use bytes::Bytes;
use holdfast_consensus::damage::{Hole, Identity};
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::traits::LogReader;
use holdfast_consensus::{Entries, Entry, Index};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
    pub(crate) entries: VecDeque<EntryAt>,
    pub(crate) segments: BTreeMap<u64, Arc<Segment<F>>>,
    /// Holes of unknown identity.
    pub(crate) unknown: BTreeSet<Index>,
}

/// A change of the table, made visible after the sync that it depends on.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Change {
    /// Entries from here on are void.
    Cut(Index),
    /// An entry follows.
    Push(EntryAt),
    /// The hole at this index is filled.
    Fill(Index, EntryAt),
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

    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Cut(from) => {
                let keep = from.0.saturating_sub(self.first.0);
                self.entries.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
                self.unknown.split_off(&from);
            }
            Change::Push(at) => self.entries.push_back(at),
            Change::Fill(index, at) => {
                let place = index.0.checked_sub(self.first.0).and_then(|n| usize::try_from(n).ok());
                if let Some(entry) = place.and_then(|n| self.entries.get_mut(n)) {
                    *entry = at;
                }
                self.unknown.remove(&index);
            }
        }
    }

    /// Entries before `first`, and this segment, are given up.
    pub(crate) fn compact(&mut self, first: Index, segment: u64) {
        let gone = usize::try_from(first.0.saturating_sub(self.first.0)).unwrap_or(usize::MAX);
        self.entries.drain(..gone.min(self.entries.len()));
        self.first = self.first.max(first);
        self.unknown = self.unknown.split_off(&first);
        self.segments.remove(&segment);
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

type Place<F> = (EntryAt, Arc<Segment<F>>);

impl<D: Disk> Reader<D> {
    /// Where the entries lie; the lock is held no longer than that takes.
    fn places(
        &self,
        from: Index,
        to: Index,
        max_bytes: usize,
    ) -> Result<Vec<Place<D::File>>, LogFault> {
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
        let (mut places, mut sum) = (Vec::new(), 0usize);
        for at in table.entries.iter().skip(skip).take(count) {
            if at.is_hole() {
                if places.is_empty() {
                    return Err(hole(&table.entries, skip, from));
                }
                break;
            }
            sum = sum.saturating_add(at.weight as usize);
            if sum > max_bytes && !places.is_empty() {
                break;
            }
            let Some(segment) = table.segments.get(&at.segment) else { break };
            places.push((*at, Arc::clone(segment)));
        }
        Ok(places)
    }
}

impl<D: Disk> LogReader for Reader<D> {
    fn read(&self, from: Index, to: Index, max_bytes: usize) -> Result<Entries, LogFault> {
        let places = self.places(from, to, max_bytes)?;
        let mut entries = Vec::with_capacity(places.len());
        let mut rest = places.as_slice();
        while !rest.is_empty() {
            let run = adjacent(rest);
            let first = Index(from.0 + entries.len() as u64);
            if let Err(fault) = read_run(&rest[..run], first, &mut entries) {
                // What verifies before the damage is an answer.
                if entries.is_empty() {
                    return Err(fault);
                }
                break;
            }
            rest = &rest[run..];
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
fn hole(entries: &VecDeque<EntryAt>, skip: usize, from: Index) -> LogFault {
    let run = entries.iter().skip(skip).take_while(|at| at.is_hole()).count() as u64;
    LogFault::Damaged {
        first: from,
        last: Index(from.0 + run.saturating_sub(1)),
        detail: "damaged on disk, waiting for a peer that has them".into(),
    }
}

/// Number of places from the front that one view can span.
fn adjacent<F>(places: &[Place<F>]) -> usize {
    let Some((start, segment)) = places.first() else { return 0 };
    let fits = |(at, other): &&Place<F>| {
        Arc::ptr_eq(segment, other)
            && at.offset >= start.offset
            && at.offset + at.size - start.offset <= VIEW_MAX
    };
    places.iter().take_while(fits).count().max(1)
}

fn read_run<F: DiskFile>(
    run: &[Place<F>],
    first: Index,
    entries: &mut Vec<Entry>,
) -> Result<(), LogFault> {
    let Some((start, segment)) = run.first() else { return Ok(()) };
    // What filled a hole may lie behind entries that follow it.
    let end = run.iter().map(|(at, _)| at.offset + at.size).max().unwrap_or(start.offset);
    let damaged = |at: u64, detail: String| {
        let index = Index(first.0 + at);
        LogFault::Damaged { first: index, last: index, detail }
    };
    // R17: positioned reads first; the map serves only what they have verified in this open.
    if segment.verify_to(end).is_err() {
        return read_apart(run, first, entries);
    }
    let len = usize::try_from(end - start.offset).unwrap_or(usize::MAX);
    let view = segment
        .file
        .share(start.offset, len)
        .map_err(|e| LogFault::Poisoned { detail: format!("map {}: {e}", segment.path) })?;
    for (n, (at, _)) in run.iter().enumerate() {
        let record = slice(&view, at.offset - start.offset, at.size);
        let entry = record.ok_or_else(|| "the view is too short".to_owned()).and_then(|r| {
            let entry = shared_entry(&r)?;
            if entry.id.index == Index(first.0 + n as u64) {
                Ok(entry)
            } else {
                Err(format!("entry {} where another one belongs", entry.id))
            }
        });
        let detail = |why| format!("{} offset {}: {why}", segment.path, at.offset);
        entries.push(entry.map_err(|why| damaged(n as u64, detail(why)))?);
    }
    Ok(())
}

/// Reads entries one by one with positioned reads, up to the first that does not verify: something
/// among them was damaged after it was written, and hides nothing but itself.
fn read_apart<F: DiskFile>(
    run: &[Place<F>],
    first: Index,
    entries: &mut Vec<Entry>,
) -> Result<(), LogFault> {
    for (n, (at, segment)) in run.iter().enumerate() {
        let index = Index(first.0 + n as u64);
        let read = || -> Result<Entry, String> {
            let mut record = vec![0; usize::try_from(at.size).map_err(|e| e.to_string())?];
            segment.file.read_at(at.offset, &mut record).map_err(|e| e.to_string())?;
            let header = Header::parse(&record)?;
            if !header.verifies(segment.header.unique, at.offset, &record) {
                return Err("the record does not verify".into());
            }
            let entry = shared_entry(&record.into())?;
            if entry.id.index == index { Ok(entry) } else { Err("another entry".into()) }
        };
        entries.push(read().map_err(|why| LogFault::Damaged {
            first: index,
            last: index,
            detail: format!("{} offset {}: {why}", segment.path, at.offset),
        })?);
    }
    Ok(())
}

fn slice(view: &Bytes, offset: u64, len: u64) -> Option<Bytes> {
    let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
    (offset.checked_add(len)? <= view.len()).then(|| view.slice(offset..offset + len))
}
