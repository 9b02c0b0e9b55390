//! The second half of recovery: replay what was proved, and copy what is readable but not proved
//! durable into a fresh segment before anything is reported (R12). The source is never touched.

use crate::disk::{Disk, DiskFile, Mode};
use crate::fault::{create_fault, poison, unread};
use crate::log::LogOptions;
use crate::newest::Newest;
use crate::position::{BLOCK, BLOCK_BYTES, LOG_DIR, Name, Position, align_up, segment_name};
use crate::record::{At, BatchHead, Content, Item, Kind, Meta, encode_batch, shared_entry};
use crate::scan::{Inventory, Proof, damaged, held, inventory, prove};
use crate::segment::{
    Copied, Cursor, FIRST_BATCH, Found, Join, Owner, Previous, Segment, SegmentHeader,
};
use crate::side_index::Pending;
use crate::spare::{SpareFile, fill, make_now};
use crate::state::{EntryAt, State};
use bytes::Bytes;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::{Entry, Index};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of a fresh segment that is made while the start waits for it, if the usual ones are longer
/// and no spare is there: filling a whole one may take longer than reading the log. The log leaves it
/// early, for a spare that was prepared meanwhile.
const FRESH: u64 = 1 << 20;

/// Open segments by unique id.
pub(crate) type Segments<F> = BTreeMap<u64, Arc<Segment<F>>>;

/// An open log, ready to be written.
#[derive(Debug)]
pub(crate) struct Opened<F> {
    pub(crate) owner: Owner,
    pub(crate) state: State,
    pub(crate) segments: Segments<F>,
    pub(crate) active: Arc<Segment<F>>,
    /// Length of the active file.
    pub(crate) bytes: u64,
    /// Offset of the next batch.
    pub(crate) offset: u64,
    pub(crate) chain: u32,
    /// Everything below is acknowledged.
    pub(crate) durable: Position,
    /// Highest number used in any name.
    pub(crate) highest: u64,
    pub(crate) spares: Vec<SpareFile>,
    /// What the next batch has to say of those before it.
    pub(crate) pending: Pending,
    /// The note of the newest segment, unless there is no space for it.
    pub(crate) newest: Option<Newest<F>>,
    /// Why the member is held, if it is: then nothing was and nothing may be written.
    pub(crate) held: Option<String>,
}

impl<F: DiskFile> Opened<F> {
    /// What can be read of a log whose member is held. Not a byte is touched.
    fn held(
        owner: Owner,
        mut found: Inventory<F>,
        proof: &Proof,
        state: State,
        why: String,
    ) -> Result<Self, LogFault> {
        let mut segments = BTreeMap::new();
        for link in &proof.links {
            let Some(loaded) = found.segments.remove(&link.header.unique) else { continue };
            let cursor = Cursor { offset: link.end, chain: 0, batch_end: link.end };
            let segment = Segment::new(link.header, loaded.path, loaded.file, link.end, cursor);
            segments.insert(link.header.unique, Arc::new(segment));
        }
        let Some((_, active)) = segments.last_key_value() else {
            return Err(LogFault::Held { why });
        };
        let (active, bytes) = (Arc::clone(active), active.header.bytes);
        Ok(Self {
            owner,
            state,
            segments,
            active,
            bytes,
            offset: bytes,
            chain: 0,
            durable: proof.durable,
            highest: found.highest,
            spares: Vec::new(),
            pending: Pending::default(),
            newest: None,
            held: Some(why),
        })
    }
}

/// Which of the two ways to open.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// A new process: what verifies above D is copied and then counts.
    Fresh,
    /// The same process after a fault: what it did not acknowledge never counts (R12).
    Again {
        /// What it acknowledged.
        limit: Position,
    },
}

/// Opens the log, or creates it. `admit` is asked, of a log that is not held, before anything is
/// changed.
pub(crate) fn open<D: Disk>(
    disk: &D,
    owner: Owner,
    options: &LogOptions,
    start: Start,
    admit: &mut dyn FnMut(&State) -> Result<(), LogFault>,
) -> Result<Opened<D::File>, LogFault> {
    let found = inventory(disk, Mode::Write)?;
    let owner = check_owner(&found, owner)?;
    let limit = match start {
        Start::Fresh => None,
        Start::Again { limit } => Some(limit),
    };
    let proof = prove(&found, limit)?;
    let cut = Cut::of(&proof, options.segment_bytes / 8);
    let (mut state, ends, unproved) = replay(&proof, &cut);
    if let Some(why) = proof.held.clone().or(unproved) {
        return Opened::held(owner, found, &proof, state, why);
    }
    if start == Start::Fresh {
        state.boot += 1;
    }
    let fresh = Fresh::plan(&found, &proof, &cut, &state, ends)?;
    let mut found = found;
    if start != Start::Fresh {
        // A spare may be in the making beside a reopening log.
        found.unfinished.clear();
    }
    admit(&state)?;
    // Everything above only read. From here on the directory changes, but no proved byte does.
    if found.segments.is_empty() {
        let made = disk.make_dir(LOG_DIR).and_then(|()| disk.sync_dir(""));
        made.map_err(|e| create_fault("make the log's directory", &e))?;
    }
    fresh.write(disk, owner, options, found, &proof, &cut, state)
}

/// What a start would prove, read from the disk and from nothing else. Nothing is changed.
pub(crate) fn look<F: DiskFile>(found: &Inventory<F>) -> Result<(State, Option<String>), LogFault> {
    Ok(replayed(&prove(found, None)?))
}

/// What a proof says when it is replayed, and why the member is held, if it is.
pub(crate) fn replayed(proof: &Proof) -> (State, Option<String>) {
    let (state, _, unproved) = replay(proof, &Cut::of(proof, 0));
    (state, proof.held.clone().or(unproved))
}

fn check_owner<F>(found: &Inventory<F>, owner: Owner) -> Result<Owner, LogFault> {
    let newest = found.segments.values().rev().find_map(|l| l.header.as_ref().ok());
    let Some(header) = newest else { return Ok(owner) };
    let theirs = header.owner;
    if theirs.member != owner.member || theirs.group != owner.group {
        return Err(LogFault::Refused(format!(
            "the log belongs to member {} of group {}, not to member {} of group {}: nothing was changed; \
             give this node its own data directory back",
            theirs.member, theirs.group, owner.member, owner.group,
        )));
    }
    Ok(owner)
}

/// The place up to which the old segments stand; what is live behind it goes to a fresh segment.
struct Cut {
    /// Index into the chain, and offset in that segment; `FIRST_BATCH` keeps nothing of it.
    at: usize,
    offset: u64,
}

impl Cut {
    /// Begins at D. Small segments before it are merged into the fresh one, so that many restarts
    /// do not leave many nearly empty segments; never one in which anything is damaged.
    fn of(proof: &Proof, limit: u64) -> Self {
        let (durable, links) = (proof.durable, &proof.links);
        let at = links.iter().position(|l| l.header.unique >= durable.segment).unwrap_or(0);
        let mut cut = Self { at, offset: FIRST_BATCH };
        if let Some(link) = links.get(at).filter(|l| l.header.unique == durable.segment) {
            // The end of the last batch that lies below D as a whole.
            let ends = link.records.iter().filter_map(|r| match r.content {
                Content::Batch(ref batch) => Some(align_up(r.offset + batch.len)),
                _ => None,
            });
            cut.offset =
                ends.take_while(|end| *end <= durable.offset).last().unwrap_or(FIRST_BATCH);
            if !link.damage.is_empty() {
                cut.offset = align_up(durable.offset).min(link.end);
            }
        }
        let used = |at: usize| links[at].end.saturating_sub(FIRST_BATCH);
        let Some(end) = links.get(at).map(|l| l.end) else { return cut };
        let mut copied =
            end.saturating_sub(cut.offset) + (at + 1..links.len()).map(used).sum::<u64>();
        loop {
            if cut.offset > FIRST_BATCH {
                copied += cut.offset - FIRST_BATCH;
                if copied > limit || !links[cut.at].is_sound() {
                    return cut;
                }
                cut.offset = FIRST_BATCH;
            }
            let Some(before) = cut.at.checked_sub(1) else { return cut };
            if copied + used(before) > limit || !links[before].is_sound() {
                return cut;
            }
            cut = Self { at: before, offset: links[before].end.max(FIRST_BATCH) };
        }
    }

    fn position(&self, proof: &Proof) -> Position {
        let unique = proof.links.get(self.at).map_or(0, |link| link.header.unique);
        Position::new(unique, self.offset)
    }

    /// True if the record at this place stays where it is.
    fn keeps(&self, proof: &Proof, segment: u64, offset: u64) -> bool {
        Position::new(segment, offset).before(self.position(proof))
    }

    /// Indexes up to `kept` of which a record lies behind the cut: what filled their holes may.
    fn behind(&self, proof: &Proof, kept: Index) -> BTreeSet<Index> {
        let mut indexes = BTreeSet::new();
        for link in proof.links.iter().skip(self.at) {
            let unique = link.header.unique;
            let records = link.records.iter().filter(|r| !self.keeps(proof, unique, r.offset));
            let entries = records.filter(|r| matches!(r.header.kind, Kind::Entry | Kind::Repair));
            indexes.extend(entries.map(|r| r.header.id.index).filter(|index| *index <= kept));
        }
        indexes
    }

    /// What the batches before the cut have no side index for yet.
    fn pending(&self, proof: &Proof) -> Pending {
        let mut batches: Vec<(u64, &[Found])> = Vec::new();
        'all: for link in proof.links.iter().take(self.at + 1).rev() {
            let unique = link.header.unique;
            let kept = link.records.iter().take_while(|r| self.keeps(proof, unique, r.offset));
            let mut rest = &link.records[..kept.count()];
            while let Some(start) = rest.iter().rposition(|r| r.header.kind == Kind::Batch) {
                let batch = &rest[start..];
                batches.push((unique, batch));
                // Only a record that was read has a CRC of its own.
                let read = |r: &Found| r.content == Content::Index && r.header.crc != 0;
                if batch.iter().any(read) {
                    break 'all;
                }
                rest = &rest[..start];
            }
        }
        let mut pending = Pending::default();
        batches.iter().rev().for_each(|(unique, batch)| pending.found(*unique, batch));
        pending
    }
}

/// Where the log ended at the cut, and up to where what it held there still stands.
#[derive(Copy, Clone, Debug)]
struct Ends {
    at_cut: Index,
    kept: Index,
}

/// Replays everything that counts. What contradicts itself ends it, and the member is held.
fn replay(proof: &Proof, cut: &Cut) -> (State, Ends, Option<String>) {
    let (mut state, mut ends, mut stop) = (State::default(), None::<Ends>, None);
    for (n, link) in proof.links.iter().enumerate() {
        let header = &link.header;
        let opening = link.records.iter().find_map(|r| match &r.content {
            Content::Meta(meta) => Some(meta.as_ref().clone()),
            _ => None,
        });
        if n == 0 {
            if opening.is_none() && header.prev.index > Index(0) {
                let why = "the oldest segment does not say what came before it";
                stop = Some(held(&link.path, FIRST_BATCH, "P10", why));
            }
            state.begin(header, opening.as_ref().unwrap_or(&Meta::default()));
        }
        state.boot = state.boot.max(header.boot);
        for record in &link.records {
            if ends.is_none() && !cut.keeps(proof, header.unique, record.offset) {
                ends = Some(Ends { at_cut: state.last.index, kept: state.last.index });
            }
            if stop.is_some() {
                break;
            }
            if let Err(why) = state.replay(header, opening.as_ref(), record) {
                stop = Some(held(&link.path, record.offset, "P10", &why));
                break;
            }
            if let Some(ends) = &mut ends {
                match &record.content {
                    Content::Truncate { .. } => {
                        ends.kept = ends.kept.min(record.header.id.index.prev());
                    }
                    Content::Base { kept: false, meta } => ends.kept = meta.last.index,
                    _ => {}
                }
            }
        }
    }
    let mut ends = ends.unwrap_or(Ends { at_cut: state.last.index, kept: state.last.index });
    ends.kept = ends.kept.max(state.base.index).min(state.last.index);
    let unproved = stop.or_else(|| state.unproved());
    (state, ends, unproved)
}

/// The content of the fresh segment.
struct Fresh {
    header: SegmentHeader,
    items: Vec<Item>,
    pending: Pending,
}

impl Fresh {
    fn plan<F: DiskFile>(
        found: &Inventory<F>,
        proof: &Proof,
        cut: &Cut,
        state: &State,
        ends: Ends,
    ) -> Result<Self, LogFault> {
        let kept = ends.kept;
        let prev = state.id_at(kept).unwrap_or(state.base);
        let too_large = |e: crate::record::TooLarge| poison("copy the end of the log", e.0);
        let mut items: Vec<Item> = cut.pending(proof).take().into_iter().collect();
        items.push(Item::meta(&state.meta_at(prev)).map_err(too_large)?);
        let mut cleared = false;
        if let Some((segment, offset, meta)) = &state.rebased
            && !cut.keeps(proof, *segment, *offset)
        {
            // With nothing of the suffix left in place, everything before it is void.
            cleared = kept == state.base.index;
            items.push(Item::base(meta, !cleared).map_err(too_large)?);
        }
        if ends.at_cut > kept && !cleared {
            let needs = u32::try_from(state.last.index.0 - kept.0).unwrap_or(u32::MAX);
            items.push(Item::Truncate { from: kept.next(), needs });
        }
        // Not all entries are asked: of a long log nearly all of them stay where they are.
        for index in cut
            .behind(proof, kept)
            .into_iter()
            .chain((kept.next().0..=state.last.index.0).map(Index))
        {
            let Some(at) = state.entry(index) else { continue };
            let stays = index <= kept && (at.is_hole() || cut.keeps(proof, at.segment, at.offset));
            if stays {
                continue;
            }
            let item = Item::entry(&entry_at(found, index, at)?).map_err(too_large)?;
            // What filled a hole before the cut fills it again.
            items.push(if index <= kept { Item::Repair(Box::new(item)) } else { item });
        }
        let (join, source, previous) = Self::join(proof, cut);
        let copied = Some(Copied { source, last: state.last.index, ..Copied::default() });
        let boot = state.boot;
        let header = SegmentHeader {
            first: kept.next(),
            prev,
            join,
            copied,
            boot,
            previous,
            ..Default::default()
        };
        Ok(Self { header, items, pending: Pending::default() })
    }

    fn join(proof: &Proof, cut: &Cut) -> (Join, Position, Previous) {
        let source = cut.position(proof);
        let Some(link) = proof.links.get(cut.at) else {
            return (Join::default(), source, Previous::default());
        };
        let header = &link.header;
        if cut.offset == FIRST_BATCH {
            return (header.join, source, header.previous);
        }
        let last = link.records.iter().take_while(|r| r.offset < cut.offset).last();
        let chain = last.map_or(header.join.chain, |r| r.header.crc);
        (Join { unique: header.unique, end: cut.offset, chain }, source, header.repeated())
    }

    #[expect(clippy::too_many_arguments, reason = "the last step takes what all others found")]
    fn write<D: Disk>(
        mut self,
        disk: &D,
        owner: Owner,
        options: &LogOptions,
        found: Inventory<D::File>,
        proof: &Proof,
        cut: &Cut,
        mut state: State,
    ) -> Result<Opened<D::File>, LogFault> {
        let items_size: u64 = self.items.iter().map(Item::size).sum();
        let lines: u64 = Pending::overhead(1) + self.items.iter().map(Pending::cost).sum::<u64>();
        let needed = FIRST_BATCH + align_up(items_size + BLOCK) + align_up(lines) + 2 * BLOCK;
        let mut highest = found.highest;
        let mut spares = known_spares(&found, options.segment_bytes);
        let spare = match spares.pop() {
            Some(spare) => spare,
            None => {
                highest += 1;
                make_short(disk, highest, needed, options.segment_bytes.min(FRESH))?
            }
        };
        highest += u64::from(!spare.fresh);
        let unique = highest;
        let (file, bytes) = take_spare(disk, spare, unique, needed)?;
        self.header = SegmentHeader { unique, owner, bytes, reused: spare.used, ..self.header };
        let (offsets, chain) = self.write_copy(&file, &state, proof)?;
        let path = segment_name(self.header.first, unique).path();
        // The name appears only when the copy is complete and durable.
        disk.rename(&Name::Spare { number: unique }.path(), &path)
            .and_then(|()| disk.sync_dir(LOG_DIR))
            .map_err(|e| create_fault("name the fresh segment", &e))?;
        self.relocate(&mut state, &offsets);
        let end = self.header.copied.unwrap_or_default().end;
        let active = Segment::new(self.header, path, file, 0, Cursor::start(&self.header));
        let durable = Position::new(unique, align_up(end));
        let watermark = Item::Watermark { at: durable, commit: state.commit };
        let watermark: Vec<_> = self.pending.take().into_iter().chain([watermark]).collect();
        let head = BatchHead { hard: state.hard, durable, seq: 0, prev: state.last };
        let mut buffer = Vec::new();
        let at = At { unique, origin: durable.offset, chain };
        let (_, chain) = encode_batch(&mut buffer, at, &head, &watermark);
        buffer.resize(buffer.len().next_multiple_of(BLOCK_BYTES), 0);
        self.pending.batch(durable, state.last, &watermark);
        // Durable before anything is reported: D now lies in the fresh segment.
        (active.file.write_at(durable.offset, &buffer))
            .and_then(|()| active.file.sync())
            .map_err(|e| create_fault("write the watermark of the fresh segment", &e))?;
        let offset = durable.offset + buffer.len() as u64;
        active.publish(offset);
        let newest = Newest::noting(disk, unique)?;
        let active = Arc::new(active);
        let segments = keep_segments(disk, found, proof, cut, &active, options.segment_bytes)?;
        let durable = Position::new(unique, offset);
        Ok(Opened {
            owner,
            state,
            segments,
            active,
            bytes,
            offset,
            chain,
            durable,
            highest,
            spares,
            pending: self.pending,
            newest,
            held: None,
        })
    }

    /// Writes header and copy, and syncs them.
    fn write_copy<F: DiskFile>(
        &mut self,
        file: &F,
        state: &State,
        proof: &Proof,
    ) -> Result<(Vec<u64>, u32), LogFault> {
        let unique = self.header.unique;
        let prev = self.header.prev;
        let head = BatchHead { hard: state.hard, durable: proof.durable, seq: 0, prev };
        // In memory as in the file: what will be the header's two blocks comes first.
        let mut buffer = self.header.blocks();
        let at = At { unique, origin: 0, chain: self.header.join.chain };
        let (offsets, chain) = encode_batch(&mut buffer, at, &head, &self.items);
        self.pending.batch(Position::new(unique, FIRST_BATCH), prev, &self.items);
        if let Some(copied) = &mut self.header.copied {
            copied.end = buffer.len() as u64;
            copied.crc = chain;
        }
        let blocks = self.header.blocks();
        buffer[..blocks.len()].copy_from_slice(&blocks);
        buffer.resize(buffer.len().next_multiple_of(BLOCK_BYTES), 0);
        (file.write_at(0, &buffer))
            .and_then(|()| file.sync())
            .map_err(|e| create_fault("write the fresh segment", &e))?;
        Ok((offsets, chain))
    }

    /// The copied entries now live in the fresh segment.
    fn relocate(&self, state: &mut State, offsets: &[u64]) {
        for (item, offset) in self.items.iter().zip(offsets) {
            let index = match item {
                Item::Entry { id, .. } => id.index,
                Item::Repair(entry) => match entry.as_ref() {
                    Item::Entry { id, .. } => id.index,
                    _ => continue,
                },
                _ => continue,
            };
            let at = index.0.checked_sub(state.first().0).and_then(|at| usize::try_from(at).ok());
            if let Some(entry) = at.and_then(|at| state.entries.get_mut(at)) {
                (entry.segment, entry.offset) = (self.header.unique, *offset);
            }
        }
        state.rebased = None;
    }
}

/// Reads an entry from where it lies.
pub(crate) fn entry_at<F: DiskFile>(
    found: &Inventory<F>,
    index: Index,
    at: &EntryAt,
) -> Result<Entry, LogFault> {
    let Some(source) = found.segments.get(&at.segment).filter(|_| !at.is_hole()) else {
        return Err(damaged("log", at.offset, index, index, "a damaged entry cannot be copied"));
    };
    let mut record = vec![0; usize::try_from(at.size).unwrap_or(usize::MAX)];
    source.file.read_at(at.offset, &mut record).map_err(|e| unread("read the log", &e))?;
    shared_entry(&Bytes::from(record))
        .map_err(|why| damaged(&source.path, at.offset, index, index, &why))
}

/// Makes a spare of the usual length, or of what is needed if there is no space for more: so little
/// a start finds that on most full disks (R45).
fn make_short<D: Disk>(
    disk: &D,
    number: u64,
    needed: u64,
    usual: u64,
) -> Result<SpareFile, LogFault> {
    match make_now(disk, number, needed.max(usual)) {
        Err(LogFault::Full { .. }) => make_now(disk, number, align_up(needed)),
        made => made,
    }
}

/// Complete spares of the usual length, the one to use first at the end.
fn known_spares<F>(found: &Inventory<F>, bytes: u64) -> Vec<SpareFile> {
    let usable = found.spares.iter().filter(|(_, len)| *len >= bytes);
    usable
        .map(|(number, bytes)| SpareFile {
            number: *number,
            bytes: *bytes,
            fresh: false,
            used: true,
        })
        .collect()
}

/// Gives a spare the number `unique`, so that no unique id is ever used twice even if this is cut
/// short, and makes sure that it is long enough.
pub(crate) fn take_spare<D: Disk>(
    disk: &D,
    spare: SpareFile,
    unique: u64,
    needed: u64,
) -> Result<(D::File, u64), LogFault> {
    let path = Name::Spare { number: unique }.path();
    if spare.number != unique {
        disk.rename(&Name::Spare { number: spare.number }.path(), &path)
            .and_then(|()| disk.sync_dir(LOG_DIR))
            .map_err(|e| create_fault("take a spare segment", &e))?;
    }
    let file = disk.open(&path, Mode::Write).map_err(|e| poison("take a spare segment", e))?;
    let needed = align_up(needed);
    if needed > spare.bytes {
        fill(&file, spare.bytes, needed).map_err(|e| create_fault("extend a segment", &e))?;
    }
    Ok((file, spare.bytes.max(needed)))
}

/// Removes what is superseded, and shares what stands.
fn keep_segments<D: Disk>(
    disk: &D,
    mut found: Inventory<D::File>,
    proof: &Proof,
    cut: &Cut,
    active: &Arc<Segment<D::File>>,
    bytes: u64,
) -> Result<Segments<D::File>, LogFault> {
    let standing = cut.at + usize::from(cut.offset > FIRST_BATCH);
    let mut segments = BTreeMap::new();
    for (n, link) in proof.links.iter().enumerate().take(standing) {
        let header = link.header;
        let Some(loaded) = found.segments.remove(&header.unique) else { continue };
        let end = if n == cut.at { cut.offset } else { link.end };
        let before = link.records.partition_point(|r| r.offset < end);
        let last = before.checked_sub(1).map(|at| &link.records[at]);
        let chain = last.map_or(header.join.chain, |r| r.header.crc);
        let cursor = Cursor { offset: end, chain, batch_end: end };
        let segment = Segment::new(header, loaded.path, loaded.file, end, cursor);
        segments.insert(header.unique, Arc::new(segment));
    }
    let mut removed = false;
    // A spare of another size was made under another setting.
    let short = found.spares.iter().filter(|(_, len)| *len < bytes);
    let short = short.map(|(number, _)| Name::Spare { number: *number }.path());
    found.unfinished.extend(short);
    for path in found.segments.values().map(|l| &l.path).chain(&found.unfinished) {
        disk.unlink(path).map_err(|e| poison("remove a superseded file", e))?;
        removed = true;
    }
    if removed {
        disk.sync_dir(LOG_DIR).map_err(|e| poison("remove superseded files", e))?;
    }
    segments.insert(active.header.unique, Arc::clone(active));
    Ok(segments)
}
