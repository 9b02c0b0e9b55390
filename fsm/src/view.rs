//! Local reads from any thread, while entries are applied.
//!
//! A view reads the state of one moment: value, applied index and digest come from one read
//! transaction. It goes on across a reopened or replaced store. After a fault it answers with a
//! typed error until the state has caught up with everything that anybody was ever answered from
//! (R21): nobody sees time go back.

mod plane;
mod trust;

use crate::header::Header;
use crate::records::{
    self, Counts, KvValue, Member, Record, Stamp, TableId, Tombstone, Topic, tombstone_key,
};
use crate::rows::Walk;
use crate::store::{Reader, Store};
use bytes::Bytes;
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::{ClusterId, Index, LogId, MemberId, Membership, Micros};
use std::sync::{Arc, PoisonError, RwLock};
use thiserror::Error;
pub use trust::{DigestWalk, Trust, WalkStep};

/// Most rows of one listing; ask again from behind the last one for more.
pub const LIST_MAX: usize = 10_000;
/// A listing ends once it has this many bytes of values.
pub const LIST_BYTES_MAX: usize = 4 << 20;

/// Why a read was not answered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The store is closed after a fault, or for good.
    #[error("the store is closed (generation {generation}): {why}")]
    Closed {
        /// Generation of the store that was closed.
        generation: u64,
        /// The fault that closed it.
        why: String,
    },
    /// The store was reopened and has not yet applied again what was answered before.
    #[error("the store was reopened and is catching up: {applied} of {needed} applied")]
    CatchingUp {
        /// Applied so far.
        applied: Index,
        /// Applied before the fault.
        needed: Index,
    },
    /// The read failed, and the store was closed.
    #[error(transparent)]
    Store(StoreFault),
}

/// A value with the index of the state it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Last entry applied in the state that it was read from.
    pub applied: Index,
}

/// What a replica holds: position, digest and sizes, read together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Generation of the store: rises when it is reopened or replaced.
    pub generation: u64,
    /// The cluster.
    pub cluster: ClusterId,
    /// Recovery epoch.
    pub epoch: u64,
    /// State epoch.
    pub state_epoch: u64,
    /// Last applied entry.
    pub last: LogId,
    /// Its log time.
    pub time: Micros,
    /// State digest at `last`.
    pub digest: u128,
    /// Last applied configuration.
    pub membership: Membership,
    /// Index of its entry.
    pub membership_index: Index,
    /// Newest entry type ever applied.
    pub newest_type: u16,
    /// Rows per table.
    pub counts: Counts,
}

/// The live store, shared between the apply lane and the views.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: RwLock<SlotState>,
}

#[derive(Debug, Default)]
struct SlotState {
    generation: u64,
    store: Option<Arc<Store>>,
    /// Highest index that any read may have been answered from. Never decreases.
    floor: Index,
    /// Why there is no store.
    cause: Option<StoreFault>,
    /// Generation whose records were walked and matched its digest.
    walked: Option<u64>,
    /// The store took the place of one that was set aside in this start, and no snapshot has
    /// replaced it since (R30).
    rebuilt: bool,
}

impl SlotState {
    fn trust(&self) -> Trust {
        match self.walked {
            _ if self.rebuilt => Trust::Rebuilt,
            Some(generation) if generation == self.generation => Trust::Walked,
            _ => Trust::Unwalked,
        }
    }
}

impl Slot {
    fn with<T>(&self, act: impl FnOnce(&mut SlotState) -> T) -> T {
        // A panic between two assignments is impossible: nothing in here can panic.
        act(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a store in; the generation rises.
    pub(crate) fn install(&self, store: Arc<Store>) {
        self.with(|state| {
            if let Some(old) = state.store.replace(store) {
                old.gate().seal();
            }
            state.generation += 1;
            state.cause = None;
        });
    }

    /// Says whether the store took the place of one that was set aside.
    pub(crate) fn set_rebuilt(&self, rebuilt: bool) {
        self.with(|state| state.rebuilt = rebuilt);
    }

    /// Closes the store after a fault; `reached` is the highest index that it may have answered
    /// from.
    pub(crate) fn close(&self, reached: Index, cause: StoreFault) {
        self.with(|state| {
            if let Some(old) = state.store.take() {
                old.gate().seal();
                state.generation += 1;
            }
            state.floor = state.floor.max(reached);
            state.cause.get_or_insert(cause);
        });
    }

    /// The live store, for the apply lane.
    pub(crate) fn store(&self) -> Result<Arc<Store>, StoreFault> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        match (&state.store, &state.cause) {
            (Some(store), _) => Ok(Arc::clone(store)),
            (None, Some(cause)) => Err(cause.clone()),
            (None, None) => {
                Err(StoreFault::Poisoned { detail: "the store is not open".to_owned() })
            }
        }
    }
}

/// Local reads of the state. Cheap to clone; use it from any thread.
#[derive(Clone, Debug)]
pub struct View {
    slot: Arc<Slot>,
}

impl View {
    pub(crate) fn new(slot: Arc<Slot>) -> Self {
        Self { slot }
    }

    /// Generation, floor, store and trust, read together.
    fn open_store(&self) -> Result<(u64, Index, Arc<Store>, Trust), ReadError> {
        let state = self.slot.state.read().unwrap_or_else(PoisonError::into_inner);
        let generation = state.generation;
        match &state.store {
            Some(store) => Ok((generation, state.floor, Arc::clone(store), state.trust())),
            None => {
                let why = state
                    .cause
                    .as_ref()
                    .map_or_else(|| "it was shut down".to_owned(), ToString::to_string);
                Err(ReadError::Closed { generation, why })
            }
        }
    }

    /// Generation of the store, open or not.
    fn generation(&self) -> u64 {
        self.slot.state.read().unwrap_or_else(PoisonError::into_inner).generation
    }

    fn read<T>(
        &self,
        get: impl FnOnce(&Reader, u64) -> Result<T, StoreFault>,
    ) -> Result<At<T>, ReadError> {
        self.read_trusting(|reader, generation, _| get(reader, generation))
    }

    fn read_trusting<T>(
        &self,
        get: impl FnOnce(&Reader, u64, Trust) -> Result<T, StoreFault>,
    ) -> Result<At<T>, ReadError> {
        let (generation, floor, store, trust) = self.open_store()?;
        let reader = store.read().map_err(|fault| self.failed(generation, floor, fault))?;
        let applied = reader.header.last.index;
        if applied < floor {
            return Err(ReadError::CatchingUp { applied, needed: floor });
        }
        let value = get(&reader, generation, trust)
            .map_err(|fault| self.failed(generation, applied, fault))?;
        Ok(At { value, applied })
    }

    /// Any error of the store closes it (R21), unless it was replaced meanwhile.
    fn failed(&self, generation: u64, reached: Index, fault: StoreFault) -> ReadError {
        self.slot.with(|state| {
            if state.generation == generation
                && let Some(store) = state.store.take()
            {
                store.gate().seal();
                state.generation += 1;
                state.floor = state.floor.max(reached);
                state.cause = Some(fault.clone());
            }
        });
        ReadError::Store(fault)
    }

    /// Position, digest and sizes, read together.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn held(&self) -> Result<Held, ReadError> {
        let at = self.read(|reader, generation| {
            let Header {
                cluster,
                epoch,
                state_epoch,
                last,
                time,
                membership,
                membership_index,
                digest,
                newest_type,
                counts,
                group: _,
            } = reader.header.clone();
            Ok(Held {
                generation,
                cluster,
                epoch,
                state_epoch,
                last,
                time,
                digest,
                membership,
                membership_index,
                newest_type,
                counts,
            })
        })?;
        Ok(at.value)
    }

    /// Last applied entry and the digest there, read together.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn applied(&self) -> Result<(LogId, u128), ReadError> {
        Ok(self.read(|reader, _| Ok((reader.header.last, reader.header.digest)))?.value)
    }

    /// A topic by name.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn topic(&self, name: &str) -> Result<At<Option<Topic>>, ReadError> {
        self.read(|reader, _| reader.get(&records::key(TableId::Topics, name.as_bytes())))
    }

    /// Topics in the order of their names, from behind `after`, at most `limit` (and
    /// [`LIST_MAX`], [`LIST_BYTES_MAX`]).
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn topics(&self, after: Option<&str>, limit: usize) -> Result<At<Vec<Topic>>, ReadError> {
        self.read(|reader, _| {
            let rows = list::<Topic>(reader, &[], after.map(str::as_bytes), limit)?;
            Ok(rows.into_iter().map(|(_, topic)| topic).collect())
        })
    }

    /// The tombstone of exactly this stamp, if its deletion was applied: the local proof of R29.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn tombstone(&self, stamp: &Stamp) -> Result<At<Option<Tombstone>>, ReadError> {
        self.read(|reader, _| {
            let found: Option<Tombstone> = reader.get(&tombstone_key(stamp))?;
            Ok(found.filter(|tombstone| tombstone.stamp == *stamp))
        })
    }

    /// A value of the `kv` table.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn kv_get(&self, key: &[u8]) -> Result<At<Option<KvValue>>, ReadError> {
        self.read(|reader, _| reader.get(&records::key(TableId::Kv, key)))
    }

    /// Keys with a prefix, with their values, in key order, from behind `after`, at most `limit`
    /// (and [`LIST_MAX`]).
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn kv_scan(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<At<Vec<(Bytes, KvValue)>>, ReadError> {
        self.read(|reader, _| list(reader, prefix, after, limit))
    }

    /// Every member, by id.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn members(&self) -> Result<At<Vec<Member>>, ReadError> {
        self.read(|reader, _| {
            let rows = list::<Member>(reader, &[], None, LIST_MAX)?;
            Ok(rows.into_iter().map(|(_, member)| member).collect())
        })
    }

    /// A member by id.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn member(&self, member: MemberId) -> Result<At<Option<Member>>, ReadError> {
        self.read(|reader, _| reader.get(&records::number_key(TableId::Members, member.0)))
    }

    /// Walks every record and compares digest and counts with the header.
    ///
    /// # Errors
    /// [`ReadError::Store`] with [`StoreFault::Untrusted`] if they differ; the store is closed.
    pub fn verify_digest(&self) -> Result<At<u128>, ReadError> {
        self.read(|reader, _| reader.verify().map(|()| reader.header.digest))
    }
}

/// Rows of one table whose key begins with `prefix`, from behind `after`.
fn list<R: Record>(
    reader: &Reader,
    prefix: &[u8],
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<(Bytes, R)>, StoreFault> {
    let prefix = records::key(R::TABLE, prefix);
    let after = after.map(|key| records::key(R::TABLE, key)).filter(|key| *key >= prefix);
    let from = after.as_ref().unwrap_or(&prefix);
    let limit = limit.min(LIST_MAX);
    let mut rows = Vec::new();
    let mut bytes = 0usize;
    reader.walk(from, |key, value| {
        if rows.len() >= limit || bytes >= LIST_BYTES_MAX || !key.starts_with(&prefix) {
            return Ok(Walk::Stop);
        }
        if after.as_deref() != Some(key) {
            bytes += key.len() + value.len();
            rows.push((Bytes::copy_from_slice(&key[1..]), crate::rows::decode(value)?));
        }
        Ok(Walk::On)
    })?;
    Ok(rows)
}
