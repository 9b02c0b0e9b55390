//! Space that the store keeps for itself (R21, R45).
//!
//! redb doubles its file when it is out of pages, and an error there closes the store: no reads
//! until it has been opened and fed again. So a file of real blocks stands beside the store, as
//! large as the next growth. Where the disk is full it is given up in the middle of that growth,
//! and from then on the store is *low*: it takes a little more, for what was under way and for what
//! frees space, and then refuses before redb is called. It stays open and serves reads all the
//! while, and fills the reserve again as soon as there is space.

use crate::store::{STORE_DIR, disk_fault};
use holdfast_consensus::fault::StoreFault;
use holdfast_log::disk::{Disk, DiskFile, Mode};
use std::fmt::Debug;
use std::io;
use std::sync::{Mutex, PoisonError};

pub(crate) const PATH: &str = "store/reserve";
/// Smallest and largest reserve, in bytes. A store that grows by more than the largest finds no
/// help in it.
const SIZES: (u64, u64) = (256 << 10, 1 << 30);
/// What a transaction is taken to cost, in bytes: copies of the pages down to a leaf.
const TRANSACTION: u64 = 16 << 10;
/// How many times their weight entries are taken to cost.
const TIMES: u64 = 4;

/// Zeros written at a time.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What gives space back to a file that has to grow.
pub(crate) trait GiveUp: Debug + Send + Sync {
    /// Gives up everything; true if that was anything.
    fn give_up(&self) -> bool;
}

/// The reserve of one store.
#[derive(Debug)]
pub(crate) struct Reserve<D: Disk> {
    disk: D,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that are kept.
    kept: u64,
    /// Length of the store for which a reserve could not be had.
    missed: Option<u64>,
    /// Bytes that may still be applied for all that.
    left: u64,
}

impl<D: Disk> Reserve<D> {
    /// Takes over what an earlier process kept.
    pub(crate) fn open(disk: D) -> Self {
        let kept = disk.open(PATH, Mode::Read).and_then(|file| file.len()).unwrap_or(0);
        Self { disk, state: Mutex::new(State { kept, ..State::default() }) }
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// True if the next growth of the store may find no space.
    pub(crate) fn low(&self) -> bool {
        self.with(|state| state.missed.is_some())
    }

    /// Before entries of this weight go to a store of this length.
    ///
    /// # Errors
    /// [`StoreFault::Full`]: there is no reserve, and what may be applied without one has been.
    pub(crate) fn admit(&self, weight: u64, store: u64) -> Result<(), StoreFault> {
        let cost = TRANSACTION + weight.saturating_mul(TIMES);
        let tried = self.with(|state| {
            let tried = state.missed == Some(store);
            let within = tried && state.left >= cost;
            if within {
                state.left -= cost;
            }
            tried.then_some(within)
        });
        match tried {
            Some(true) => Ok(()),
            Some(false) => self.fill(store),
            None => match self.fill(store) {
                Err(StoreFault::Full { .. }) => {
                    // A quarter of the file: a growth has just doubled it, or a start finds what
                    // the last process left free.
                    self.with(|state| state.left = (store / 4).saturating_sub(cost));
                    Ok(())
                }
                filled => filled,
            },
        }
    }

    /// The store was made durable: pages that it gave up are used again.
    pub(crate) fn recovered(&self, store: u64) {
        self.with(|state| {
            if state.missed == Some(store) {
                state.left = store / 4;
            }
        });
    }

    /// Makes the reserve as large as the next growth of a store of this length.
    ///
    /// # Errors
    /// [`StoreFault::Full`] if there is no space, or what else the disk says. What was kept is kept.
    pub(crate) fn fill(&self, store: u64) -> Result<(), StoreFault> {
        let wanted = store.clamp(SIZES.0, SIZES.1);
        let kept = self.with(|state| state.kept);
        if kept < wanted
            && let Err(e) = self.extend(kept, wanted)
        {
            self.with(|state| state.missed = Some(store));
            return Err(disk_fault("reserve space for the next growth", &e));
        }
        self.with(|state| (state.kept, state.missed) = (kept.max(wanted), None));
        Ok(())
    }

    fn extend(&self, kept: u64, wanted: u64) -> io::Result<()> {
        let file = match self.disk.open(PATH, Mode::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.disk.open(PATH, Mode::CreateNew)?
            }
            file => file?,
        };
        let mut at = kept;
        while at < wanted {
            let piece = usize::try_from(wanted - at).unwrap_or(usize::MAX).min(ZEROS.len());
            if let Err(e) = file.write_at(at, &ZEROS[..piece]) {
                // The last free bytes belong to others. What cannot be cut is cut the next time.
                file.set_len(kept).ok();
                return Err(e);
            }
            at += piece as u64;
        }
        // Blocks that are only promised are none: file systems allocate late.
        file.sync()?;
        self.disk.sync_dir(STORE_DIR)
    }
}

impl<D: Disk> GiveUp for Reserve<D> {
    fn give_up(&self) -> bool {
        self.with(|state| {
            let gave = state.kept > 0 && self.disk.unlink(PATH).is_ok();
            if gave {
                state.kept = 0;
            }
            gave
        })
    }
}
