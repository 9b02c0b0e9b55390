//! What a log should hold, kept beside it as plain values.

use crate::disk::Disk;
use crate::log::Log;
use crate::mem_disk::mix;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogReader, LogStore, SnapshotSource, SnapshotStore};
use holdfast_consensus::{Body, Entry, HardState, Index, LogId, Membership, SnapshotMeta};
use std::fmt;

/// Everything that must survive: hard state, base, entries, configurations, the newest snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) hard: HardState,
    pub(super) base: LogId,
    pub(super) entries: Vec<Entry>,
    /// Configurations by index; the first is the one in force at the base, if there is one.
    pub(super) configurations: Vec<(Index, Membership)>,
    pub(super) snapshot: Option<LogId>,
}

impl Content {
    pub(super) fn last(&self) -> LogId {
        self.entries.last().map_or(self.base, |e| e.id)
    }

    pub(super) fn cut(&mut self, from: Index) {
        self.entries.retain(|e| e.id.index < from);
        self.configurations.retain(|(at, _)| *at < from);
    }

    pub(super) fn push(&mut self, entry: &Entry) {
        if let Body::Membership(membership) = &entry.body {
            self.configurations.push((entry.id.index, membership.as_ref().clone()));
        }
        self.entries.push(entry.clone());
    }

    pub(super) fn apply(&mut self, batch: &Persist) {
        if let Some(from) = batch.truncate_from {
            self.cut(from);
        }
        batch.append.iter().for_each(|entry| self.push(entry));
        self.hard = batch.hard.unwrap_or(self.hard);
    }

    /// Entries up to here are given up; the configuration in force there stays.
    pub(super) fn compact(&mut self, through: Index) {
        let Some(id) = self.entries.iter().map(|e| e.id).rfind(|id| id.index <= through) else {
            return;
        };
        self.base = id;
        self.entries.retain(|e| e.id.index > id.index);
        let newer = self.configurations.partition_point(|(at, _)| *at <= id.index);
        self.configurations.drain(..newer.saturating_sub(1));
    }

    /// R25: the snapshot becomes the base; the suffix stays if the entry there has its term.
    pub(super) fn reset(&mut self, meta: &SnapshotMeta) {
        if meta.last.index <= self.base.index {
            return;
        }
        let kept = self.entries.iter().any(|e| e.id == meta.last);
        self.entries.retain(|e| kept && e.id.index > meta.last.index);
        self.configurations.retain(|(at, _)| kept && *at > meta.last.index);
        self.configurations.insert(0, (meta.membership_index, meta.membership.clone()));
        self.base = meta.last;
    }

    /// Every content that may be found if these batches were cut short on top of this one.
    pub(super) fn after_part_of(&self, batches: &[Persist]) -> Vec<Self> {
        let hard = batches.iter().rev().find_map(|b| b.hard).unwrap_or(self.hard);
        let mut now = Self { hard, ..self.clone() };
        let mut all = vec![self.clone(), now.clone()];
        for batch in batches {
            if let Some(from) = batch.truncate_from {
                now.cut(from);
            }
            for entry in &batch.append {
                now.push(entry);
                // R3: a truncation and its replacement count whole or not at all.
                if batch.truncate_from.is_none() {
                    all.push(now.clone());
                }
            }
            all.push(now.clone());
        }
        all
    }

    /// Reads everything that an open log holds.
    ///
    /// # Errors
    /// If something that the log reports cannot be read, or two reports do not agree.
    pub(super) fn of<D: Disk>(log: &Log<D>) -> Result<Self, String> {
        let found = log.recovered();
        // No power cut damages what was synced.
        if !found.holes.is_empty() || found.held.is_some() {
            return Err(format!("damage: holes {:?}, held {:?}", found.holes, found.held));
        }
        let (mut entries, mut from) = (Vec::new(), found.first);
        while from <= found.last.index {
            let piece =
                log.reader().read(from, found.last.index, 4000).map_err(|e| e.to_string())?;
            entries.extend(piece.iter().cloned());
            from = piece.last().ok_or("a read returned nothing")?.index.next();
        }
        let configurations = found.memberships.clone();
        let snapshot = found.snapshot.as_ref().map(|meta| meta.last);
        let content =
            Self { hard: found.hard, base: found.base, entries, configurations, snapshot };
        if content.last() != found.last || found.first != found.base.index.next() {
            return Err(format!("reported {} to {}, read {content}", found.first, found.last));
        }
        let mut terms: Vec<LogId> = Vec::new();
        for id in content.entries.iter().map(|e| e.id) {
            if terms.last().is_none_or(|run| run.term != id.term) {
                terms.push(id);
            }
        }
        if found.terms != terms {
            return Err(format!("reported runs of terms {:?}, read {content}", found.terms));
        }
        if let Some(meta) = &found.snapshot {
            read_snapshot(log, meta)?;
        }
        Ok(content)
    }

    /// Equal for equal contents, and for others with the chance of 64 bits.
    pub(super) fn digest(&self) -> u64 {
        let id = |sum, id: LogId| mix(mix(sum, id.term.0), id.index.0);
        let mut sum = mix(self.hard.term.0, self.hard.voted_for.map_or(0, |m| m.0 + 1));
        sum = id(sum, self.base);
        sum = self.snapshot.map_or(mix(sum, 7), |last| id(sum, last));
        for entry in &self.entries {
            let body = match &entry.body {
                Body::Blank => 1,
                Body::Command(bytes) => mix(2, u64::from(crc32c::crc32c(bytes))),
                Body::Membership(m) => members(m),
            };
            sum = mix(mix(id(sum, entry.id), entry.time), body);
        }
        let all = self.configurations.iter();
        all.fold(sum, |sum, (at, m)| mix(mix(sum, at.0), members(m)))
    }
}

fn members(m: &Membership) -> u64 {
    m.voters.iter().fold(3, |sum, member| mix(sum, member.0))
}

/// The content of every snapshot that the exploration writes: its label, over and over.
pub(super) fn snapshot_content(last: LogId) -> Vec<u8> {
    [last.term.0.to_le_bytes(), last.index.0.to_le_bytes()].concat().repeat(20)
}

fn read_snapshot<D: Disk>(log: &Log<D>, meta: &SnapshotMeta) -> Result<(), String> {
    let mut source = log.snapshots().open(meta, 0).map_err(|e| e.to_string())?;
    let mut content = Vec::new();
    while let Some(chunk) = source.next_chunk().map_err(|e| e.to_string())? {
        content.extend_from_slice(&chunk);
    }
    if content != snapshot_content(meta.last) {
        return Err(format!("the snapshot at {} has another content", meta.last));
    }
    Ok(())
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vote = self.hard.voted_for.map_or("nobody".to_owned(), |m| m.to_string());
        write!(f, "term {} vote {vote} base {} entries [", self.hard.term, self.base)?;
        for entry in &self.entries {
            write!(f, " {}", entry.id)?;
        }
        write!(f, " ] configurations [")?;
        for (at, _) in &self.configurations {
            write!(f, " {at}")?;
        }
        write!(f, " ] snapshot {}", self.snapshot.unwrap_or_default())
    }
}
