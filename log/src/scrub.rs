//! Background scrub (R17): every record of the sealed segments is read again with positioned reads
//! and verified, so that rot is found while peers still have what it took, and not when a failover
//! or a restart needs it (Bairavasundaram et al., SIGMETRICS 2007: scrubs found most of the latent
//! sector errors of a large fleet, ordinary reads the lesser part).
//!
//! What it guarantees: a pass verifies both headers and every record of every segment that is
//! sealed, and not compacted, when its turn comes. Behind a place that does not verify, entries are
//! verified one by one up to the next batch; other records of that batch are not. It writes
//! nothing, owns no thread and no clock: whoever steps it sets the pace. Of the writer it needs
//! nothing but the readers' table, under the readers' lock, for a look-up. A segment is held for one
//! step at most; one that is given up in that moment is removed instead of used again, and never
//! changes under the reader. The segment that is written to is left alone: the next start verifies
//! it, or the next pass once it is sealed.
//!
//! What it does not see: bytes that the kernel keeps in memory although it is asked to forget them,
//! since somebody has them mapped and uses them, are verified where they are and not on the medium.

use crate::disk::{Disk, DiskFile};
use crate::position::align_up;
use crate::reader::{Reader, Table};
use crate::record::Header;
use crate::segment::{
    Cursor, FIRST_BATCH, HEADER_COPY, HEADER_LEN, Segment, SegmentHeader, Step, Walk,
};
use crate::state::EntryAt;
use holdfast_consensus::Index;
use holdfast_consensus::fault::LogFault;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

/// Entries of the table that are looked at under one lock.
const PIECE: usize = 4096;

/// Re-verifies the sealed segments of a log, over and over, a bounded piece at a time.
#[derive(Debug)]
pub struct Scrub<D: Disk> {
    reader: Reader<D>,
    /// The segment under way, or the last one that was; zero at the beginning of a pass.
    segment: u64,
    stage: Stage,
    /// Places that were told: segment and offset. Invariant: all of them do not verify, or did not,
    /// and lie in segments that were there when the last pass ended, or later ones.
    told: BTreeSet<(u64, u64)>,
}

/// How far the segment under way is verified.
#[derive(Debug)]
enum Stage {
    /// Nothing of it yet.
    Header,
    /// Everything before the cursor.
    Records(Cursor),
    /// Something does not verify, and no batch was found behind it yet.
    Lost(Lost),
    /// All of it.
    Done,
}

/// A place where the walk over the records broke off.
#[derive(Debug)]
struct Lost {
    /// Where.
    begun: u64,
    /// Everything between that and here was searched; a multiple of a block, unless nothing was.
    from: u64,
    /// Why it broke off.
    why: String,
    /// Entries were found to be lost by it.
    entries: bool,
}

/// What one step of a [`Scrub`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Bytes that were verified, or found not to verify.
    pub bytes: u64,
    /// Places that do not verify.
    pub found: Vec<Finding>,
    /// A pass over all sealed segments, of at least one, has ended; the next step begins another.
    pub passed: bool,
}

/// A place that does not verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the data directory.
    pub file: String,
    /// Offset in it, in bytes.
    pub offset: u64,
    /// What was found.
    pub why: String,
    /// First and last of the live entries that cannot be read any more; `None` if no entry is
    /// lost by it: then nothing can be given back, and the next start judges the place.
    pub entries: Option<(Index, Index)>,
    /// False if this scrub has told of it in an earlier pass.
    pub news: bool,
}

impl Finding {
    /// The fault that a read of the entries gives, if any is lost: it goes the way of damage that a
    /// read meets.
    #[must_use]
    pub fn fault(&self) -> Option<LogFault> {
        let (first, last) = self.entries?;
        let detail = format!("{} offset {}: {}", self.file, self.offset, self.why);
        Some(LogFault::Damaged { first, last, detail })
    }
}

impl<D: Disk> Reader<D> {
    /// A scrub of the log that this reader reads, at the beginning of a pass.
    #[must_use]
    pub fn scrub(&self) -> Scrub<D> {
        let (reader, told) = (self.clone(), BTreeSet::new());
        Scrub { reader, segment: 0, stage: Stage::Done, told }
    }
}

impl<D: Disk> Scrub<D> {
    /// Verifies about `max_bytes` more, at least one record, of one segment. The step ends behind
    /// the record under way. It never fails: what cannot be read is a finding.
    pub fn step(&mut self, max_bytes: u64) -> Scrubbed {
        let mut done = Scrubbed::default();
        let Some(segment) = self.sealed() else {
            done.passed = self.segment != 0;
            self.begin_again();
            return done;
        };
        loop {
            let budget = max_bytes.saturating_sub(done.bytes).max(1);
            self.stage = match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::Header => self.header(&segment, &mut done),
                Stage::Records(cursor) => records(&segment, cursor, budget, &mut done),
                Stage::Lost(lost) => self.lost(&segment, lost, budget, &mut done),
                Stage::Done => Stage::Done,
            };
            if done.bytes >= max_bytes || matches!(self.stage, Stage::Done) {
                return done;
            }
        }
    }

    /// The segment to go on with. Never one that may still be written to: that is the one with the
    /// highest id, as far as readers know.
    fn sealed(&mut self) -> Option<Arc<Segment<D::File>>> {
        let from = self.segment + u64::from(matches!(self.stage, Stage::Done));
        let segment = self.look(|table| {
            let (newest, _) = table.segments.last_key_value()?;
            let (_, next) = table.segments.range(from.min(*newest)..*newest).next()?;
            Some(Arc::clone(next))
        })?;
        let unique = segment.header.unique;
        if unique != self.segment || matches!(self.stage, Stage::Done) {
            (self.segment, self.stage) = (unique, Stage::Header);
        }
        Some(segment)
    }

    /// The next pass begins. What was told of segments that are gone is forgotten.
    fn begin_again(&mut self) {
        (self.segment, self.stage) = (0, Stage::Done);
        let oldest = self.look(|table| table.segments.keys().next().copied());
        self.told = self.told.split_off(&(oldest.unwrap_or(0), 0));
    }

    /// Looks something up in the readers' table. Nothing is read from a disk under its lock.
    fn look<T>(&self, look: impl FnOnce(&Table<D::File>) -> T) -> T {
        look(&self.reader.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Both copies of the header: a start can do with one of them.
    fn header(&mut self, segment: &Segment<D::File>, done: &mut Scrubbed) -> Stage {
        for offset in [0, HEADER_COPY] {
            let mut head = [0; HEADER_LEN];
            let why = match segment.file.read_at(offset, &mut head) {
                Err(e) => e.to_string(),
                Ok(()) if SegmentHeader::decode(&head) == Ok(segment.header) => continue,
                Ok(()) => "this copy of the segment's header does not verify".to_owned(),
            };
            let finding = self.finding(segment, offset, why, None);
            done.found.push(finding);
        }
        done.bytes += FIRST_BATCH;
        Stage::Records(Cursor::start(&segment.header))
    }

    /// Looks for the next batch behind a place that does not verify, and at the entries between.
    fn lost(
        &mut self,
        segment: &Segment<D::File>,
        mut lost: Lost,
        budget: u64,
        done: &mut Scrubbed,
    ) -> Stage {
        let end = segment.published();
        let to = align_up(lost.from.saturating_add(budget)).min(end);
        let before = if lost.from == lost.begun { lost.begun } else { lost.from - 1 };
        let cursor = Cursor { offset: before, chain: 0, batch_end: before };
        let mut walk = Walk::new(&segment.file, segment.header.unique, cursor, to);
        // Where the disk gives nothing no batch is found.
        let next = walk.resync().unwrap_or(false).then_some(walk.cursor);
        let upto = next.map_or(to, |cursor| cursor.offset);
        done.bytes += upto.saturating_sub(lost.from);
        lost.entries |= self.entries(segment, lost.from, upto, done);
        lost.from = upto;
        if next.is_none() && to < end {
            return Stage::Lost(lost);
        }
        // Of a place that took entries these are told, and it itself never again.
        let finding = self.finding(segment, lost.begun, lost.why, None);
        if !lost.entries {
            done.found.push(finding);
        }
        next.map_or(Stage::Done, Stage::Records)
    }

    /// Verifies the live entries whose records begin in `from..to`, one by one. True if any of
    /// them does not verify.
    fn entries(
        &mut self,
        segment: &Segment<D::File>,
        from: u64,
        to: u64,
        done: &mut Scrubbed,
    ) -> bool {
        let live = self.live(segment.header.unique, from, to);
        let bad = |(index, at): (Index, EntryAt)| Some((index, at, broken(segment, index, &at)?));
        let mut bad: Vec<_> = live.into_iter().filter_map(bad).collect();
        // What was cut, filled or compacted meanwhile is nobody's entry any more.
        self.look(|table| bad.retain(|(index, at, _)| table.entry(*index) == Some(at)));
        let any = !bad.is_empty();
        for (index, at, why) in bad {
            let next = self.finding(segment, at.offset, why, Some((index, index)));
            let run = done.found.last_mut().filter(|run| run.news == next.news);
            match run.and_then(|run| run.entries.as_mut()) {
                Some((_, last)) if last.next() == index => *last = index,
                _ => done.found.push(next),
            }
        }
        any
    }

    /// Live entries of a segment whose records begin in `from..to`. Only damage makes anybody ask.
    fn live(&self, segment: u64, from: u64, to: u64) -> Vec<(Index, EntryAt)> {
        let (mut found, mut next) = (Vec::new(), Index(0));
        loop {
            let piece = self.look(|table| {
                next = next.max(table.first);
                let piece = table.entries_from(next).take(PIECE);
                let mut count = 0;
                for (index, at) in (next.0..).map(Index).zip(piece) {
                    count += 1;
                    let here = at.segment == segment && (from..to).contains(&at.offset);
                    if here && !at.is_hole() {
                        found.push((index, *at));
                    }
                }
                count
            });
            if piece == 0 {
                return found;
            }
            next = Index(next.0 + piece);
        }
    }

    /// Takes note of a place.
    fn finding(
        &mut self,
        segment: &Segment<D::File>,
        offset: u64,
        why: String,
        entries: Option<(Index, Index)>,
    ) -> Finding {
        let news = self.told.insert((segment.header.unique, offset));
        Finding { file: segment.path.clone(), offset, why, entries, news }
    }
}

/// Verifies records from `cursor` on.
fn records<F: DiskFile>(
    segment: &Segment<F>,
    cursor: Cursor,
    budget: u64,
    done: &mut Scrubbed,
) -> Stage {
    let end = segment.published();
    segment.file.forget(cursor.offset, budget);
    let mut walk = Walk::new(&segment.file, segment.header.unique, cursor, end);
    let next = loop {
        if walk.cursor.offset - cursor.offset >= budget {
            break Stage::Records(walk.cursor);
        }
        let at = walk.cursor;
        let (begun, why) = match walk.step() {
            Ok(Step::Record(_)) => continue,
            Ok(Step::End(_)) => break Stage::Done,
            Ok(Step::Blank(offset)) => (offset, "nothing is there".to_owned()),
            Ok(Step::Bad(offset, why)) => (offset, why),
            Ok(Step::Unchained(offset)) => {
                (offset, "the record does not follow its predecessor".to_owned())
            }
            Err(e) if at.offset == at.batch_end => (align_up(at.offset), e.to_string()),
            Err(e) => (at.offset, e.to_string()),
        };
        break Stage::Lost(Lost { begun, from: begun, why, entries: false });
    };
    done.bytes += walk.cursor.offset - cursor.offset;
    next
}

/// Why the record of an entry does not verify, if it does not.
fn broken<F: DiskFile>(segment: &Segment<F>, index: Index, at: &EntryAt) -> Option<String> {
    let mut record = vec![0; usize::try_from(at.size).unwrap_or_default()];
    if let Err(e) = segment.file.read_at(at.offset, &mut record) {
        return Some(e.to_string());
    }
    let same = |header: Header| {
        header.verifies(segment.header.unique, at.offset, &record)
            && (header.id.term, header.id.index) == (at.term, index)
    };
    let sound = Header::parse(&record).is_ok_and(same);
    (!sound).then(|| "the record does not verify".to_owned())
}

#[cfg(test)]
#[path = "scrub_tests.rs"]
mod tests;
