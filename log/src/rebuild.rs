//! The second half of recovery: replay what was proved, and copy what is readable but not proved
//! durable into a fresh segment before anything is reported (R12). The source is never touched.

use crate::disk::{Disk, DiskFile, Mode};
use crate::fault::{create_fault, poison};
use crate::log::LogOptions;
use crate::position::{BLOCK, BLOCK_BYTES, LOG_DIR, Name, Position, align_up, segment_name};
use crate::record::{BatchHead, Content, Item, Meta, encode_batch, shared_entry};
use crate::scan::{Inventory, Proof, damaged, inventory, prove};
use crate::segment::{
    Copied, Cursor, FIRST_BATCH, HEADER_LEN, Join, Owner, Segment, SegmentHeader,
};
use crate::spare::{SpareFile, fill, make_now};
use crate::state::State;
use bytes::Bytes;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::{Index, LogId};
use std::collections::BTreeMap;
use std::sync::Arc;

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

/// Opens the log, or creates it.
pub(crate) fn open<D: Disk>(
    disk: &D,
    owner: Owner,
    options: &LogOptions,
    start: Start,
) -> Result<Opened<D::File>, LogFault> {
    let found = inventory(disk, Mode::Write)?;
    let owner = check_owner(&found, owner)?;
    let limit = match start {
        Start::Fresh => None,
        Start::Again { limit } => Some(limit),
    };
    let proof = prove(&found, limit)?;
    let cut = Cut::of(&proof, options.segment_bytes / 8);
    let (mut state, at_cut) = replay(&found, &proof, &cut)?;
    if start == Start::Fresh {
        state.boot += 1;
    }
    let fresh = Fresh::plan(&found, &proof, &cut, &state, at_cut)?;
    let mut found = found;
    if start != Start::Fresh {
        // A spare may be in the making beside a reopening log.
        found.unfinished.clear();
    }
    // Everything above only read. From here on the directory changes, but no proved byte does.
    if found.segments.is_empty() {
        let made = disk.make_dir(LOG_DIR).and_then(|()| disk.sync_dir(""));
        made.map_err(|e| create_fault("make the log's directory", &e))?;
    }
    fresh.write(disk, owner, options, found, &proof, &cut, state)
}

/// What a start would prove, read from the disk and from nothing else. Nothing is changed.
pub(crate) fn look<F: DiskFile>(found: &Inventory<F>) -> Result<State, LogFault> {
    let proof = prove(found, None)?;
    let (state, _) = replay(found, &proof, &Cut::of(&proof, 0))?;
    Ok(state)
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
    /// do not leave many nearly empty segments.
    fn of(proof: &Proof, limit: u64) -> Self {
        let durable = proof.durable;
        let at = proof.chain.iter().position(|u| *u >= durable.segment).unwrap_or(0);
        let mut cut = Self { at, offset: FIRST_BATCH };
        if proof.chain.get(at) == Some(&durable.segment) {
            // The end of the last batch that lies below D as a whole.
            cut.offset = (proof.records[at].iter())
                .filter_map(|r| match r.content {
                    Content::Batch { len, .. } => Some(align_up(r.offset + len)),
                    _ => None,
                })
                .take_while(|end| *end <= durable.offset)
                .last()
                .unwrap_or(FIRST_BATCH);
        }
        let Some(end) = proof.ends.get(at) else { return cut };
        let used = |at: usize| proof.ends[at].saturating_sub(FIRST_BATCH);
        let mut copied =
            end.saturating_sub(cut.offset) + (at + 1..proof.chain.len()).map(used).sum::<u64>();
        loop {
            if cut.offset > FIRST_BATCH {
                copied += cut.offset - FIRST_BATCH;
                if copied > limit {
                    return cut;
                }
                cut.offset = FIRST_BATCH;
            }
            let Some(before) = cut.at.checked_sub(1) else { return cut };
            if copied + used(before) > limit {
                return cut;
            }
            cut = Self { at: before, offset: proof.ends[before].max(FIRST_BATCH) };
        }
    }

    fn position(&self, proof: &Proof) -> Position {
        Position::new(proof.chain.get(self.at).copied().unwrap_or(0), self.offset)
    }

    /// True if the record at this place stays where it is.
    fn keeps(&self, proof: &Proof, segment: u64, offset: u64) -> bool {
        Position::new(segment, offset).before(self.position(proof))
    }
}

/// Replays every proved record. Also returns the last index that the log had at the cut.
fn replay<F>(found: &Inventory<F>, proof: &Proof, cut: &Cut) -> Result<(State, Index), LogFault> {
    let (mut state, mut at_cut) = (State::default(), None);
    for (n, unique) in proof.chain.iter().enumerate() {
        let Some(loaded) = found.segments.get(unique) else { continue };
        let Ok(header) = &loaded.header else { continue };
        let opening = proof.records[n].iter().find_map(|r| match &r.content {
            Content::Meta(meta) => Some(meta.as_ref().clone()),
            _ => None,
        });
        if n == 0 {
            if opening.is_none() && header.prev.index > Index(0) {
                let why = "the oldest segment does not say what came before it";
                return Err(damaged(&loaded.path, FIRST_BATCH, Index(1), header.prev.index, why));
            }
            state.begin(header, opening.as_ref().unwrap_or(&Meta::default()));
        }
        let opening = opening.unwrap_or_default();
        for record in &proof.records[n] {
            if at_cut.is_none() && !cut.keeps(proof, *unique, record.offset) {
                at_cut = Some(state.last.index);
            }
            state.replay(header, &opening, record).map_err(|why| {
                let first = state.last.index.next();
                damaged(&loaded.path, record.offset, first, first, &why)
            })?;
        }
    }
    let at_cut = at_cut.unwrap_or(state.last.index);
    Ok((state, at_cut))
}

/// The content of the fresh segment.
struct Fresh {
    header: SegmentHeader,
    items: Vec<Item>,
}

impl Fresh {
    fn plan<F: DiskFile>(
        found: &Inventory<F>,
        proof: &Proof,
        cut: &Cut,
        state: &State,
        at_cut: Index,
    ) -> Result<Self, LogFault> {
        let kept = state.entries.iter().take_while(|e| cut.keeps(proof, e.segment, e.offset));
        let kept = Index(state.base.index.0 + kept.count() as u64);
        let prev = state.id_at(kept).unwrap_or(state.base);
        let too_large = |e: crate::record::TooLarge| poison("copy the end of the log", e.0);
        let mut items = vec![Item::meta(&state.meta_at(prev)).map_err(too_large)?];
        let mut cleared = false;
        if let Some((segment, offset, meta)) = &state.rebased
            && !cut.keeps(proof, *segment, *offset)
        {
            // With nothing of the suffix left in place, everything before it is void.
            cleared = kept == state.base.index;
            items.push(Item::base(meta, !cleared).map_err(too_large)?);
        }
        if at_cut > kept && !cleared {
            let needs = u32::try_from(state.last.index.0 - kept.0).unwrap_or(u32::MAX);
            items.push(Item::Truncate { from: kept.next(), needs });
        }
        for index in kept.0 + 1..=state.last.index.0 {
            let Some(at) = state.entry(Index(index)) else { continue };
            let Some(source) = found.segments.get(&at.segment) else { continue };
            let mut record = vec![0; usize::try_from(at.size).unwrap_or(usize::MAX)];
            source.file.read_at(at.offset, &mut record).map_err(|e| poison("read the log", e))?;
            let entry = shared_entry(&Bytes::from(record)).map_err(|why| {
                damaged(&source.path, at.offset, Index(index), Index(index), &why)
            })?;
            items.push(Item::entry(&entry).map_err(too_large)?);
        }
        let (join, source) = Self::join(found, proof, cut);
        let copied = Some(Copied { source, last: state.last.index, ..Copied::default() });
        let header = SegmentHeader { first: kept.next(), prev, join, copied, ..Default::default() };
        Ok(Self { header, items })
    }

    fn join<F>(found: &Inventory<F>, proof: &Proof, cut: &Cut) -> (Join, Position) {
        let source = cut.position(proof);
        let Some(Ok(header)) = found.segments.get(&source.segment).map(|l| &l.header) else {
            return (Join::default(), source);
        };
        if cut.offset == FIRST_BATCH {
            return (header.join, source);
        }
        let last = proof.records[cut.at].iter().take_while(|r| r.offset < cut.offset).last();
        let chain = last.map_or(header.join.chain, |r| r.header.crc);
        (Join { unique: header.unique, end: cut.offset, chain }, source)
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
        let needed = FIRST_BATCH + align_up(items_size + BLOCK) + 2 * BLOCK;
        let mut highest = found.highest;
        let mut spares = known_spares(&found, options.segment_bytes);
        let spare = match spares.pop() {
            Some(spare) => spare,
            None => {
                highest += 1;
                make_now(disk, highest, needed.max(options.segment_bytes))?
            }
        };
        highest += u64::from(!spare.fresh);
        let unique = highest;
        let (file, bytes) = take_spare(disk, spare, unique, needed)?;
        self.header = SegmentHeader { unique, owner, bytes, ..self.header };
        let (offsets, chain) = self.write_copy(&file, &state, proof)?;
        let path = segment_name(self.header.first, unique).path();
        // The name appears only when the copy is complete and durable.
        disk.rename(&Name::Spare { number: unique }.path(), &path)
            .and_then(|()| disk.sync_dir(LOG_DIR))
            .map_err(|e| poison("name the fresh segment", e))?;
        self.relocate(&mut state, &offsets);
        let end = self.header.copied.unwrap_or_default().end;
        let active = Segment::new(self.header, path, file, 0, Cursor::start(&self.header));
        let durable = Position::new(unique, align_up(end));
        let watermark = [Item::Watermark { at: durable, commit: state.commit }];
        let head = BatchHead { hard: state.hard, durable, seq: 0 };
        let mut buffer = Vec::new();
        let (_, chain) = encode_batch(&mut buffer, unique, chain, &head, &watermark);
        buffer.resize(BLOCK_BYTES, 0);
        // Durable before anything is reported: D now lies in the fresh segment.
        (active.file.write_at(durable.offset, &buffer))
            .and_then(|()| active.file.sync())
            .map_err(|e| poison("write the watermark of the fresh segment", e))?;
        let offset = durable.offset + BLOCK;
        active.publish(offset);
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
        let head = BatchHead { hard: state.hard, durable: proof.durable, seq: 0 };
        let mut buffer = vec![0; BLOCK_BYTES];
        let (offsets, chain) =
            encode_batch(&mut buffer, unique, self.header.join.chain, &head, &self.items);
        if let Some(copied) = &mut self.header.copied {
            copied.end = buffer.len() as u64;
            copied.crc = chain;
        }
        buffer[..HEADER_LEN].copy_from_slice(&self.header.encode());
        buffer.resize(buffer.len().next_multiple_of(BLOCK_BYTES), 0);
        (file.write_at(0, &buffer))
            .and_then(|()| file.sync())
            .map_err(|e| poison("write the fresh segment", e))?;
        Ok((offsets, chain))
    }

    /// The copied entries now live in the fresh segment.
    fn relocate(&self, state: &mut State, offsets: &[u64]) {
        for (item, offset) in self.items.iter().zip(offsets) {
            let Item::Entry { id: LogId { index, .. }, .. } = item else { continue };
            let at = index.0.checked_sub(state.first().0).and_then(|at| usize::try_from(at).ok());
            if let Some(entry) = at.and_then(|at| state.entries.get_mut(at)) {
                (entry.segment, entry.offset) = (self.header.unique, *offset);
            }
        }
        state.rebased = None;
    }
}

/// Complete spares of the usual length, the one to use first at the end.
fn known_spares<F>(found: &Inventory<F>, bytes: u64) -> Vec<SpareFile> {
    let usable = found.spares.iter().filter(|(_, len)| *len >= bytes);
    usable
        .map(|(number, bytes)| SpareFile { number: *number, bytes: *bytes, fresh: false })
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
            .map_err(|e| poison("take a spare segment", e))?;
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
    for (n, unique) in proof.chain.iter().enumerate().take(standing) {
        let Some(loaded) = found.segments.remove(unique) else { continue };
        let Ok(header) = loaded.header else { continue };
        let end = if n == cut.at { cut.offset } else { proof.ends[n] };
        let last = proof.records[n].iter().take_while(|r| r.offset < end).last();
        let chain = last.map_or(header.join.chain, |r| r.header.crc);
        let cursor = Cursor { offset: end, chain, batch_end: end };
        let segment = Segment::new(header, loaded.path, loaded.file, end, cursor);
        segments.insert(*unique, Arc::new(segment));
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
