//! The metastore: entries in, state and answers out, on one redb file.

use crate::apply;
use crate::command::{Envelope, EnvelopeFault, kind};
use crate::distrust::{DISTRUST_FILE, distrust, distrusted};
use crate::header::Header;
use crate::image::Image;
use crate::records::Counts;
use crate::reserve::{GiveUp, Reserve};
use crate::restore::Restore;
use crate::rows::Rows;
use crate::store::{NEW_FILE, OpenError, STORE_DIR, STORE_FILE, Store, StoreOptions, disk_fault};
use crate::view::{Slot, View};
use bytes::Bytes;
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::traits::{Applied, StateMachine};
use holdfast_consensus::{Body, Entries, Entry, Index, LogId, SnapshotMeta};
use holdfast_log::disk::Disk;
use std::sync::Arc;

const RESTORE_PREFIX: &str = "restore-";

/// The replicated metadata store of one replica. Owned by the apply lane.
///
/// Invariant: while the store is open, `header` is what its newest transaction wrote.
pub struct Metastore<D: Disk> {
    disk: D,
    options: StoreOptions,
    slot: Arc<Slot>,
    header: Header,
    /// Last entry covered by a completed checkpoint of the file in use.
    durable: LogId,
    skipped: u64,
    /// Restores begun since open; names their files.
    restores: u64,
    /// A sync of the file failed: its content must never be used again (R21).
    condemned: bool,
    /// Space for the next growth of the file, if it is kept (R45).
    reserve: Option<Arc<Reserve<D>>>,
    /// The file was found damaged: it is not used again, and carries a mark that says so.
    damaged: Option<String>,
    /// The last refusal came before the store was touched: it is open, and stays open.
    refused: bool,
}

impl<D: Disk> std::fmt::Debug for Metastore<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metastore")
            .field("last", &self.header.last)
            .field("durable", &self.durable)
            .finish_non_exhaustive()
    }
}

impl<D: Disk> Drop for Metastore<D> {
    fn drop(&mut self) {
        // Views may outlive the machine: they end, and nothing is written behind its back.
        let cause = StoreFault::Poisoned { detail: "it was shut down".to_owned() };
        self.slot.close(self.header.last.index, cause);
    }
}

impl<D: Disk> Metastore<D> {
    /// Opens the store of a replica, making an empty one if there is none. Leftovers of a restore
    /// or of a creation that did not finish are removed. A store that must not be used is
    /// refused with every byte as it was.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(disk: D, options: StoreOptions) -> Result<Self, OpenError> {
        let present = store_exists(&disk)?;
        if !present {
            disk.make_dir(STORE_DIR).map_err(|e| disk_fault("make the store's directory", &e))?;
            disk.sync_dir("").map_err(|e| disk_fault("sync the data directory", &e))?;
        }
        let reserve = options.reserve.then(|| Arc::new(Reserve::open(disk.clone())));
        let mut machine = Self {
            reserve,
            refused: false,
            options,
            slot: Arc::new(Slot::default()),
            header: Header::default(),
            durable: LogId::default(),
            skipped: 0,
            restores: 0,
            condemned: !present,
            damaged: distrusted(&disk)?,
            disk,
        };
        machine.start()?;
        // Only now: a directory that is refused keeps everything.
        remove_leftovers(&machine.disk)?;
        Ok(machine)
    }

    /// Opens the store of a member that is held: it is read where it can be, nothing of it or
    /// beside it is ever written, and where there is none that can be used an empty one in memory
    /// stands for it (R5).
    ///
    /// # Errors
    /// [`OpenError`] if a stranger's store is there, or if it cannot be read.
    pub fn look(disk: D, options: StoreOptions) -> Result<Self, OpenError> {
        let found = match store_exists(&disk)? {
            true => Some(match distrusted(&disk)? {
                Some(why) => Err(OpenError::Untrusted(why)),
                None => Store::look_at(&disk, STORE_FILE, &options),
            }),
            false => None,
        };
        let (store, header) = match found {
            Some(Ok(found)) => found,
            None | Some(Err(OpenError::Untrusted(_))) => Store::in_memory(&options)?,
            Some(Err(error)) => return Err(error),
        };
        let slot = Arc::new(Slot::default());
        slot.install(Arc::new(store));
        let durable = header.last;
        Ok(Self {
            disk,
            options,
            slot,
            header,
            durable,
            skipped: 0,
            restores: 0,
            condemned: false,
            damaged: None,
            reserve: None,
            refused: false,
        })
    }

    /// What a store holds, if there is one, without writing a byte: for the restart decision and
    /// for forensics.
    ///
    /// # Errors
    /// [`OpenError`] if it must not be used.
    pub fn inspect(disk: &D, options: &StoreOptions) -> Result<Option<Header>, OpenError> {
        if !store_exists(disk)? {
            return Ok(None);
        }
        match distrusted(disk)? {
            Some(why) => Err(OpenError::Untrusted(why)),
            None => Store::inspect(disk, STORE_FILE, options).map(Some),
        }
    }

    /// Notes that this store took the place of one that was set aside: it proves nothing until a
    /// snapshot replaces it or the node starts again (R30).
    pub(crate) fn took_over(&mut self) {
        self.slot.set_rebuilt(true);
    }

    /// The disk that the store is on.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Rows per table.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.header.counts
    }

    /// The header of the current state.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Opens the file (or makes a fresh one if it is condemned) and puts it in place.
    fn start(&mut self) -> Result<(), OpenError> {
        if self.condemned {
            self.replace_with_empty()?;
        }
        if let Some(why) = &self.damaged {
            return Err(OpenError::Untrusted(why.clone()));
        }
        let keeps = self.reserve.clone().map(|reserve| reserve as Arc<dyn GiveUp>);
        let (store, header) =
            Store::open(&self.disk, STORE_FILE, &self.options, keeps, &mut self.condemned)?;
        // An entry of the directory that is not durable could vanish under a checkpoint.
        sync_dir(&self.disk)?;
        self.durable = header.last;
        self.header = header;
        self.slot.install(Arc::new(store));
        Ok(())
    }

    /// Makes an empty store beside and renames it into place.
    fn replace_with_empty(&mut self) -> Result<(), StoreFault> {
        remove(&self.disk, NEW_FILE)?;
        let mut header = Header {
            cluster: self.options.cluster,
            epoch: self.options.epoch,
            group: self.options.group,
            ..Header::default()
        };
        drop(Store::create(&self.disk, NEW_FILE, &self.options, &mut header)?);
        self.disk
            .rename(NEW_FILE, STORE_FILE)
            .map_err(|e| disk_fault(&format!("rename {NEW_FILE}"), &e))?;
        sync_dir(&self.disk)?;
        self.condemned = false;
        self.forget_damage()
    }

    /// The mark goes with the file that it spoke of. If it stays behind after a crash, a good store
    /// is rebuilt once more.
    fn forget_damage(&mut self) -> Result<(), StoreFault> {
        match self.damaged.take() {
            Some(_) => remove(&self.disk, DISTRUST_FILE),
            None => Ok(()),
        }
    }

    fn status(&self) -> Applied {
        Applied {
            last: self.header.last,
            durable: self.durable,
            digest: self.header.digest,
            skipped: self.skipped,
        }
    }

    /// Runs `act` on the open store; any fault closes it (R21).
    fn on_store<T>(
        &mut self,
        act: impl FnOnce(&mut Self, &Arc<Store>) -> Result<T, StoreFault>,
    ) -> Result<T, StoreFault> {
        let result = self.slot.store().and_then(|store| {
            let result = act(self, &store);
            if store.gate().sync_failed() {
                self.condemned = true;
            }
            result
        });
        if let Err(fault) = &result {
            self.slot.close(self.header.last.index, fault.clone());
            if let StoreFault::Untrusted(why) = fault {
                // If the disk takes no mark, this run still ends here, and the next start has to
                // find the damage anew.
                let marked = distrust(&self.disk, why);
                self.damaged.get_or_insert_with(|| match marked {
                    Ok(()) => why.clone(),
                    Err(e) => format!("{why}; the mark for the next start cannot be written: {e}"),
                });
            }
        }
        result
    }

    /// The entries that are not held yet. Those at or below the applied index are skipped; a gap,
    /// or another entry at the applied index than the one that was applied, is evidence that log
    /// and store do not belong together.
    fn fresh(&self, entries: &Entries) -> Result<Entries, StoreFault> {
        let last = self.header.last;
        let fresh = entries.starting_at(last.index.next());
        if let Some(first) = fresh.first()
            && first.index != last.index.next()
        {
            return Err(StoreFault::Untrusted(format!(
                "it has applied up to {last}, and the log goes on at {first}: entries between them are missing"
            )));
        }
        let same = entries.iter().find(|entry| entry.id.index == last.index);
        if let Some(entry) = same
            && entry.id != last
        {
            return Err(StoreFault::Untrusted(format!(
                "it has applied {last}, and the log holds {} at that index",
                entry.id
            )));
        }
        Ok(fresh)
    }

    /// Refuses entries for which there may be no space, before the store is touched: an error
    /// inside it would close it, and its reads with it.
    fn admit(&mut self, entries: &Entries) -> Result<(), StoreFault> {
        let (Some(reserve), Ok(store)) = (&self.reserve, self.slot.store()) else { return Ok(()) };
        let admitted = reserve.admit(entries.weight() as u64, store.gate().len());
        self.refused = admitted.is_err();
        admitted
    }

    fn run(&mut self, store: &Store, entries: &[Entry]) -> Result<Vec<(Index, Bytes)>, StoreFault> {
        let mut header = self.header.clone();
        let mut replies = Vec::with_capacity(entries.len());
        let txn = store.begin(true)?;
        let mut rows = Rows::open(&txn, store.gate(), &header)?;
        for entry in entries {
            if let Some(answer) = apply::entry(&mut rows, &mut header, entry)? {
                replies.push((entry.id.index, answer));
            }
        }
        rows.finish(&mut header)?;
        store.commit(txn)?;
        self.header = header;
        Ok(replies)
    }
}

/// Finds an entry of a type that this build does not know, before anything is written.
fn refuse_unknown(entries: &Entries) -> Result<(), StoreFault> {
    for entry in entries {
        if let Body::Command(bytes) = &entry.body
            && let Err(EnvelopeFault::Unknown { kind }) = Envelope::open(bytes)
        {
            return Err(StoreFault::UnknownType { at: entry.id.index, kind });
        }
    }
    Ok(())
}

impl<D: Disk> StateMachine for Metastore<D> {
    type View = View;
    type Image = Image;
    type Restore = Restore;

    fn applied(&self) -> Applied {
        self.status()
    }

    fn view(&self) -> View {
        View::new(Arc::clone(&self.slot))
    }

    fn apply(
        &mut self,
        entries: &Entries,
        replies: &mut Vec<(Index, Bytes)>,
    ) -> Result<Applied, StoreFault> {
        let fresh = self.fresh(entries)?;
        refuse_unknown(&fresh)?;
        if !fresh.is_empty() {
            self.admit(&fresh)?;
            let answers = self.on_store(|me, store| me.run(store, fresh.as_slice()))?;
            replies.extend(answers);
        }
        self.skipped += (entries.len() - fresh.len()) as u64;
        Ok(self.status())
    }

    fn frees(command: &Bytes) -> bool {
        use kind::{CLOSE_SESSION, DELETE_TOPIC, DETACH_CHILD, KV_DELETE};
        let frees = [DELETE_TOPIC, DETACH_CHILD, CLOSE_SESSION, KV_DELETE];
        Envelope::open(command).is_ok_and(|envelope| frees.contains(&envelope.kind))
    }

    fn confirm(view: &View, question: &Bytes) -> Option<(Index, Bytes)> {
        crate::guard::inquiry::answer(view, question)
    }

    fn checkpoint(&mut self) -> Result<Applied, StoreFault> {
        if self.durable != self.header.last {
            self.on_store(|_, store| {
                let txn = store.begin(false)?;
                store.commit(txn)
            })?;
            self.durable = self.header.last;
            if let (Some(reserve), Ok(store)) = (&self.reserve, self.slot.store()) {
                reserve.recovered(store.gate().len());
            }
        }
        Ok(self.status())
    }

    fn pin(&mut self) -> Result<(SnapshotMeta, Image), StoreFault> {
        self.on_store(|_, store| {
            let image = Image::new(Arc::clone(store))?;
            Ok((image.reader().header.label(), image))
        })
    }

    fn restore(&mut self, meta: &SnapshotMeta) -> Result<Restore, StoreFault> {
        if meta.newest_type > kind::NEWEST {
            let (at, kind) = (meta.last.index, meta.newest_type);
            return Err(StoreFault::UnknownType { at, kind });
        }
        let options = &self.options;
        if (meta.cluster, meta.epoch, meta.group) != (options.cluster, options.epoch, options.group)
        {
            return Err(StoreFault::Snapshot(format!(
                "it is of cluster {}, epoch {} and group {}, and this store of {}, {} and {}",
                meta.cluster, meta.epoch, meta.group, options.cluster, options.epoch, options.group,
            )));
        }
        remove_leftovers(&self.disk)?;
        self.restores += 1;
        let path = format!("{STORE_DIR}/{RESTORE_PREFIX}{}.redb", self.restores);
        // The label of the unfinished file says that nothing was applied: if it were ever opened,
        // it would be empty.
        let mut header = Header::default();
        let store = Store::create(&self.disk, &path, options, &mut header)?;
        Ok(Restore::new(store, path, meta.clone(), header))
    }

    fn adopt(&mut self, restored: Restore) -> Result<Applied, StoreFault> {
        let path = restored.path().to_owned();
        if restored.label().last.index <= self.header.last.index {
            // A newer state is never replaced by an older one (R25).
            drop(restored);
            remove(&self.disk, &path)?;
            return Ok(self.status());
        }
        if !restored.is_complete() {
            return Err(StoreFault::Snapshot(
                "the stream ended before its footer: nothing was installed".to_owned(),
            ));
        }
        drop(restored);
        let cause = StoreFault::Poisoned { detail: "it is being replaced".to_owned() };
        self.slot.close(self.header.last.index, cause);
        self.disk
            .rename(&path, STORE_FILE)
            .map_err(|e| disk_fault(&format!("rename {path}"), &e))?;
        self.condemned = false;
        self.forget_damage()?;
        self.slot.set_rebuilt(false);
        self.start()?;
        Ok(self.status())
    }

    fn low(&self) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| reserve.low())
    }

    fn make_room(&mut self) {
        if let (Some(reserve), Ok(store)) = (&self.reserve, self.slot.store()) {
            // Tried again before long, and told by `low` until then.
            reserve.fill(store.gate().len()).ok();
        }
    }

    fn reopen(&mut self) -> Result<Applied, StoreFault> {
        if std::mem::take(&mut self.refused) && self.slot.store().is_ok() {
            return Ok(self.status());
        }
        let cause = StoreFault::Poisoned { detail: "it is being reopened".to_owned() };
        self.slot.close(self.header.last.index, cause);
        self.start()?;
        Ok(self.status())
    }
}

fn names<D: Disk>(disk: &D) -> Result<Vec<String>, StoreFault> {
    match disk.list(STORE_DIR) {
        Ok(names) => Ok(names),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(disk_fault("list the directory of the store", &e)),
    }
}

fn store_exists<D: Disk>(disk: &D) -> Result<bool, StoreFault> {
    Ok(names(disk)?.iter().any(|name| STORE_FILE.ends_with(&format!("/{name}"))))
}

fn remove_leftovers<D: Disk>(disk: &D) -> Result<(), StoreFault> {
    for name in names(disk)? {
        let path = format!("{STORE_DIR}/{name}");
        if name.starts_with(RESTORE_PREFIX) || path == NEW_FILE {
            remove(disk, &path)?;
        }
    }
    Ok(())
}

fn remove<D: Disk>(disk: &D, path: &str) -> Result<(), StoreFault> {
    match disk.unlink(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(disk_fault(&format!("remove {path}"), &e))
        }
        _ => Ok(()),
    }
}

fn sync_dir<D: Disk>(disk: &D) -> Result<(), StoreFault> {
    disk.sync_dir(STORE_DIR).map_err(|e| disk_fault("sync the directory of the store", &e))
}
