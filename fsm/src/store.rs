//! One open store file: create, open, read, commit.

use crate::backend::{Backend, Gate, StoreFile};
use crate::contain::Contained;
use crate::digest::record_hash;
use crate::header::{HEADER_KEY, Header, HeaderFault};
use crate::records::{Counts, Record, TableId};
use crate::reserve::GiveUp;
use crate::rows::{ROWS, Rows, Walk, decode, scan, seen};
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::{ClusterId, LogId};
use holdfast_log::disk::{Disk, DiskFile, Mode};
use redb::backends::InMemoryBackend;
use redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTableMetadata,
    WriteTransaction,
};
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// Directory of the store, below the root of the disk.
pub const STORE_DIR: &str = "store";
/// The live store. It exists only once it is complete: a new or restored one is made beside it
/// and renamed.
pub const STORE_FILE: &str = "store/meta.redb";
/// A store under construction.
pub(crate) const NEW_FILE: &str = "store/new.redb";

/// Stores with at most this many rows are walked whole when they are opened; larger ones get the
/// cheap check (checksum of the header, number of rows).
const WALK_AT_OPEN_ROWS: u64 = 4096;

/// Stores of at most this length have the checksum of every page compared before they are used,
/// those of redb's own books included: damage there can abort the process, where no fault can be
/// returned any more. A larger store that dies of it is marked, and set aside at the next start.
const PAGES_AT_OPEN_BYTES: u64 = 16 << 20;

/// How a store is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The cluster that the store must belong to.
    pub cluster: ClusterId,
    /// Recovery epoch of the log that feeds it.
    pub epoch: u64,
    /// The Raft group.
    pub group: u64,
    /// Memory for cached pages, in bytes.
    pub cache_bytes: usize,
    /// Write zeros over new blocks when the file grows, so that a full disk shows before pages
    /// are written there, and keep as many in reserve for the next growth.
    pub reserve: bool,
}

impl StoreOptions {
    /// The settings of a real node: 64 MiB of cache, blocks reserved.
    #[must_use]
    pub const fn new(cluster: ClusterId, epoch: u64) -> Self {
        Self { cluster, epoch, group: 0, cache_bytes: 64 << 20, reserve: true }
    }

    /// The settings of a small state on a simulated disk: 1 MiB of cache.
    #[must_use]
    pub const fn small(cluster: ClusterId, epoch: u64) -> Self {
        Self { cluster, epoch, group: 0, cache_bytes: 1 << 20, reserve: false }
    }
}

/// Why a store was not opened. Every byte of it is as it was.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// It belongs to another cluster.
    #[error(
        "the store {STORE_FILE} belongs to cluster {found}, not to {expected}. Nothing was changed. Move the file aside: the node rebuilds its store from its snapshot and log, and keeps its member id"
    )]
    OtherCluster {
        /// The cluster in the store.
        found: ClusterId,
        /// The cluster wanted.
        expected: ClusterId,
    },
    /// It belongs to another recovery epoch or group.
    #[error(
        "the store {STORE_FILE} belongs to recovery epoch {epoch} and group {group}, not to {wanted_epoch} and {wanted_group}. Nothing was changed. Move the file aside: the node rebuilds its store from its snapshot and log, and keeps its member id"
    )]
    OtherEpoch {
        /// The epoch in the store.
        epoch: u64,
        /// The group in the store.
        group: u64,
        /// The epoch wanted.
        wanted_epoch: u64,
        /// The group wanted.
        wanted_group: u64,
    },
    /// A newer build wrote it, or one from before the first release.
    #[error("the store {STORE_FILE} was {0}")]
    Newer(HeaderFault),
    /// Its content contradicts itself: it must not be used.
    #[error("the store {STORE_FILE} cannot be trusted: {0}")]
    Untrusted(String),
    /// The disk failed.
    #[error(transparent)]
    Disk(StoreFault),
}

impl From<OpenError> for StoreFault {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Disk(fault) => fault,
            other => Self::Untrusted(other.to_string()),
        }
    }
}

impl From<StoreFault> for OpenError {
    fn from(fault: StoreFault) -> Self {
        match fault {
            StoreFault::Untrusted(why) => Self::Untrusted(why),
            other => Self::Disk(other),
        }
    }
}

/// Turns an error of the disk into a fault.
pub(crate) fn disk_fault(what: &str, error: &io::Error) -> StoreFault {
    let detail = format!("{what}: {error}");
    match error.kind() {
        io::ErrorKind::StorageFull => StoreFault::Full { detail },
        _ => StoreFault::Poisoned { detail },
    }
}

/// One open store file. Sealed before it closes (see [`crate::backend`]).
#[derive(Debug)]
pub(crate) struct Store {
    db: Contained<Database>,
    gate: Arc<Gate>,
}

impl Drop for Store {
    fn drop(&mut self) {
        // redb writes when it is dropped; only checkpoints may make effects durable.
        self.gate.seal();
    }
}

impl Store {
    /// Makes a new store at `path` with this header, durably but for the directory entry.
    pub(crate) fn create<D: Disk>(
        disk: &D,
        path: &str,
        options: &StoreOptions,
        header: &mut Header,
    ) -> Result<Self, StoreFault> {
        let file = disk
            .open(path, Mode::CreateNew)
            .map_err(|e| disk_fault(&format!("create {path}"), &e))?;
        let (store, _) = Self::with_file(file, options, None, false)?;
        let txn = store.begin(false)?;
        Rows::open(&txn, &store.gate, header)?.finish(header)?;
        store.commit(txn)?;
        Ok(store)
    }

    /// Opens the store at `path` for writing, after it has been checked against itself and
    /// against the options. An unclean end is repaired. If it is refused, no byte of it changes.
    /// `keeps` is given up if the file has to grow on a full disk. `condemned` is set if the sync of the repair failed: the file must not be used again.
    pub(crate) fn open<D: Disk>(
        disk: &D,
        path: &str,
        options: &StoreOptions,
        keeps: Option<Arc<dyn GiveUp>>,
        condemned: &mut bool,
    ) -> Result<(Self, Header), OpenError> {
        let (store, file) = Self::look(disk, path, options, keeps, Mode::Write)?;
        let header = store.checked(options)?;
        if let Err(e) = file.release() {
            *condemned |= store.gate.sync_failed();
            return Err(disk_fault("open the store", &e).into());
        }
        Ok((store, header))
    }

    /// Reads the header of the store at `path` and checks it against itself and the options,
    /// without writing a byte.
    pub(crate) fn inspect<D: Disk>(
        disk: &D,
        path: &str,
        options: &StoreOptions,
    ) -> Result<Header, OpenError> {
        Self::look_at(disk, path, options).map(|(_, header)| header)
    }

    /// Opens the store at `path` for reading alone: what redb writes by itself stays in memory.
    pub(crate) fn look_at<D: Disk>(
        disk: &D,
        path: &str,
        options: &StoreOptions,
    ) -> Result<(Self, Header), OpenError> {
        let (mut store, _) = Self::look(disk, path, options, None, Mode::Read)?;
        if store.gate.len() <= PAGES_AT_OPEN_BYTES {
            let sound = store.gate.run("check the pages", || store.db.check_integrity())?;
            if !sound {
                let why = "the checksums of its pages do not hold".to_owned();
                return Err(OpenError::Untrusted(why));
            }
        }
        let header = store.checked(options)?;
        Ok((store, header))
    }

    /// An empty store without a file.
    pub(crate) fn in_memory(options: &StoreOptions) -> Result<(Self, Header), StoreFault> {
        let gate = Arc::new(Gate::default());
        let db = gate.run("make a store in memory", || {
            Builder::new()
                .set_cache_size(options.cache_bytes)
                .create_with_backend(InMemoryBackend::new())
        })?;
        let store = Self { db: Contained::new(db), gate };
        let mut header = Header {
            cluster: options.cluster,
            epoch: options.epoch,
            group: options.group,
            ..Header::default()
        };
        let txn = store.begin(false)?;
        Rows::open(&txn, &store.gate, &header)?.finish(&mut header)?;
        store.commit(txn)?;
        Ok((store, header))
    }

    /// Opens the store with every write held back.
    #[expect(clippy::type_complexity, reason = "a pair with one generic half, named nowhere else")]
    fn look<D: Disk>(
        disk: &D,
        path: &str,
        options: &StoreOptions,
        keeps: Option<Arc<dyn GiveUp>>,
        mode: Mode,
    ) -> Result<(Self, Arc<StoreFile<D::File>>), OpenError> {
        let file = disk.open(path, mode).map_err(|e| disk_fault(&format!("open {path}"), &e))?;
        let empty = file.is_empty().map_err(|e| disk_fault(&format!("length of {path}"), &e))?;
        if empty {
            // redb would take it for a store to be created.
            return Err(OpenError::Untrusted("it has no content".to_owned()));
        }
        Ok(Self::with_file(file, options, keeps, true)?)
    }

    fn with_file<F: DiskFile>(
        file: F,
        options: &StoreOptions,
        keeps: Option<Arc<dyn GiveUp>>,
        held: bool,
    ) -> Result<(Self, Arc<StoreFile<F>>), StoreFault> {
        let gate = Arc::new(Gate::default());
        let file = Arc::new(StoreFile::new(file, Arc::clone(&gate), options.reserve, keeps, held));
        let db = gate.run("open the store", || {
            Builder::new()
                .set_cache_size(options.cache_bytes)
                .create_with_backend(Backend(Arc::clone(&file)))
        })?;
        Ok((Self { db: Contained::new(db), gate }, file))
    }

    fn checked(&self, options: &StoreOptions) -> Result<Header, OpenError> {
        let reader = self.reader()?;
        reader.header.check(options)?;
        reader.check_cheaply()?;
        Ok(reader.header)
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Begins a write transaction; `durable` ones are checkpoints.
    pub(crate) fn begin(&self, in_memory: bool) -> Result<Contained<WriteTransaction>, StoreFault> {
        let txn = self.gate.run("begin a transaction", || self.db.begin_write())?;
        let mut txn = Contained::new(txn);
        if in_memory {
            self.gate.run("begin a transaction", || txn.set_durability(Durability::None))?;
        } else {
            // Saves the allocator state: opening after an unclean end is then cheap (R20, R21).
            txn.set_quick_repair(true);
        }
        Ok(txn)
    }

    pub(crate) fn commit(&self, txn: Contained<WriteTransaction>) -> Result<(), StoreFault> {
        self.gate.run("commit", || txn.into_inner().commit())
    }

    /// A consistent reader of the state as it is now.
    pub(crate) fn read(&self) -> Result<Reader, StoreFault> {
        Ok(self.reader()?)
    }

    fn reader(&self) -> Result<Reader, OpenError> {
        Reader::new(&self.db, Arc::clone(&self.gate))
    }
}

impl Header {
    /// Checks that the state is the one that is wanted.
    fn check(&self, options: &StoreOptions) -> Result<(), OpenError> {
        if self.cluster != options.cluster {
            return Err(OpenError::OtherCluster { found: self.cluster, expected: options.cluster });
        }
        if (self.epoch, self.group) != (options.epoch, options.group) {
            return Err(OpenError::OtherEpoch {
                epoch: self.epoch,
                group: self.group,
                wanted_epoch: options.epoch,
                wanted_group: options.group,
            });
        }
        Ok(())
    }
}

impl From<HeaderFault> for OpenError {
    fn from(fault: HeaderFault) -> Self {
        match fault {
            HeaderFault::Damaged(why) => Self::Untrusted(why),
            newer => Self::Newer(newer),
        }
    }
}

/// One read transaction: header and records from the same moment (R24).
pub(crate) struct Reader {
    table: Contained<ReadOnlyTable<&'static [u8], &'static [u8]>>,
    gate: Arc<Gate>,
    pub(crate) header: Header,
}

impl Reader {
    fn new(db: &Database, gate: Arc<Gate>) -> Result<Self, OpenError> {
        let txn = Contained::new(gate.run("begin a read", || db.begin_read())?);
        let table = Contained::new(gate.run("open the store's map", || txn.open_table(ROWS))?);
        let row = gate.run("read the header", || table.get(HEADER_KEY.as_slice()))?;
        let row = row.ok_or_else(|| OpenError::Untrusted("it has no header".to_owned()))?;
        let header = seen(&gate, &Contained::new(row), |bytes| Ok(Header::decode(bytes)))??;
        Ok(Self { table, gate, header })
    }

    pub(crate) fn get<R: Record>(&self, key: &[u8]) -> Result<Option<R>, StoreFault> {
        debug_assert_eq!(key.first(), Some(&(R::TABLE as u8)));
        let found = self.gate.run("read a record", || self.table.get(key))?;
        found.map(|guard| seen(&self.gate, &Contained::new(guard), decode)).transpose()
    }

    /// Visits records from `from` on (inclusive) in key order, header and all tables, until
    /// `visit` says stop.
    pub(crate) fn walk(
        &self,
        from: &[u8],
        visit: impl FnMut(&[u8], &[u8]) -> Result<Walk, StoreFault>,
    ) -> Result<(), StoreFault> {
        let range = self.gate.run("scan the map", || self.table.range::<&[u8]>(from..))?;
        scan(&self.gate, range, visit)
    }

    /// Digest and counts, recomputed from every record.
    pub(crate) fn recompute(&self) -> Result<(u128, Counts), StoreFault> {
        let mut digest = 0u128;
        let mut counts = Counts::default();
        self.walk(&[], |key, value| {
            if key == HEADER_KEY {
                return Ok(Walk::On);
            }
            let table = key.first().copied().and_then(TableId::from_number);
            let table = table.ok_or_else(|| {
                StoreFault::Untrusted(format!("it holds a record under the strange key {key:?}"))
            })?;
            digest = digest.wrapping_add(record_hash(table as u8, &key[1..], value));
            counts.0[table.position()] += 1;
            Ok(Walk::On)
        })?;
        Ok((digest, counts))
    }

    /// Checks header against records, record by record.
    pub(crate) fn verify(&self) -> Result<(), StoreFault> {
        let (digest, counts) = self.recompute()?;
        let header = &self.header;
        if (digest, counts) != (header.digest, header.counts) {
            return Err(StoreFault::Untrusted(format!(
                "at entry {} its header says digest {:032x} and rows {:?}, its records say {digest:032x} and {:?}",
                header.last, header.digest, header.counts.0, counts.0,
            )));
        }
        Ok(())
    }

    /// The part of [`Reader::verify`] that is affordable at every open.
    pub(crate) fn check_cheaply(&self) -> Result<(), StoreFault> {
        let rows = self.gate.run("count the rows", || self.table.len())?;
        let expected = self.header.counts.total() + 1;
        if rows != expected {
            return Err(StoreFault::Untrusted(format!(
                "at entry {} its header counts {expected} rows, and it holds {rows}",
                self.header.last,
            )));
        }
        if rows <= WALK_AT_OPEN_ROWS { self.verify() } else { Ok(()) }
    }
}

/// The last entry of a header, for facts.
impl Header {
    /// True if nothing was ever applied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last == LogId::default()
    }
}
