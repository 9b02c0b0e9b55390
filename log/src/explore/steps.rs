//! The operations that sequences are made of, and a log that carries them out.

use super::content::{Content, snapshot_content};
use super::search::Judged;
use crate::disk::Disk;
use crate::log::{Log, LogOptions};
use crate::mem_disk::{CrashPoint, KeepAll, LoseAll, MemDisk};
use crate::segment::Owner;
use bytes::Bytes;
use holdfast_consensus::fault::{LogFault, StoreFault};
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogStore, SnapshotSink, SnapshotStore, SpareWork};
use holdfast_consensus::{
    Body, Entries, Entry, HardState, Index, LogId, MemberId, Membership, Seq, SnapshotMeta, Term,
};
use std::rc::Rc;

/// The smallest segments that there are: a roll is never far.
pub(super) const OPTIONS: LogOptions = LogOptions { segment_bytes: LogOptions::SEGMENT_MIN };

/// The member whose log it is.
pub(super) const OWNER: Owner =
    Owner { member: MemberId(7), group: 0, cluster: holdfast_consensus::ClusterId(0), epoch: 0 };

/// Bytes of a long entry: two of them do not fit into one segment.
const LONG: usize = 12 << 10;

/// One operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// One entry in one sync.
    Append,
    /// Two batches in one sync: two entries, then one of a new term with a vote.
    Batch,
    /// An entry so long that the second one rolls to another segment.
    Long,
    /// A configuration.
    Configure,
    /// The last entry is cut and replaced, in a new term.
    Truncate,
    /// Everything above the commit index is cut and replaced.
    TruncateAll,
    /// A new term and a vote, and nothing else.
    Vote,
    /// The commit index moves to the last entry, and a watermark says so.
    Watermark,
    /// The spare segment is prepared, if one is wanted.
    Spare,
    /// Segments at or below the commit index are given up.
    Compact,
    /// A snapshot at the commit index is published.
    Publish,
    /// A snapshot from beyond the log is published and becomes its base.
    Install,
    /// A snapshot of another history, within the log, is published and becomes its base.
    InstallOver,
    /// The power fails, everything unsynced is lost, and the log is opened again.
    LoseAndOpen,
    /// The power fails, everything unsynced survives, and the log is opened again.
    KeepAndOpen,
    /// The process is killed, and the log is opened again: the page cache survives.
    KillAndOpen,
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 16] = [
        Self::Append,
        Self::Batch,
        Self::Long,
        Self::Configure,
        Self::Truncate,
        Self::TruncateAll,
        Self::Vote,
        Self::Watermark,
        Self::Spare,
        Self::Compact,
        Self::Publish,
        Self::Install,
        Self::InstallOver,
        Self::LoseAndOpen,
        Self::KeepAndOpen,
        Self::KillAndOpen,
    ];
}

/// What may be found at one moment.
#[derive(Debug)]
pub(super) struct Allowed {
    pub(super) contents: Vec<Content>,
    pub(super) digests: Vec<u64>,
    /// The number of the last start that was reported: the next one is higher (R3).
    pub(super) boot: u64,
    /// The highest commit index that the log was told: no other comes back.
    pub(super) commit: Index,
}

impl Allowed {
    /// Whether this may be found; else what is wrong.
    pub(super) fn check(&self, judged: &Judged) -> Result<(), String> {
        if let Some(digest) = judged.reached.iter().find(|d| !self.digests.contains(d)) {
            return Err(format!("a content that may not be there (digest {digest:016x})"));
        }
        if judged.boot <= self.boot {
            return Err(format!("start {} follows start {}", judged.boot, self.boot));
        }
        if judged.commit > self.commit {
            return Err(format!("commit {} where {} was told", judged.commit, self.commit));
        }
        Ok(())
    }
}

/// Moments, and what may be found if the power fails then.
pub(super) type Moments = Vec<(CrashPoint, Rc<Allowed>)>;

/// A log under test with its disk and the content that it should have.
pub(super) struct Life<'o, D: Disk> {
    over: &'o dyn Fn(MemDisk) -> D,
    disk: MemDisk,
    log: Option<Log<D>>,
    content: Content,
    boot: u64,
    commit: Index,
    seq: u64,
    allowed: Rc<Allowed>,
    watching: bool,
    moments: Moments,
}

impl<'o, D: Disk> Life<'o, D> {
    /// An empty disk, no log yet.
    pub(super) fn new(over: &'o dyn Fn(MemDisk) -> D) -> Self {
        let mut life = Self {
            over,
            disk: MemDisk::new(),
            log: None,
            content: Content::default(),
            boot: 0,
            commit: Index(0),
            seq: 0,
            allowed: Rc::new(Allowed {
                contents: Vec::new(),
                digests: Vec::new(),
                boot: 0,
                commit: Index(0),
            }),
            watching: false,
            moments: Vec::new(),
        };
        life.allow(vec![Content::default()]);
        life
    }

    /// From now on every moment counts.
    pub(super) fn watch(&mut self) {
        self.watching = true;
        self.disk.watch();
    }

    /// The moments since [`Life::watch`], and this one.
    pub(super) fn moments(mut self) -> Moments {
        self.collect();
        self.moments.push((self.disk.point(), self.allowed));
        self.moments
    }

    fn collect(&mut self) {
        let points = self.disk.take_points();
        self.moments.extend(points.into_iter().map(|point| (point, Rc::clone(&self.allowed))));
    }

    /// From here on these contents may be found.
    fn allow(&mut self, contents: Vec<Content>) {
        self.collect();
        let digests = contents.iter().map(Content::digest).collect();
        let (boot, commit) = (self.boot, self.commit);
        self.allowed = Rc::new(Allowed { contents, digests, boot, commit });
    }

    /// The content is acknowledged: nothing else may be found.
    fn settle(&mut self, content: Content) {
        self.content = content;
        self.allow(vec![self.content.clone()]);
    }

    /// Opens the log, which must hold what it should.
    pub(super) fn open(&mut self) -> Result<(), String> {
        let log =
            Log::open((self.over)(self.disk.clone()), OWNER, OPTIONS).map_err(|e| e.to_string())?;
        let found = Content::of(&log)?;
        if found.digest() != self.content.digest() {
            return Err(format!("opened with {found} instead of {}", self.content));
        }
        self.boot = log.recovered().boot;
        self.log = Some(log);
        self.allow(vec![found]);
        Ok(())
    }

    /// Carries out one step. False if it has no meaning here; nothing was done then.
    ///
    /// # Errors
    /// If the log refuses what it must take, or does not hold what it should.
    pub(super) fn act(&mut self, step: Step) -> Result<bool, String> {
        if let Some(batches) = self.batches(step) {
            return self.persist(&batches).map(|()| true);
        }
        match step {
            Step::Watermark => self.watermark(),
            Step::Spare => self.spare(),
            Step::Compact => self.compact(),
            Step::Publish => self.publish(),
            Step::Install | Step::InstallOver => self.install(step),
            Step::LoseAndOpen => self.restart(|disk| disk.crash(&mut LoseAll)),
            Step::KeepAndOpen => self.restart(|disk| disk.crash(&mut KeepAll)),
            Step::KillAndOpen => self.restart(|disk| disk.kill()),
            _ => Ok(false),
        }
    }

    fn log(&mut self) -> Result<&mut Log<D>, String> {
        self.log.as_mut().ok_or_else(|| "the log is not open".to_owned())
    }

    fn entry(&self, term: u64, index: u64, len: usize) -> Entry {
        // A long body is zeros behind its head: sectors that stay as they are need no exploring.
        let mut payload = vec![0; len];
        payload[..8].copy_from_slice(&(self.seq * 100 + index).to_le_bytes());
        if len < LONG {
            payload[8..].fill(index.to_le_bytes()[0] | 1);
        }
        Entry {
            id: LogId::new(term, index),
            time: self.seq,
            body: Body::Command(Bytes::from(payload)),
        }
    }

    fn batch(&mut self, entries: Vec<Entry>) -> Persist {
        self.seq += 1;
        let append = Entries::new(entries).unwrap_or_default();
        Persist { seq: Seq(self.seq), truncate_from: None, append, hard: None }
    }

    /// What a step that writes entries or hard state writes.
    fn batches(&mut self, step: Step) -> Option<Vec<Persist>> {
        let last = self.content.last();
        let term = self.content.hard.term.max(last.term).0.max(1);
        let next = last.index.0 + 1;
        let newer = HardState { term: Term(term + 1), voted_for: Some(MemberId(3)) };
        let floor = self.commit.max(self.content.base.index).0;
        let first = HardState { term: Term(term), voted_for: None };
        let first = Some(first).filter(|hard| hard.term > self.content.hard.term);
        self.seq += 1;
        let mut all = match step {
            Step::Append => vec![vec![self.entry(term, next, 120)]],
            Step::Long => vec![vec![self.entry(term, next, LONG)]],
            Step::Batch => vec![
                vec![self.entry(term, next, 300), self.entry(term, next + 1, 300)],
                vec![self.entry(term + 1, next + 2, 120)],
            ],
            Step::Configure => {
                let names = (1..=1 + next % 3).map(|n| (MemberId(n), format!("n{n}")));
                let body = Body::Membership(Membership::of_voters(names).into());
                vec![vec![Entry { id: LogId::new(term, next), time: self.seq, body }]]
            }
            Step::Truncate if next > floor + 1 => vec![vec![self.entry(term + 1, next - 1, 120)]],
            Step::TruncateAll if next > floor + 2 => {
                vec![vec![
                    self.entry(term + 1, floor + 1, 120),
                    self.entry(term + 1, floor + 2, 300),
                ]]
            }
            Step::Vote => vec![Vec::new()],
            _ => return None,
        };
        let mut batches: Vec<Persist> = all.drain(..).map(|entries| self.batch(entries)).collect();
        if let Some(batch) = batches.first_mut() {
            batch.hard = first;
        }
        let cut = match step {
            Step::Truncate => Some(Index(next - 1)),
            Step::TruncateAll => Some(Index(floor + 1)),
            _ => None,
        };
        if let Some(batch) = batches.last_mut()
            && (cut.is_some() || matches!(step, Step::Batch | Step::Vote))
        {
            (batch.truncate_from, batch.hard) = (cut, Some(newer));
        }
        Some(batches)
    }

    fn persist(&mut self, batches: &[Persist]) -> Result<(), String> {
        let mut after = self.content.clone();
        batches.iter().for_each(|batch| after.apply(batch));
        self.allow(self.content.after_part_of(batches));
        self.log()?.persist(batches).map_err(|e| e.to_string())?;
        self.settle(after);
        Ok(())
    }

    fn watermark(&mut self) -> Result<bool, String> {
        self.commit = self.content.last().index;
        self.allow(vec![self.content.clone()]);
        let commit = self.commit;
        self.log()?.watermark(commit).map_err(|e| e.to_string())?;
        Ok(true)
    }

    fn spare(&mut self) -> Result<bool, String> {
        let log = self.log()?;
        let Some(mut spare) = log.spare() else { return Ok(false) };
        let make = |spare: &mut crate::Spare<D>| -> Result<(), LogFault> {
            while !spare.step()? {}
            Ok(())
        };
        make(&mut spare).and_then(|()| log.add_spare(spare)).map_err(|e| e.to_string())?;
        Ok(true)
    }

    fn compact(&mut self) -> Result<bool, String> {
        let commit = self.commit;
        if commit <= self.content.base.index {
            return Ok(false);
        }
        let mut all = vec![self.content.clone()];
        for index in self.content.base.index.0 + 1..=commit.0 {
            let mut now = self.content.clone();
            now.compact(Index(index));
            all.push(now);
        }
        self.allow(all);
        let first = self.log()?.compact(commit).map_err(|e| e.to_string())?;
        let mut after = self.content.clone();
        after.compact(first.prev());
        if after.base.index.next() != first || first.prev() > commit {
            return Err(format!("compaction through {commit} left {first} as the first index"));
        }
        self.settle(after);
        Ok(true)
    }

    fn meta(&self, last: LogId) -> SnapshotMeta {
        let in_force = self.content.configurations.iter().rfind(|(at, _)| *at <= last.index);
        let (membership_index, membership) = in_force.cloned().unwrap_or_default();
        let digest = u128::from(last.index.0);
        SnapshotMeta {
            last,
            time: self.seq,
            membership,
            membership_index,
            digest,
            ..Default::default()
        }
    }

    fn write_snapshot(&mut self, meta: &SnapshotMeta) -> Result<SnapshotMeta, String> {
        let store = self.log()?.snapshots();
        let write = || -> Result<SnapshotMeta, StoreFault> {
            let mut writer = store.create(meta)?;
            let content = snapshot_content(meta.last);
            for piece in content.chunks(content.len() / 2) {
                writer.put_chunk(writer.offset(), piece)?;
            }
            store.publish(writer)
        };
        write().map_err(|e| e.to_string())
    }

    fn publish(&mut self) -> Result<bool, String> {
        let at = self.content.entries.iter().map(|e| e.id).find(|id| id.index == self.commit);
        let Some(last) =
            at.filter(|id| self.content.snapshot.is_none_or(|old| old.index < id.index))
        else {
            return Ok(false);
        };
        let after = Content { snapshot: Some(last), ..self.content.clone() };
        self.allow(vec![self.content.clone(), after.clone()]);
        let meta = self.meta(last);
        self.write_snapshot(&meta)?;
        self.settle(after);
        Ok(true)
    }

    fn install(&mut self, step: Step) -> Result<bool, String> {
        let LogId { term, index: Index(end) } = self.content.last();
        let term = self.content.hard.term.max(term).0.max(1);
        let last = match step {
            Step::Install => LogId::new(term, end + 2),
            // Committed entries are the same everywhere: only above the commit index is there
            // another history.
            _ if end > self.commit.0 + 1 => LogId::new(term + 1, end - 1),
            _ => return Ok(false),
        };
        let meta = self.meta(last);
        let mut after = Content { snapshot: Some(last), ..self.content.clone() };
        after.reset(&meta);
        self.allow(vec![self.content.clone(), after.clone()]);
        let meta = self.write_snapshot(&meta)?;
        // R25: once the snapshot is published, whoever opens the log finishes the installation.
        self.commit = last.index;
        self.settle(after);
        let end = self.log()?.reset(&meta).map_err(|e| e.to_string())?;
        if end != self.content.last() {
            return Err(format!(
                "the reset left {end} as the last entry, not {}",
                self.content.last()
            ));
        }
        self.settle(self.content.clone());
        Ok(true)
    }

    fn restart(&mut self, end: impl Fn(&MemDisk) -> MemDisk) -> Result<bool, String> {
        self.collect();
        self.log = None;
        self.disk = end(&self.disk);
        // The survivor remembers nothing: it is watched only if its predecessor was.
        if self.watching {
            self.disk.watch();
        }
        self.open()?;
        Ok(true)
    }
}
