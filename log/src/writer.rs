//! Writing: batches, segment changes, watermarks.

use crate::disk::{Disk, DiskFile};
use crate::fault::{create_fault, poison};
use crate::log::{KEPT_SPARES, Log};
use crate::position::{BLOCK, BLOCK_BYTES, LOG_DIR, Name, Position, align_up, segment_name};
use crate::rebuild::take_spare;
use crate::record::{At, BATCH_RECORD, BatchHead, Header, Item, encode_batch, shared_entry};
use crate::segment::{Cursor, FIRST_BATCH, Join, Segment, SegmentHeader};
use crate::side_index::Pending;
use crate::spare::{SpareFile, make_now};
use crate::sync::Ordering;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::{Entry, HardState, Index, Seq, Term};
use std::sync::Arc;

/// What commands leave of a segment of this length, in bytes: an eighth, at most 1 MiB. An election
/// takes up to six blocks (the term, the vote, the entry that opens the term, and the watermarks
/// behind them), so a small segment gives up to a quarter for one.
fn room_for_votes(segment: u64) -> u64 {
    (segment / 8).max((6 * BLOCK).min(segment / 4)).min(1 << 20)
}

/// Records that are to be written, and what they take together.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    items: Vec<Item>,
    /// Bytes of all of them.
    pub(crate) bytes: u64,
    /// There is a truncation among them.
    cuts: bool,
}

impl Planned {
    pub(crate) fn of(items: Vec<Item>) -> Self {
        let mut planned = Self::default();
        items.into_iter().for_each(|item| planned.push(item));
        planned
    }

    fn push(&mut self, item: Item) {
        self.bytes += item.size();
        self.cuts |= matches!(item, Item::Truncate { .. });
        self.items.push(item);
    }

    /// What a fresh segment says first.
    pub(crate) fn begin_with(&mut self, item: Item) {
        self.bytes += item.size();
        self.items.insert(0, item);
    }
}

impl<D: Disk> Log<D> {
    /// All batches in order, then one sync. A batch that reaches over the end of a segment costs
    /// one more sync for each segment that it fills; nothing is acknowledged before the last.
    pub(crate) fn try_persist(&mut self, batches: &[Persist]) -> Result<Seq, LogFault> {
        let Some(seq) = batches.iter().map(|b| b.seq).max() else { return Ok(self.seq) };
        let hard = batches.iter().rev().find_map(|b| b.hard).unwrap_or(self.state.hard);
        self.check_hard(hard);
        let planned = self.plan(batches)?;
        // Whatever space is needed is there before the first byte is written.
        let wanted = self.segments_wanted(&planned);
        self.ensure_spares(&wanted)?;
        let last = wanted.is_empty() && self.spares.len() <= KEPT_SPARES;
        if last && batches.iter().any(Persist::has_commands) {
            self.leave_room(&planned)?;
        }
        self.state.hard = hard;
        self.seq = self.seq.max(seq);
        self.write_and_sync(planned)?;
        Ok(self.seq)
    }

    /// Raft figure 2: the term never goes back, and a vote is never given to another one within
    /// its term.
    fn check_hard(&self, hard: HardState) {
        let old = self.state.hard;
        assert!(hard.term >= old.term, "the term never goes back");
        let changed = hard.voted_for.is_some_and(|new| old.voted_for.is_some_and(|old| old != new));
        assert!(hard.term > old.term || !changed, "a vote is never changed within its term");
    }

    /// The records of these batches, checked against the log before anything is written.
    fn plan(&self, batches: &[Persist]) -> Result<Planned, LogFault> {
        let mut planned = Planned::default();
        // With a truncation for each, and the side index that comes first.
        planned.items.reserve(1 + batches.iter().map(|b| b.append.len() + 1).sum::<usize>());
        let mut next = self.state.last.index.next();
        let (mut term, mut time) = (self.state.last.term, self.state.time);
        for batch in batches {
            let at = next;
            let refuse = |what: String| {
                LogFault::Refused(format!("persist {}: {what}; the log goes on at {at}", batch.seq))
            };
            if let Some(from) = batch.truncate_from {
                if from > next || from <= self.state.base.index {
                    return Err(refuse(format!("a cut from {from} is outside the log")));
                }
                if self.state.holes.get(&from.prev()) == Some(&false) {
                    let why = "it would leave an entry of unknown identity at the end";
                    return Err(refuse(format!("a cut from {from}: {why}")));
                }
                let needs = u32::try_from(batch.append.len()).unwrap_or(u32::MAX);
                planned.push(Item::Truncate { from, needs });
                next = from;
                // Of what these very batches bring and cut again nothing is known here.
                term = self.state.id_at(from.prev()).map_or(Term(0), |id| id.term);
                time = self.state.time_at(from.prev()).unwrap_or_default();
            }
            if let Some(first) = batch.append.first()
                && first.index != next
            {
                return Err(refuse(format!("entries from {} leave a gap", first.index)));
            }
            for entry in &batch.append {
                if entry.id.term < term || entry.time < time {
                    let bound = format!("term {term} and log time {time}");
                    return Err(refuse(format!("entry {} goes back behind {bound}", entry.id)));
                }
                (term, time) = (entry.id.term, entry.time);
                planned.push(Item::entry(entry).map_err(|e| refuse(e.0))?);
            }
            next = Index(next.0 + batch.append.len() as u64);
        }
        Ok(planned)
    }

    /// The records that fill holes, and the indexes that they fill. Refuses what cannot be the
    /// entry that was damaged, before anything is written (R15).
    pub(crate) fn plan_repair(
        &mut self,
        entries: &[Entry],
    ) -> Result<(Vec<Item>, Vec<Index>), LogFault> {
        let mut entries: Vec<&Entry> = entries.iter().collect();
        entries.sort_by_key(|e| e.id.index);
        entries.dedup_by_key(|e| e.id.index);
        let (mut items, mut filled, mut below) = (Vec::new(), Vec::new(), Term(0));
        for entry in entries {
            self.notice_damage(entry.id.index);
            if !self.state.holes.contains_key(&entry.id.index) {
                filled.extend(self.holds(entry).then_some(entry.id.index));
                continue;
            }
            let item = Item::entry(entry).map_err(|e| LogFault::Refused(e.0))?;
            let Item::Entry { crc, .. } = &item else { continue };
            if let Some(why) = self.state.misfit(entry.id, *crc) {
                return Err(LogFault::Refused(why));
            }
            if entry.id.term < below {
                return Err(LogFault::Refused("the terms of the entries fall".into()));
            }
            below = entry.id.term;
            items.push(Item::Repair(Box::new(item)));
            filled.push(entry.id.index);
        }
        Ok((items, filled))
    }

    /// True if this very entry stands at its index.
    fn holds(&self, entry: &Entry) -> bool {
        let crc = entry.identity().ok().map(|identity| identity.crc);
        let at = self.state.entry(entry.id.index);
        at.is_some_and(|at| at.term == entry.id.term && Some(at.crc) == crc)
    }

    /// A hole that came after the open: the record is not what it was when it was verified. The
    /// record's own CRC counts, since that is what the next start and a scrub go by.
    fn notice_damage(&mut self, index: Index) {
        let Some(at) = self.state.entry(index).copied().filter(|at| !at.is_hole()) else { return };
        let Some(segment) = self.segments.get(&at.segment) else { return };
        let mut record = vec![0; usize::try_from(at.size).unwrap_or_default()];
        let read = segment.file.read_at(at.offset, &mut record).is_ok();
        let verifies = |header: Header| header.verifies(at.segment, at.offset, &record);
        let sound = read
            && Header::parse(&record).is_ok_and(verifies)
            && shared_entry(&record.into())
                .is_ok_and(|e| e.identity().is_ok_and(|i| i.term == at.term && i.crc == at.crc));
        if !sound {
            self.state.lose(index);
        }
    }

    /// Sizes of the fresh segments that these records need; rather one too many than too few.
    pub(crate) fn segments_wanted(&self, planned: &Planned) -> Vec<u64> {
        if !planned.cuts && self.fits(self.overhead() + planned.bytes) {
            return Vec::new();
        }
        let items = &planned.items;
        let (mut bytes, mut offset, mut size) = (self.bytes, self.offset, self.overhead());
        let mut first = self.active.header.first;
        let mut wanted = Vec::new();
        let configurations: u64 = (items.iter())
            .filter(|i| matches!(i, Item::Entry { membership: Some(_), .. }))
            .map(Item::size)
            .sum();
        // What a fresh segment has to say of the batches before it: at most all of these.
        let lines = items.iter().map(Pending::cost).sum::<u64>();
        if items.is_empty() && align_up(offset + size) + BLOCK > bytes {
            wanted.push(self.fresh_size(0));
        }
        for item in items {
            let opens = matches!(item, Item::Truncate { from, .. } if *from < first);
            if opens || align_up(offset + size + item.size()) + BLOCK > bytes {
                let needed = self.fresh_size(item.size() + configurations + lines);
                wanted.push(needed);
                match item {
                    Item::Truncate { from, .. } => first = *from,
                    Item::Entry { id, .. } => first = id.index,
                    _ => {}
                }
                bytes = needed.max(self.options.segment_bytes);
                offset = FIRST_BATCH;
                size = needed - FIRST_BATCH - BLOCK - item.size();
            }
            size += item.size();
        }
        wanted
    }

    /// Bytes of a fresh segment that can hold records of `size` bytes in its first batch.
    pub(crate) fn fresh_size(&self, size: u64) -> u64 {
        let widest = self.state.memberships.iter().map(|(_, m)| {
            // Ids and names, their lengths, and the fixed part of a meta record.
            let names: usize = m.names.values().map(|n| n.len() + 16).sum();
            (m.voters.len() + m.outgoing.len() + m.learners.len()) * 8 + names
        });
        let meta = align_up((widest.max().unwrap_or(0) + 512) as u64);
        let lines = self.pending.size() + Pending::overhead(2);
        FIRST_BATCH + meta + align_up(BATCH_RECORD as u64 + lines + size) + BLOCK
    }

    /// Bytes of the next batch beside its items: its header, and the side index of those before.
    pub(crate) fn overhead(&self) -> u64 {
        BATCH_RECORD as u64 + self.pending.size()
    }

    /// Has spares of at least these sizes ready, to be taken in this order, and behind them those
    /// that stay for a start.
    pub(crate) fn ensure_spares(&mut self, wanted: &[u64]) -> Result<(), LogFault> {
        if wanted.is_empty() {
            return Ok(());
        }
        let mut queue = Vec::with_capacity(wanted.len());
        let mut result = Ok(());
        for bytes in wanted {
            if let Some(at) = self.spares.iter().rposition(|s| s.bytes >= *bytes) {
                queue.push(self.spares.remove(at));
                continue;
            }
            result = self.make_spare(*bytes).map(|spare| queue.push(spare));
            if result.is_err() {
                break;
            }
        }
        while result.is_ok() && self.spares.len() < KEPT_SPARES {
            result = self.make_spare(0).map(|spare| self.spares.push(spare));
        }
        self.spares.extend(queue.into_iter().rev());
        result
    }

    /// Makes a spare at once, and knows from it whether there is space.
    fn make_spare(&mut self, bytes: u64) -> Result<SpareFile, LogFault> {
        self.highest += 1;
        let made = make_now(&self.disk, self.highest, self.options.segment_bytes.max(bytes));
        self.making.failed.store(made.is_err(), Ordering::Release);
        made
    }

    /// True if so many bytes of commands leave room for votes in this segment.
    pub(crate) fn takes_commands(&self, size: u64) -> bool {
        self.fits(size + room_for_votes(self.bytes))
    }

    /// Commands leave room for votes, and for the entries that open a term or change a
    /// configuration, in a segment that may be the last one (R45).
    fn leave_room(&mut self, planned: &Planned) -> Result<(), LogFault> {
        if !self.takes_commands(self.overhead() + planned.bytes) {
            let spare = self.make_spare(0)?;
            self.spares.insert(0, spare);
        }
        Ok(())
    }

    /// Writes records as one batch, or as several if a segment ends among them, and syncs.
    pub(crate) fn write_and_sync(&mut self, planned: Planned) -> Result<(), LogFault> {
        self.touched = true;
        let Planned { mut items, bytes, cuts } = planned;
        let (mut part, mut size) = (Vec::new(), self.overhead());
        if !cuts && self.fits(size + bytes) {
            // All of it is one batch of this segment.
            part = std::mem::take(&mut items);
        } else if items.is_empty() {
            part = self.roll(None)?;
        }
        for item in items {
            let cut = match &item {
                Item::Truncate { from, .. } => Some(*from),
                _ => None,
            };
            let opens = cut.is_some_and(|from| from < self.active.header.first);
            if opens || !self.fits(size + item.size()) {
                if !part.is_empty() {
                    self.write_part(&mut part)?;
                }
                part = self.roll(cut)?;
                size = self.overhead() + part.iter().map(Item::size).sum::<u64>();
            }
            size += item.size();
            part.push(item);
        }
        self.write_part(&mut part)?;
        self.sync()?;
        self.acknowledge();
        Ok(())
    }

    /// Seals the active segment and enters a fresh one, whose first batch begins with the returned
    /// records. A cut that comes next is carried out before: it never reaches below the first
    /// index of its own segment, so that this stands alone when older ones are gone.
    fn roll(&mut self, cut: Option<Index>) -> Result<Vec<Item>, LogFault> {
        self.seal(self.state.hard)?;
        if let Some(from) = cut {
            self.state.truncate(from).map_err(LogFault::Refused)?;
            self.changes.cut(from);
        }
        self.enter_fresh_segment()?;
        let meta = self.state.meta_at(self.state.last);
        Ok(vec![Item::meta(&meta).map_err(|e| LogFault::Refused(e.0))?])
    }

    /// Writes one batch behind what is there, padded to whole sectors, without a sync.
    fn write_part(&mut self, items: &mut Vec<Item>) -> Result<(), LogFault> {
        let segment = self.active.header.unique;
        let (prev, durable, seq) = (self.state.last, self.durable, self.seq.0);
        let head = BatchHead { hard: self.state.hard, durable, seq, prev };
        if let Some(index) = self.pending.take() {
            items.insert(0, index);
        }
        self.buffer.clear();
        let at = At { unique: segment, origin: self.offset, chain: self.chain };
        let (offsets, chain) = encode_batch(&mut self.buffer, at, &head, items.as_slice());
        self.pending.batch(Position::new(segment, self.offset), prev, items);
        let end = align_up(self.offset + self.buffer.len() as u64);
        let padded = usize::try_from(end - self.offset).unwrap_or(usize::MAX);
        assert!(end + BLOCK <= self.bytes, "a batch was planned to fit its segment");
        self.buffer.resize(padded, 0);
        (self.active.file.write_at(self.offset, &self.buffer))
            .map_err(|e| poison("write the log", e))?;
        for (item, at) in items.drain(..).zip(offsets) {
            self.state.written(segment, self.offset + at, &item).map_err(LogFault::Refused)?;
            match item {
                Item::Truncate { from, .. } => self.changes.cut(from),
                Item::Repair(entry) => {
                    if let Item::Entry { id, .. } = *entry {
                        self.changes.fill(id.index);
                    }
                }
                _ => {}
            }
        }
        (self.offset, self.chain) = (end, chain);
        // One huge batch must not keep its memory for ever.
        self.buffer.shrink_to(1 << 20);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), LogFault> {
        self.active.file.sync().map_err(|e| poison("sync the log", e))
    }

    /// Ends the active segment. Its last block was kept free for this.
    pub(crate) fn seal(&mut self, hard: HardState) -> Result<(), LogFault> {
        self.touched = true;
        let (prev, durable, seq) = (self.state.last, self.durable, self.seq.0);
        let head = BatchHead { hard, durable, seq, prev };
        let seal = [Item::Seal { last: self.state.last }];
        let mut buffer = Vec::new();
        let unique = self.active.header.unique;
        let at = At { unique, origin: self.offset, chain: self.chain };
        let (_, chain) = encode_batch(&mut buffer, at, &head, &seal);
        // One block was kept free: the side index goes to the first batch of the next segment.
        self.pending.batch(Position::new(unique, self.offset), prev, &seal);
        buffer.resize(BLOCK_BYTES, 0);
        (self.active.file.write_at(self.offset, &buffer))
            .map_err(|e| poison("seal a segment", e))?;
        self.sync()?;
        (self.offset, self.chain) = (self.offset + BLOCK, chain);
        self.active.publish(self.offset);
        Ok(())
    }

    /// Goes on in a fresh segment. Its header is durable, with file and directory, before the
    /// first batch (R16), and its name appears only when the header is there.
    pub(crate) fn enter_fresh_segment(&mut self) -> Result<(), LogFault> {
        let spare = match self.spares.pop() {
            Some(spare) => spare,
            None => {
                self.highest += 1;
                make_now(&self.disk, self.highest, self.options.segment_bytes)?
            }
        };
        if !spare.fresh || spare.number != self.highest {
            self.highest += 1;
        }
        let unique = self.highest;
        let (file, bytes) = take_spare(&self.disk, spare, unique, 0)?;
        let previous = self.active.header.unique;
        let header = SegmentHeader {
            unique,
            owner: self.owner,
            first: self.state.last.index.next(),
            prev: self.state.last,
            join: Join { unique: previous, end: self.offset, chain: self.chain },
            copied: None,
            bytes,
            boot: self.state.boot,
            previous: self.active.header.repeated(),
            reused: spare.used,
        };
        let path = segment_name(header.first, unique).path();
        (file.write_at(0, &header.blocks()))
            .and_then(|()| file.sync())
            .and_then(|()| self.disk.rename(&Name::Spare { number: unique }.path(), &path))
            .and_then(|()| self.disk.sync_dir(LOG_DIR))
            .map_err(|e| create_fault("begin a segment", &e))?;
        self.newest.as_mut().map_or(Ok(()), |newest| newest.note(unique))?;
        let segment = Segment::new(header, path, file, 0, Cursor::start(&header));
        self.active = Arc::new(segment);
        self.segments.insert(unique, Arc::clone(&self.active));
        (self.bytes, self.offset) = (bytes, FIRST_BATCH);
        Ok(())
    }

    /// R10. The first call after a sync writes the position that is known durable and the commit
    /// index; a second one, with nothing written between, syncs that.
    pub(crate) fn try_watermark(&mut self, commit: Index) -> Result<(), LogFault> {
        if self.unsynced {
            self.touched = true;
            self.sync()?;
            self.acknowledge();
            self.marked.0 = self.durable;
        }
        let news = self.durable != self.marked.0 || commit > self.marked.1;
        let item = Item::Watermark { at: self.durable, commit: commit.max(self.state.commit) };
        // A full segment is left to the next batch: that proves as much.
        if !news || !self.fits(self.overhead() + item.size()) {
            return Ok(());
        }
        self.touched = true;
        self.write_part(&mut vec![item])?;
        self.marked = (self.durable, commit.max(self.marked.1));
        // Written in order and not damaged: the log may go on behind it, synced or not.
        (self.unsynced, self.touched) = (true, false);
        Ok(())
    }
}
