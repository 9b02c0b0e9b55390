//! A state machine in memory: named counters and one list.

use super::locked;
use crate::codec;
use crate::entries::Entries;
use crate::fault::StoreFault;
use crate::traits::{Applied, SnapshotSink, SnapshotSource, StateMachine};
use crate::types::{Body, ClusterId, Entry, Index, LogId, Membership, Micros, SnapshotMeta};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Chunks of an image, in bytes: small, so that tests see many.
const CHUNK: usize = 512;
/// The newest entry type that this machine knows.
const NEWEST_TYPE: u16 = 3;

/// A command of the [`MemoryMachine`]. None is idempotent: a second application shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryCommand {
    /// Adds to a counter. Type 1.
    Add {
        /// The counter.
        name: String,
        /// What to add.
        amount: u64,
    },
    /// Takes from a counter; refused if it holds less. Type 2.
    Take {
        /// The counter.
        name: String,
        /// What to take.
        amount: u64,
    },
    /// Appends to the list. Type 3.
    Push(u64),
}

impl MemoryCommand {
    /// The bytes of an entry: type and payload.
    ///
    /// # Panics
    /// If a name is longer than a command may be.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let kind: u16 = match self {
            Self::Add { .. } => 1,
            Self::Take { .. } => 2,
            Self::Push(_) => 3,
        };
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(codec::encode("memory command", self).expect("a short name is encodable"));
        bytes.into()
    }
}

/// What a [`MemoryCommand`] is answered with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemoryReply {
    /// The counter, or the length of the list, afterwards.
    Now(u64),
    /// Refused, with the reason; nothing changed.
    Refused(String),
}

impl MemoryReply {
    /// The reply in an answer.
    ///
    /// # Errors
    /// What the codec says.
    pub fn decode(bytes: &[u8]) -> Result<Self, codec::CodecError> {
        codec::decode("memory reply", bytes)
    }

    fn encode(&self) -> Bytes {
        codec::encode("memory reply", self).expect("a short reply is encodable").into()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    applied: LogId,
    time: Micros,
    counters: BTreeMap<String, u64>,
    list: Vec<u64>,
    membership_index: Index,
    membership: Membership,
    newest_type: u16,
    digest: u128,
}

/// FNV-1a over 128 bits.
fn hash(parts: &[&[u8]]) -> u128 {
    parts
        .iter()
        .flat_map(|p| p.iter().chain([&0xff]))
        .fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |h, byte| {
            (h ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        })
}

impl State {
    fn set(&mut self, name: &str, value: u64) {
        let row = |value: u64| hash(&[b"counter", name.as_bytes(), &value.to_le_bytes()]);
        if let Some(old) = self.counters.insert(name.to_owned(), value) {
            self.digest = self.digest.wrapping_sub(row(old));
        }
        self.digest = self.digest.wrapping_add(row(value));
    }

    fn run(&mut self, command: &[u8]) -> MemoryReply {
        let payload = command.get(2..).unwrap_or_default();
        let command = match codec::decode::<MemoryCommand>("memory command", payload) {
            Ok(command) => command,
            Err(fault) => return MemoryReply::Refused(fault.to_string()),
        };
        match command {
            MemoryCommand::Add { name, amount } => {
                let now = self.counters.get(&name).copied().unwrap_or(0).wrapping_add(amount);
                self.set(&name, now);
                MemoryReply::Now(now)
            }
            MemoryCommand::Take { name, amount } => {
                let held = self.counters.get(&name).copied().unwrap_or(0);
                let Some(now) = held.checked_sub(amount) else {
                    return MemoryReply::Refused(format!("{name} holds {held}"));
                };
                self.set(&name, now);
                MemoryReply::Now(now)
            }
            MemoryCommand::Push(value) => {
                let at = self.list.len() as u64;
                self.list.push(value);
                let row = hash(&[b"list", &at.to_le_bytes(), &value.to_le_bytes()]);
                self.digest = self.digest.wrapping_add(row);
                MemoryReply::Now(at + 1)
            }
        }
    }

    fn apply(&mut self, entry: &Entry) -> Option<MemoryReply> {
        let reply = match &entry.body {
            Body::Blank => None,
            Body::Membership(membership) => {
                self.membership = membership.as_ref().clone();
                self.membership_index = entry.id.index;
                None
            }
            Body::Command(command) => {
                self.newest_type = self.newest_type.max(kind_of(command));
                Some(self.run(command))
            }
        };
        self.applied = entry.id;
        self.time = entry.time;
        reply
    }
}

/// The entry type; zero for a command too short to have one, which is refused as undecodable.
fn kind_of(command: &[u8]) -> u16 {
    command.first_chunk().map_or(0, |head| u16::from_le_bytes(*head))
}

#[derive(Debug, Default)]
struct Stored {
    durable: State,
    live: State,
    generation: u64,
    poisoned: bool,
    failing: u32,
    full: bool,
}

/// What survives a crash of a [`MemoryMachine`], and the switches that make it fail.
#[derive(Clone, Debug, Default)]
pub struct MemoryMachineDisk {
    stored: Arc<Mutex<Stored>>,
    cluster: ClusterId,
    epoch: u64,
}

impl MemoryMachineDisk {
    /// An empty disk for a cluster and its recovery epoch.
    #[must_use]
    pub fn new(cluster: ClusterId, epoch: u64) -> Self {
        Self { stored: Arc::default(), cluster, epoch }
    }

    /// Opens the machine with what the last checkpoint left.
    #[must_use]
    pub fn open(&self) -> MemoryMachine {
        let mut stored = locked(&self.stored);
        stored.generation += 1;
        stored.poisoned = false;
        stored.live = stored.durable.clone();
        let generation = stored.generation;
        drop(stored);
        MemoryMachine { disk: self.clone(), generation, skipped: 0 }
    }

    /// The process dies: handles that still exist can change nothing more.
    pub fn crash(&self) {
        let mut stored = locked(&self.stored);
        stored.generation += 1;
        stored.live = stored.durable.clone();
    }

    /// The next `count` writes fail, each poisoning the machine until it is reopened.
    pub fn fail_writes(&self, count: u32) {
        locked(&self.stored).failing = count;
    }

    /// While it is full, every write is refused before it touches anything.
    pub fn set_full(&self, full: bool) {
        locked(&self.stored).full = full;
    }
}

/// A state machine in memory.
#[derive(Debug)]
pub struct MemoryMachine {
    disk: MemoryMachineDisk,
    generation: u64,
    skipped: u64,
}

impl MemoryMachine {
    /// A machine on a fresh disk, of cluster 0 and epoch 0.
    #[must_use]
    pub fn new() -> Self {
        MemoryMachineDisk::default().open()
    }

    /// What it is stored on.
    #[must_use]
    pub fn disk(&self) -> MemoryMachineDisk {
        self.disk.clone()
    }

    /// Refuses a stale or poisoned handle and carries out an injected failure.
    fn check(&self, stored: &mut Stored) -> Result<(), StoreFault> {
        let poisoned = |why: &str| Err(StoreFault::Poisoned { detail: why.into() });
        if stored.generation != self.generation {
            return poisoned("this handle is older than a crash");
        }
        if stored.full {
            return Err(StoreFault::Full { detail: "0 bytes are left".into() });
        }
        if stored.failing > 0 {
            stored.failing -= 1;
            stored.poisoned = true;
        }
        if stored.poisoned { poisoned("a write failed") } else { Ok(()) }
    }

    fn progress(&self, stored: &Stored) -> Applied {
        Applied {
            last: stored.live.applied,
            durable: stored.durable.applied,
            digest: stored.live.digest,
            skipped: self.skipped,
        }
    }
}

impl Default for MemoryMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl StateMachine for MemoryMachine {
    type View = MemoryView;
    type Image = MemoryImage;
    type Restore = MemoryRestore;

    fn applied(&self) -> Applied {
        self.progress(&locked(&self.disk.stored))
    }

    fn view(&self) -> MemoryView {
        MemoryView { stored: Arc::clone(&self.disk.stored) }
    }

    fn apply(
        &mut self,
        entries: &Entries,
        replies: &mut Vec<(Index, Bytes)>,
    ) -> Result<Applied, StoreFault> {
        let disk = self.disk.clone();
        let mut stored = locked(&disk.stored);
        self.check(&mut stored)?;
        let held = stored.live.applied;
        let fresh = entries.starting_at(held.index.next());
        let unknown = fresh.iter().find_map(|e| match &e.body {
            Body::Command(c) if kind_of(c) > NEWEST_TYPE => Some((e.id.index, kind_of(c))),
            _ => None,
        });
        if let Some((at, kind)) = unknown {
            return Err(StoreFault::UnknownType { at, kind });
        }
        if let Some(first) = fresh.first().filter(|id| id.index != held.index.next()) {
            return Err(StoreFault::Untrusted(format!("{first} leaves a gap behind {held}")));
        }
        self.skipped += (entries.len() - fresh.len()) as u64;
        for entry in &fresh {
            if let Some(reply) = stored.live.apply(entry) {
                replies.push((entry.id.index, reply.encode()));
            }
        }
        Ok(self.progress(&stored))
    }

    fn checkpoint(&mut self) -> Result<Applied, StoreFault> {
        let mut stored = locked(&self.disk.stored);
        self.check(&mut stored)?;
        stored.durable = stored.live.clone();
        Ok(self.progress(&stored))
    }

    fn pin(&mut self) -> Result<(SnapshotMeta, MemoryImage), StoreFault> {
        let mut stored = locked(&self.disk.stored);
        self.check(&mut stored)?;
        let state = stored.live.clone();
        drop(stored);
        let content = codec::encode("memory state", &state)
            .map_err(|fault| StoreFault::Snapshot(fault.to_string()))?;
        let meta = SnapshotMeta {
            last: state.applied,
            time: state.time,
            membership: state.membership,
            membership_index: state.membership_index,
            group: 0,
            cluster: self.disk.cluster,
            epoch: self.disk.epoch,
            digest: state.digest,
            bytes: 0,
            newest_type: state.newest_type,
        };
        Ok((meta, MemoryImage { content: content.into() }))
    }

    fn restore(&mut self, meta: &SnapshotMeta) -> Result<MemoryRestore, StoreFault> {
        self.check(&mut locked(&self.disk.stored))?;
        Ok(MemoryRestore { meta: meta.clone(), content: Vec::new() })
    }

    fn adopt(&mut self, restored: MemoryRestore) -> Result<Applied, StoreFault> {
        let mut stored = locked(&self.disk.stored);
        self.check(&mut stored)?;
        if stored.live.applied.index >= restored.meta.last.index {
            return Ok(self.progress(&stored));
        }
        let state: State = codec::decode("memory state", &restored.content)
            .map_err(|fault| StoreFault::Snapshot(fault.to_string()))?;
        if state.applied != restored.meta.last || state.digest != restored.meta.digest {
            let (have, want) = (state.applied, restored.meta.last);
            return Err(StoreFault::Snapshot(format!("content {have} under the label {want}")));
        }
        stored.durable = state.clone();
        stored.live = state;
        Ok(self.progress(&stored))
    }

    fn reopen(&mut self) -> Result<Applied, StoreFault> {
        let mut stored = locked(&self.disk.stored);
        if stored.generation != self.generation {
            return Err(StoreFault::Poisoned {
                detail: "this handle is older than a crash".into(),
            });
        }
        stored.poisoned = false;
        stored.live = stored.durable.clone();
        Ok(self.progress(&stored))
    }

    /// The question is a value of the list (eight bytes, little-endian); the answer is one byte,
    /// 1 if the list holds it and 0 if not.
    fn confirm(view: &MemoryView, question: &Bytes) -> Option<(Index, Bytes)> {
        let value = u64::from_le_bytes(question.as_ref().try_into().ok()?);
        let stored = locked(&view.stored);
        let held = u8::from(stored.live.list.contains(&value));
        Some((stored.live.applied.index, Bytes::copy_from_slice(&[held])))
    }
}

/// Local reads of a [`MemoryMachine`].
#[derive(Clone, Debug)]
pub struct MemoryView {
    stored: Arc<Mutex<Stored>>,
}

impl MemoryView {
    /// A counter; zero if it was never written.
    #[must_use]
    pub fn counter(&self, name: &str) -> u64 {
        locked(&self.stored).live.counters.get(name).copied().unwrap_or(0)
    }

    /// The whole list.
    #[must_use]
    pub fn list(&self) -> Vec<u64> {
        locked(&self.stored).live.list.clone()
    }

    /// Applied entry and digest, read together.
    #[must_use]
    pub fn applied(&self) -> (LogId, u128) {
        let stored = locked(&self.stored);
        (stored.live.applied, stored.live.digest)
    }
}

/// A pinned state of a [`MemoryMachine`].
#[derive(Clone, Debug)]
pub struct MemoryImage {
    content: Bytes,
}

impl SnapshotSource for MemoryImage {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, StoreFault> {
        let len = self.content.len().min(CHUNK);
        Ok((len > 0).then(|| self.content.split_to(len)))
    }
}

/// A state of a [`MemoryMachine`] under construction.
#[derive(Clone, Debug)]
pub struct MemoryRestore {
    meta: SnapshotMeta,
    content: Vec<u8>,
}

impl SnapshotSink for MemoryRestore {
    fn offset(&self) -> u64 {
        self.content.len() as u64
    }

    fn put_chunk(&mut self, offset: u64, chunk: &[u8]) -> Result<(), StoreFault> {
        if offset != self.offset() {
            return Err(StoreFault::Snapshot(format!("{offset} is not {}", self.offset())));
        }
        // The label says how much may come: a stranger's stream cannot fill the memory.
        if self.meta.bytes != 0 && offset + chunk.len() as u64 > self.meta.bytes {
            return Err(StoreFault::Snapshot("more content than the label announces".into()));
        }
        self.content.extend_from_slice(chunk);
        Ok(())
    }
}
