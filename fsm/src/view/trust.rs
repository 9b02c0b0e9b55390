//! How far a store is trusted: the walk over all its records (R30), and what the guard reads.

use super::{ReadError, Slot, View};
use crate::digest::record_hash;
use crate::guard::{Claim, Evidence};
use crate::header::HEADER_KEY;
use crate::records::{
    self, Counts, Stamp, TableId, Tombstone, assignment_key, link_key, moved_partition,
    tombstone_key,
};
use crate::records::{Assignment, Link, ResourceKind, Topic};
use crate::rows::Walk;
use crate::store::{Reader, Store};
use holdfast_consensus::fault::StoreFault;
use std::sync::Arc;

/// How far the open store is trusted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Its records have not been walked since it was opened.
    Unwalked,
    /// All its records were walked in this open and match its digest.
    Walked,
    /// It took the place of a store that was set aside in this start.
    Rebuilt,
}

/// What a step of a [`DigestWalk`] came to.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// There is more to walk.
    More,
    /// The store passed; it is trusted until it is closed.
    Passed,
    /// The store was closed or replaced meanwhile: begin again.
    Replaced,
}

/// A walk over every record of one open store, in bounded steps. Holds a read transaction: the
/// pages of its moment stay until it ends.
pub struct DigestWalk {
    view: View,
    reader: Reader,
    /// Keeps the store open; it is sealed, not dropped, when it is replaced.
    _store: Arc<Store>,
    generation: u64,
    /// Last key that was walked.
    behind: Vec<u8>,
    digest: u128,
    counts: Counts,
}

impl DigestWalk {
    /// Walks up to `rows` more records.
    ///
    /// # Errors
    /// [`ReadError::Store`] if the records contradict the digest, or cannot be read; the store is
    /// closed.
    pub fn step(&mut self, rows: usize) -> Result<WalkStep, ReadError> {
        if self.view.generation() != self.generation {
            return Ok(WalkStep::Replaced);
        }
        match self.walk(rows.max(1)) {
            Ok(false) => Ok(WalkStep::More),
            Ok(true) => Ok(self.view.slot.passed(self.generation)),
            Err(_) if self.view.generation() != self.generation => Ok(WalkStep::Replaced),
            Err(fault) => {
                let reached = self.reader.header.last.index;
                Err(self.view.failed(self.generation, reached, fault))
            }
        }
    }

    /// True at the end.
    fn walk(&mut self, rows: usize) -> Result<bool, StoreFault> {
        let (mut left, mut last) = (rows, None);
        let (digest, counts, behind) = (&mut self.digest, &mut self.counts, &self.behind);
        self.reader.walk(behind, |key, value| {
            if key == HEADER_KEY || key == behind {
                return Ok(Walk::On);
            }
            if left == 0 {
                return Ok(Walk::Stop);
            }
            left -= 1;
            let table = key.first().copied().and_then(TableId::from_number);
            let table = table.ok_or_else(|| {
                StoreFault::Untrusted(format!("it holds a record under the strange key {key:?}"))
            })?;
            *digest = digest.wrapping_add(record_hash(table as u8, &key[1..], value));
            counts.0[table.position()] += 1;
            last = Some(key.to_vec());
            Ok(Walk::On)
        })?;
        if left == 0 {
            self.behind = last.unwrap_or_default();
            return Ok(false);
        }
        let header = &self.reader.header;
        if (self.digest, self.counts) == (header.digest, header.counts) {
            return Ok(true);
        }
        Err(StoreFault::Untrusted(format!(
            "at entry {} its header says digest {:032x} and rows {:?}, its records say {:032x} and {:?}",
            header.last, header.digest, header.counts.0, self.digest, self.counts.0,
        )))
    }
}

impl Slot {
    /// The store of this generation passed its walk.
    fn passed(&self, generation: u64) -> WalkStep {
        self.with(|state| {
            if state.generation != generation {
                return WalkStep::Replaced;
            }
            state.walked = Some(generation);
            WalkStep::Passed
        })
    }
}

impl View {
    /// Begins a walk over the records of the open store (R30).
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn walk(&self) -> Result<DigestWalk, ReadError> {
        let (generation, _, store, _) = self.open_store()?;
        let reader = store
            .read()
            .map_err(|fault| self.failed(generation, holdfast_consensus::Index(0), fault))?;
        Ok(DigestWalk {
            view: self.clone(),
            reader,
            _store: store,
            generation,
            behind: Vec::new(),
            digest: 0,
            counts: Counts::default(),
        })
    }

    /// How far the open store is trusted.
    ///
    /// # Errors
    /// [`ReadError::Closed`] if there is none.
    pub fn trust(&self) -> Result<Trust, ReadError> {
        Ok(self.open_store()?.3)
    }

    /// What the state says about a claim, from one read transaction.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn evidence(&self, claim: &Claim) -> Result<Evidence, ReadError> {
        let at = self.read_trusting(|reader, generation, trust| {
            let header = &reader.header;
            let mut evidence = Evidence {
                generation,
                trust,
                cluster: header.cluster,
                group: header.group,
                state_epoch: header.state_epoch,
                applied: header.last.index,
                tombstones: Vec::new(),
                topic: None,
                link: None,
                assignment: None,
            };
            for stamp in claim.provers() {
                evidence.tombstones.extend(reader.get::<Tombstone>(&tombstone_key(stamp))?);
            }
            match claim {
                Claim::Gone(stamp) => live(reader, stamp, &mut evidence)?,
                Claim::CopyGone(copy) | Claim::MovedAway { copy, .. } => {
                    live(reader, &copy.topic, &mut evidence)?;
                    live(reader, &copy.placed, &mut evidence)?;
                }
                Claim::Current { attachment, .. } => live(reader, attachment, &mut evidence)?,
            }
            Ok(evidence)
        })?;
        Ok(at.value)
    }
}

/// Reads what lives under the name of a stamp.
fn live(reader: &Reader, stamp: &Stamp, evidence: &mut Evidence) -> Result<(), StoreFault> {
    match stamp.kind {
        ResourceKind::Topic => {
            let key = records::key(TableId::Topics, stamp.name.as_bytes());
            evidence.topic = reader.get::<Topic>(&key)?;
        }
        ResourceKind::Attachment => {
            evidence.link = reader.get::<Link>(&link_key(&stamp.name))?;
        }
        ResourceKind::Move => {
            if let Some((topic, partition)) = moved_partition(&stamp.name) {
                evidence.assignment =
                    reader.get::<Assignment>(&assignment_key(topic, partition))?;
            }
        }
    }
    Ok(())
}
