//! The accepted-record log of the small broker: what was answered 202 and is not yet in the log of
//! its partition (SCENARIOS 3).
//!
//! Segments of text lines, each with its checksum; a checkpoint file names the first sequence
//! number that is still needed. The checkpoint moves over what is done only, and a segment goes
//! only once the checkpoint, synced, lies behind its end.

use super::ledger::Place;
use super::records::{self, Record};
use holdfast_log::disk::Disk;
use holdfast_log::mem_disk::MemDisk;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Its directory.
pub const DIR: &str = "accepted";
const CHECKPOINT: &str = "accepted/checkpoint";
/// Records of one segment.
const SEGMENT: u64 = 32;

/// A record that waits for its partition. It names the incarnation it was accepted under, and how
/// far the node's state had come when it accepted it (R32).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its place.
    pub sequence: u64,
    /// The record.
    pub record: Record,
    /// The topic.
    pub topic: String,
    /// Its incarnation.
    pub incarnation: u64,
    /// The partition.
    pub partition: u32,
    /// Last index that the node had applied.
    pub applied: u64,
}

impl Accepted {
    /// Where it belongs.
    #[must_use]
    pub fn place(&self) -> Place {
        Place {
            topic: self.topic.clone(),
            incarnation: self.incarnation,
            partition: self.partition,
        }
    }

    /// Its line in a segment.
    pub(super) fn line(&self) -> String {
        let text = format!(
            "{} {} {} {} {} {} {}",
            self.sequence,
            self.record.id,
            self.record.time,
            self.topic,
            self.incarnation,
            self.partition,
            self.applied
        );
        format!("{text} {:016x}\n", crate::hash::of_bytes(text.as_bytes()))
    }

    fn parse(line: &str) -> Option<Self> {
        let (text, sum) = line.rsplit_once(' ')?;
        if u64::from_str_radix(sum, 16).ok()? != crate::hash::of_bytes(text.as_bytes()) {
            return None;
        }
        let mut parts = text.split(' ');
        let number = |parts: &mut std::str::Split<'_, char>| parts.next()?.parse::<u64>().ok();
        Some(Self {
            sequence: number(&mut parts)?,
            record: Record { id: number(&mut parts)?, time: number(&mut parts)? },
            topic: parts.next()?.to_owned(),
            incarnation: number(&mut parts)?,
            partition: u32::try_from(number(&mut parts)?).ok()?,
            applied: number(&mut parts)?,
        })
    }
}

fn segment_of(sequence: u64) -> String {
    format!("{DIR}/{:08}.seg", sequence / SEGMENT)
}

fn missing_is_none<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn checkpoint_of(disk: &MemDisk) -> io::Result<u64> {
    let Some(bytes) = records::content(disk, CHECKPOINT)? else { return Ok(0) };
    let text = String::from_utf8_lossy(&bytes);
    text.trim().parse().map_err(|_| io::Error::other("the checkpoint is not a number"))
}

/// What a disk holds at or behind its checkpoint, whoever runs on it: for the oracle.
///
/// # Errors
/// What the disk says.
pub fn held(disk: &MemDisk) -> io::Result<Vec<Accepted>> {
    let checkpoint = checkpoint_of(disk)?;
    let mut found = Vec::new();
    for name in missing_is_none(disk.list(DIR))?.unwrap_or_default() {
        if !name.ends_with(".seg") {
            continue;
        }
        let bytes = records::content(disk, &format!("{DIR}/{name}"))?.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        found.extend(text.lines().map_while(Accepted::parse));
    }
    found.retain(|accepted| accepted.sequence >= checkpoint);
    Ok(found)
}

/// The log, open.
#[derive(Debug)]
pub struct AcceptedLog {
    disk: MemDisk,
    next: u64,
    checkpoint: u64,
    waiting: BTreeMap<u64, Accepted>,
    done: BTreeSet<u64>,
}

impl AcceptedLog {
    /// Opens what the disk holds, or makes an empty one.
    ///
    /// # Errors
    /// What the disk says.
    pub fn open(disk: MemDisk) -> io::Result<Self> {
        disk.make_dir(DIR)?;
        disk.sync_dir("")?;
        let waiting: BTreeMap<u64, Accepted> =
            held(&disk)?.into_iter().map(|accepted| (accepted.sequence, accepted)).collect();
        let checkpoint = checkpoint_of(&disk)?;
        let next = waiting.keys().next_back().map_or(checkpoint, |last| last + 1);
        // A fresh segment for each start: nothing is appended behind a torn line.
        let next = next.max(checkpoint).div_ceil(SEGMENT) * SEGMENT;
        Ok(Self { disk, next, checkpoint, waiting, done: BTreeSet::new() })
    }

    /// Accepts a record: durable when this returns. The sequence number is filled in.
    ///
    /// # Errors
    /// What the disk says: then it was not accepted.
    pub fn accept(&mut self, mut accepted: Accepted) -> io::Result<u64> {
        use holdfast_log::disk::{DiskFile, Mode};
        accepted.sequence = self.next;
        let path = segment_of(accepted.sequence);
        let (file, created) = match self.disk.open(&path, Mode::Write) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                (self.disk.open(&path, Mode::CreateNew)?, true)
            }
            other => (other?, false),
        };
        let end = file.len()?;
        file.write_at(end, accepted.line().as_bytes())?;
        file.sync()?;
        if created {
            self.disk.sync_dir(DIR)?;
        }
        self.next += 1;
        self.waiting.insert(accepted.sequence, accepted);
        Ok(self.next - 1)
    }

    /// What waits, in order.
    #[must_use]
    pub fn waiting(&self) -> Vec<Accepted> {
        self.waiting.values().cloned().collect()
    }

    /// A record is in its partition's log, or was discarded for good: it need not be kept.
    pub fn done(&mut self, sequence: u64) {
        if self.waiting.remove(&sequence).is_some() {
            self.done.insert(sequence);
        }
    }

    /// Moves the checkpoint to the first record that still waits, durably, and then gives up the
    /// segments behind it.
    ///
    /// # Errors
    /// What the disk says.
    pub fn advance(&mut self) -> io::Result<()> {
        let to = self.waiting.keys().next().copied().unwrap_or(self.next);
        if to == self.checkpoint {
            return Ok(());
        }
        records::replace(&self.disk, CHECKPOINT, to.to_string().as_bytes())?;
        self.checkpoint = to;
        self.done.retain(|sequence| *sequence >= to);
        for name in self.disk.list(DIR)? {
            let number = name.strip_suffix(".seg").and_then(|n| n.parse::<u64>().ok());
            if number.is_some_and(|number| (number + 1) * SEGMENT <= to) {
                self.disk.unlink(&format!("{DIR}/{name}"))?;
            }
        }
        self.disk.sync_dir(DIR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_log::mem_disk::LoseAll;

    fn accepted(id: u64) -> Accepted {
        let record = Record { id, time: id };
        Accepted {
            sequence: 0,
            record,
            topic: "orders".into(),
            incarnation: 7,
            partition: 0,
            applied: 9,
        }
    }

    fn ids(disk: &MemDisk) -> Vec<u64> {
        held(disk).expect("read").iter().map(|accepted| accepted.record.id).collect()
    }

    #[test]
    fn what_was_accepted_survives_power_loss_until_the_checkpoint_passes_it() {
        let disk = MemDisk::new();
        let mut log = AcceptedLog::open(disk.clone()).expect("opened");
        for id in 1..=3 {
            log.accept(accepted(id)).expect("accepted");
        }
        let disk = disk.crash(&mut LoseAll);
        assert_eq!(ids(&disk), [1, 2, 3]);
        let mut log = AcceptedLog::open(disk.clone()).expect("opened");
        let first = log.waiting()[0].clone();
        assert_eq!(first.record.id, 1);
        log.done(log.waiting()[1].sequence);
        log.advance().expect("advanced");
        assert_eq!(ids(&disk), [1, 2, 3], "the second is done, the first is not");
        log.done(first.sequence);
        log.advance().expect("advanced");
        assert_eq!(ids(&disk), [3]);
        assert_eq!(ids(&disk.crash(&mut LoseAll)), [3]);
    }

    #[test]
    fn segments_behind_the_checkpoint_go() {
        let disk = MemDisk::new();
        let mut log = AcceptedLog::open(disk.clone()).expect("opened");
        for id in 0..SEGMENT + 5 {
            log.accept(accepted(id)).expect("accepted");
        }
        for waiting in log.waiting().into_iter().take(33) {
            log.done(waiting.sequence);
        }
        log.advance().expect("advanced");
        let names = disk.list(DIR).expect("listed");
        assert_eq!(names, ["00000001.seg", "checkpoint"]);
        assert_eq!(ids(&disk), [33, 34, 35, 36]);
    }

    #[test]
    fn a_torn_line_ends_a_segment_and_nothing_is_written_behind_it() {
        use holdfast_log::disk::{DiskFile, Mode};
        let disk = MemDisk::new();
        let mut log = AcceptedLog::open(disk.clone()).expect("opened");
        log.accept(accepted(1)).expect("accepted");
        let file = disk.open("accepted/00000000.seg", Mode::Write).expect("there");
        file.write_at(file.len().expect("known"), b"1 2 3 torn").expect("written");
        let mut log = AcceptedLog::open(disk.clone()).expect("opened");
        log.accept(accepted(2)).expect("accepted");
        assert_eq!(ids(&disk), [1, 2]);
    }
}
