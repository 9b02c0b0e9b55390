//! The segmented log (DESIGN section 5): one directory, one writer, one sync a batch.

use crate::disk::{Disk, DiskFile};
use crate::fault::{at_reopen, at_start, poison};
use crate::newest::Newest;
use crate::position::{BLOCK, LOG_DIR, Name, Position, align_up};
use crate::reader::{Changes, Reader, Table};
use crate::rebuild::{self, Start};
use crate::record::Item;
use crate::segment::{Owner, Segment};
use crate::side_index::Pending;
use crate::snapshot_files::SnapshotFiles;
use crate::spare::{Making, Spare, SpareFile};
use crate::state::State;
use crate::sync::{Ordering, RwLock};
use crate::writer::Planned;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogStore, SnapshotStore};
use holdfast_consensus::{Entry, Index, LogId, Recovered, Seq, SnapshotMeta};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

/// Spares that writes leave alone: with one a start on a disk without a free byte has the fresh
/// segment that it needs (R12, R45).
pub(crate) const KEPT_SPARES: usize = 1;

/// What a small command takes of a segment, in bytes, with others beside it.
const SMALL: u64 = 4 * BLOCK;

/// Settings of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Length of a segment in bytes: a multiple of 4096, at least 32768.
    pub segment_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { segment_bytes: 16 << 20 }
    }
}

impl LogOptions {
    /// Smallest segment, in bytes.
    pub const SEGMENT_MIN: u64 = 32 << 10;

    fn check(&self) -> Result<(), LogFault> {
        let bytes = self.segment_bytes;
        if bytes < Self::SEGMENT_MIN || align_up(bytes) != bytes {
            return Err(LogFault::Refused(format!(
                "segment size {bytes}: it must be a multiple of 4096 bytes and at least {}",
                Self::SEGMENT_MIN
            )));
        }
        Ok(())
    }
}

/// Who is asked whether a log may be opened, with what will have been recovered; an error is why not.
pub(crate) type Admission<'a> = dyn FnMut(&Recovered) -> Result<(), String> + 'a;

/// True if a start takes this published snapshot for the log's base (R25).
fn becomes_base(state: &State, meta: &SnapshotMeta) -> bool {
    let behind = meta.last.index > state.last.index;
    // What the snapshot holds nobody needs to give back.
    let covers = state.holes.range(..=meta.last.index).next().is_some();
    let parted = !state.keeps_suffix(meta.last);
    behind || (meta.last.index > state.base.index && (parted || covers))
}

/// What a log in this state will have recovered once it is open, with this newest snapshot.
fn foreseen(state: &State, snapshot: Option<SnapshotMeta>) -> Result<Recovered, LogFault> {
    let recovered = match &snapshot {
        Some(meta) if becomes_base(state, meta) => {
            let mut state = state.clone();
            let kept = state.keeps_suffix(meta.last);
            state.rebase(meta, kept).map_err(LogFault::Refused)?;
            state.recovered()
        }
        _ => state.recovered(),
    };
    Ok(Recovered { snapshot, ..recovered })
}

/// A durable log in the directory `log` of a disk, with its snapshot files in `snap`.
#[derive(Debug)]
pub struct Log<D: Disk> {
    pub(crate) disk: D,
    pub(crate) options: LogOptions,
    pub(crate) owner: Owner,
    pub(crate) state: State,
    pub(crate) segments: BTreeMap<u64, Arc<Segment<D::File>>>,
    pub(crate) active: Arc<Segment<D::File>>,
    /// Length of the active file in bytes.
    pub(crate) bytes: u64,
    /// Offset of the next batch in the active file; a multiple of 4096.
    pub(crate) offset: u64,
    /// CRC of the last record written.
    pub(crate) chain: u32,
    /// Everything below is acknowledged. Invariant: never above what a sync has returned for.
    pub(crate) durable: Position,
    /// Highest sequence number that was made durable.
    pub(crate) seq: Seq,
    /// Highest number in any file name: no unique id is used twice.
    pub(crate) highest: u64,
    /// Spares; the last one is used first.
    pub(crate) spares: Vec<SpareFile>,
    /// Number of a segment that was given up and is to become a spare again.
    pub(crate) retired: Option<u64>,
    pub(crate) making: Arc<Making>,
    pub(crate) table: Arc<RwLock<Table<D::File>>>,
    /// Changes that become visible with the next sync.
    pub(crate) changes: Changes,
    /// A watermark is written and not synced yet.
    pub(crate) unsynced: bool,
    /// The durable position and commit of the last watermark written.
    pub(crate) marked: (Position, Index),
    pub(crate) newest: Option<Newest<D::File>>,
    /// Why the member is held, if it is (R5): not a byte is written.
    pub(crate) held: Option<String>,
    /// Why nothing is accepted until reopen.
    pub(crate) poisoned: Option<String>,
    /// A write was tried since the last sync that returned: reopening must cut (R12).
    pub(crate) touched: bool,
    pub(crate) buffer: Vec<u8>,
    /// What the next batch has to say of those before it.
    pub(crate) pending: Pending,
    pub(crate) snapshots: SnapshotFiles<D>,
}

impl<D: Disk> Log<D> {
    /// Opens the log, or creates it if there is none, and proves what it holds (R9, R12). The
    /// owner's id is durable in a segment header before this returns (R7). Of an existing log,
    /// `owner` must be the owner.
    ///
    /// A published snapshot that the log does not reach is taken as the log's base (R25): the
    /// crash came between publishing a received snapshot and the base record.
    ///
    /// # Errors
    /// [`LogFault::Damaged`] or [`LogFault::Refused`] with every byte untouched; [`LogFault::Full`]
    /// or [`LogFault::Unopened`] as the disk says.
    pub fn open(disk: D, owner: Owner, options: LogOptions) -> Result<Self, LogFault> {
        Self::open_if(disk, owner, options, None)
    }

    /// As [`Log::open`], but `admit` is asked before anything is changed, with what will have been
    /// recovered; what it says against it is the refusal. A held log is not asked about: nothing of
    /// it is changed.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub(crate) fn open_if(
        disk: D,
        owner: Owner,
        options: LogOptions,
        admit: Option<&mut Admission<'_>>,
    ) -> Result<Self, LogFault> {
        Self::try_open(disk, owner, options, admit).map_err(at_start)
    }

    fn try_open(
        disk: D,
        owner: Owner,
        options: LogOptions,
        mut admit: Option<&mut Admission<'_>>,
    ) -> Result<Self, LogFault> {
        options.check()?;
        let mut found = None;
        let opened = rebuild::open(&disk, owner, &options, Start::Fresh, &mut |state| {
            let Some(admit) = admit.as_deref_mut() else { return Ok(()) };
            let published = SnapshotFiles::find(&disk)?;
            let newest = published.last().cloned();
            found = Some(published);
            admit(&foreseen(state, newest)?).map_err(LogFault::Refused)
        })?;
        let snapshots = SnapshotFiles::open(disk.clone(), found)?;
        let table = Table::of(&opened.state, &opened.segments);
        let mut log = Self {
            disk,
            options,
            owner: opened.owner,
            marked: (opened.durable, opened.state.commit),
            state: opened.state,
            segments: opened.segments,
            active: opened.active,
            bytes: opened.bytes,
            offset: opened.offset,
            chain: opened.chain,
            durable: opened.durable,
            seq: Seq(0),
            highest: opened.highest,
            spares: opened.spares,
            retired: None,
            making: Arc::default(),
            table: Arc::new(RwLock::new(table)),
            changes: Changes::default(),
            unsynced: false,
            newest: opened.newest,
            held: opened.held,
            poisoned: None,
            touched: false,
            buffer: Vec::new(),
            pending: opened.pending,
            snapshots,
        };
        if let Some(meta) = log.snapshots.newest().filter(|_| log.held.is_none())
            && becomes_base(&log.state, &meta)
        {
            log.reset(&meta)?;
        }
        Ok(log)
    }

    /// Whose log it is.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The cluster and recovery epoch that headers of further segments carry.
    pub(crate) fn set_cluster(&mut self, cluster: holdfast_consensus::ClusterId, epoch: u64) {
        (self.owner.cluster, self.owner.epoch) = (cluster, epoch);
    }

    pub(crate) fn guard(&self) -> Result<(), LogFault> {
        if let Some(why) = &self.held {
            return Err(LogFault::Held { why: why.clone() });
        }
        match &self.poisoned {
            Some(detail) => Err(LogFault::Poisoned { detail: detail.clone() }),
            None => Ok(()),
        }
    }

    /// Runs an operation. A want of space that showed before the first byte was written leaves
    /// the log as it was (R45); any other fault poisons it.
    pub(crate) fn poisoning<T>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<T, LogFault>,
    ) -> Result<T, LogFault> {
        self.guard()?;
        let fault = match run(self) {
            Ok(done) => return Ok(done),
            Err(fault) => fault,
        };
        let detail = fault.to_string();
        match fault {
            LogFault::Full { .. } if !self.touched => Err(fault),
            LogFault::Full { .. } => {
                self.poisoned = Some(detail.clone());
                Err(LogFault::Poisoned { detail })
            }
            fault => {
                self.poisoned = Some(detail);
                Err(fault)
            }
        }
    }

    fn publish_table(&mut self) {
        let table = Table::of(&self.state, &self.segments);
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
    }

    fn try_reset(&mut self, to: &SnapshotMeta) -> Result<LogId, LogFault> {
        if to.last.index <= self.state.base.index {
            return Ok(self.state.last);
        }
        let kept = self.state.keeps_suffix(to.last);
        let item = Item::base(to, kept).map_err(|e| LogFault::Refused(e.0))?;
        let mut planned = Planned::of(vec![item]);
        self.ensure_spares(&self.segments_wanted(&planned))?;
        if !kept && to.last.index.next() < self.active.header.first {
            // As with any cut: a segment never goes on below its own first index, so that it
            // stands alone once older ones are gone.
            let room = planned.bytes * 2;
            self.ensure_spares(&[self.fresh_size(room)])?;
            self.seal(self.state.hard)?;
            self.state.rebase(to, false).map_err(LogFault::Refused)?;
            self.enter_fresh_segment()?;
            let meta = self.state.meta_at(self.state.last);
            planned.begin_with(Item::meta(&meta).map_err(|e| LogFault::Refused(e.0))?);
        }
        self.write_and_sync(planned)?;
        Ok(self.state.last)
    }

    fn try_compact(&mut self, through: Index) -> Result<Index, LogFault> {
        let through = through.min(self.state.last.index);
        while let Some((&oldest, segment)) = self.segments.first_key_value() {
            if oldest == self.active.header.unique {
                break;
            }
            // Whatever cuts below the first index of a segment opens another: what is live in this
            // one lies below the first index of every later one, wherever its holes were filled.
            let later = self.segments.range(oldest + 1..).map(|(_, s)| s.header.first);
            let last_live = later.min().unwrap_or_default().prev();
            let live = last_live > self.state.base.index;
            // The base's term must be known.
            let unknown = self.state.holes.get(&last_live) == Some(&false);
            if live && (last_live > through || unknown) {
                break;
            }
            let segment = Arc::clone(segment);
            // Readers forget it first. Oldest first, each made durable before the next: no crash
            // leaves a hole that could be read as a shorter log.
            self.state.compact(last_live);
            self.segments.remove(&oldest);
            self.table
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .compact(self.state.first(), oldest);
            // Should this fail, only reading the directory again tells what is there.
            self.touched = true;
            self.give_up(segment)?;
            self.touched = false;
        }
        Ok(self.state.first())
    }

    /// Gives up a file in which nobody finds an entry any more. One waits to become the next spare
    /// that is wanted: filling another with zeros would write as many bytes again as are ever
    /// logged. Never while a reader may hold bytes of it (R17).
    fn give_up(&mut self, segment: Arc<Segment<D::File>>) -> Result<(), LogFault> {
        let path = segment.path.clone();
        let usual = segment.header.bytes == self.options.segment_bytes;
        let wanted = usual && self.retired.is_none();
        let owned = wanted.then(|| Arc::into_inner(segment)).flatten();
        let again = owned.is_some_and(|segment| !segment.file.is_shared());
        let given_up = if again {
            self.highest += 1;
            self.disk.rename(&path, &Name::Unfinished { number: self.highest }.path())
        } else {
            self.disk.unlink(&path)
        };
        given_up
            .and_then(|()| self.disk.sync_dir(LOG_DIR))
            .map_err(|e| poison("give up a segment", e))?;
        self.retired = again.then_some(self.highest).or(self.retired);
        Ok(())
    }

    fn try_reopen(&mut self) -> Result<(), LogFault> {
        let start = Start::Again { limit: self.durable };
        let opened = rebuild::open(&self.disk, self.owner, &self.options, start, &mut |_| Ok(()))
            .map_err(at_reopen)?;
        self.state = opened.state;
        self.segments = opened.segments;
        self.active = opened.active;
        (self.bytes, self.offset, self.chain) = (opened.bytes, opened.offset, opened.chain);
        self.durable = opened.durable;
        self.highest = self.highest.max(opened.highest);
        self.spares = opened.spares;
        self.pending = opened.pending;
        self.held = opened.held;
        self.newest = opened.newest;
        self.marked = (opened.durable, self.state.commit);
        Ok(())
    }
}

impl<D: Disk> LogStore for Log<D> {
    type Reader = Reader<D>;
    type Snapshots = SnapshotFiles<D>;
    type Spare = Spare<D>;

    fn recovered(&self) -> Recovered {
        let snapshot = self.snapshots.newest();
        Recovered { snapshot, held: self.held.clone(), ..self.state.recovered() }
    }

    fn reader(&self) -> Self::Reader {
        Reader { table: Arc::clone(&self.table) }
    }

    fn snapshots(&self) -> Self::Snapshots {
        self.snapshots.clone()
    }

    fn persist(&mut self, batches: &[Persist]) -> Result<Seq, LogFault> {
        self.poisoning(|log| log.try_persist(batches))
    }

    fn watermark(&mut self, commit: Index) -> Result<(), LogFault> {
        self.poisoning(|log| log.try_watermark(commit))
    }

    fn repair(&mut self, entries: &[Entry]) -> Result<Vec<Index>, LogFault> {
        self.guard()?;
        let (items, filled) = self.plan_repair(entries)?;
        if items.is_empty() {
            return Ok(filled);
        }
        self.poisoning(|log| {
            let planned = Planned::of(items);
            log.ensure_spares(&log.segments_wanted(&planned))?;
            log.write_and_sync(planned)
        })?;
        Ok(filled)
    }

    fn spare(&mut self) -> Option<Self::Spare> {
        if self.held.is_some()
            || self.spares.len() > KEPT_SPARES
            || self.making.busy.load(Ordering::Acquire)
        {
            return None;
        }
        let making = Arc::clone(&self.making);
        if let Some(number) = self.retired.take() {
            let bytes = self.options.segment_bytes;
            return Some(Spare::again(self.disk.clone(), number, bytes, making));
        }
        self.highest += 1;
        Some(Spare::new(self.disk.clone(), self.highest, self.options.segment_bytes, making))
    }

    fn add_spare(&mut self, spare: Self::Spare) -> Result<(), LogFault> {
        let Some(file) = spare.finished() else {
            return Err(LogFault::Refused("the spare segment is not finished".into()));
        };
        self.making.failed.store(false, Ordering::Release);
        let known = self.spares.iter().any(|s| s.number == file.number);
        // A reopen meanwhile may have found it by its name, and may have used it.
        let path = Name::Spare { number: file.number }.path();
        if !known && self.disk.open(&path, crate::disk::Mode::Read).is_ok() {
            self.spares.push(file);
        }
        Ok(())
    }

    fn low(&self) -> bool {
        self.spares.len() <= KEPT_SPARES && self.making.failed.load(Ordering::Acquire)
    }

    fn has_room(&self) -> bool {
        !self.low() || self.takes_commands(SMALL)
    }

    fn compact(&mut self, through: Index) -> Result<Index, LogFault> {
        self.poisoning(|log| log.try_compact(through))
    }

    fn reset(&mut self, to: &SnapshotMeta) -> Result<LogId, LogFault> {
        self.poisoning(|log| log.try_reset(to))
    }

    fn reopen(&mut self) -> Result<Recovered, LogFault> {
        if self.poisoned.is_some() {
            // Nothing was written since the last sync that returned: what is in memory is what is
            // durable, and no space is needed to go on.
            if self.touched {
                self.try_reopen()?;
            }
            self.changes.clear();
            (self.unsynced, self.touched, self.poisoned) = (false, false, None);
            self.publish_table();
        }
        Ok(self.recovered())
    }
}

impl<D: Disk> Log<D> {
    /// True if the active file has room for `size` bytes of records and for its seal.
    pub(crate) fn fits(&self, size: u64) -> bool {
        align_up(self.offset + size) + crate::position::BLOCK <= self.bytes
    }

    /// Makes what was just synced visible.
    pub(crate) fn acknowledge(&mut self) {
        for segment in self.segments.values().rev() {
            if segment.header.unique == self.active.header.unique {
                segment.publish(self.offset);
            }
        }
        let table = &mut *self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.follow(&self.state, &self.segments, &mut self.changes);
        self.durable =
            Position { segment: self.active.header.unique, offset: self.offset, seq: self.seq.0 };
        self.unsynced = false;
        self.touched = false;
    }
}
