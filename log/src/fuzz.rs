//! The entry point of the fuzz target: recovery from arbitrary bytes.

use crate::disk::Disk;
use crate::log::{Log, LogOptions};
use crate::mem_disk::MemDisk;
use crate::segment::Owner;
use bytes::Bytes;
use holdfast_consensus::damage::hole_at;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::{LogReader, LogStore};
use holdfast_consensus::{
    Body, Entries, Entry, HardState, Index, LogId, MemberId, Membership, Seq, Term,
};
use std::collections::BTreeMap;
use std::sync::OnceLock;

const OPTIONS: LogOptions = LogOptions { segment_bytes: LogOptions::SEGMENT_MIN };
const OWNER: Owner =
    Owner { member: MemberId(7), group: 0, cluster: holdfast_consensus::ClusterId(0), epoch: 0 };

/// The files of a small sound log of several segments: the seed of the corpus.
#[must_use]
pub fn sample_files() -> BTreeMap<String, Vec<u8>> {
    static FILES: OnceLock<BTreeMap<String, Vec<u8>>> = OnceLock::new();
    FILES.get_or_init(|| sample().unwrap_or_default()).clone()
}

fn sample() -> Result<BTreeMap<String, Vec<u8>>, LogFault> {
    let disk = MemDisk::new();
    let mut log = Log::open(disk.clone(), OWNER, OPTIONS)?;
    let names = [(MemberId(7), "a".to_owned()), (MemberId(8), "b".to_owned())];
    for seq in 1..=10u64 {
        let from = log.recovered().last.index.0 + 1;
        let cut = (seq == 6).then_some(Index(from - 1));
        let from = cut.map_or(from, |cut| cut.0);
        let entry = |index: u64| Entry {
            id: LogId::new(seq.div_ceil(3), index),
            time: index,
            body: match index {
                1 => Body::Membership(Membership::of_voters(names.clone()).into()),
                2 => Body::Blank,
                _ => Body::Command(Bytes::from(vec![seq.to_le_bytes()[0]; 3000])),
            },
        };
        let append = Entries::new((from..from + 2).map(entry).collect()).unwrap_or_default();
        let hard = Some(HardState { term: Term(seq.div_ceil(3)), voted_for: None });
        log.persist(&[Persist { seq: Seq(seq), truncate_from: cut, append, hard }])?;
        log.watermark(Index(from.saturating_sub(4)))?;
    }
    Ok(disk.files())
}

/// Opens a log made of arbitrary bytes. The first byte chooses: a single segment whose content is
/// the rest, or a sound log that the rest damages (5 bytes a blow: file, place, place, kind, value).
///
/// # Panics
/// If recovery breaks a promise: a refusal changed a byte, or what it reported cannot be read,
/// written on, and recovered again.
pub fn fuzz_recover(data: &[u8]) {
    let Some(files) = battered(data) else { return };
    let disk = MemDisk::from_files(files.clone());
    let log = match Log::open(disk.clone(), OWNER, OPTIONS) {
        Ok(log) => log,
        Err(LogFault::Damaged { .. } | LogFault::Held { .. } | LogFault::Refused(_)) => {
            assert!(disk.files() == files, "a refusal leaves every byte as it was");
            return;
        }
        Err(_) => return,
    };
    if log.recovered().held.is_some() {
        read_all(&log);
        assert!(disk.files() == files, "a held log leaves every byte as it was");
        return;
    }
    go_on(&disk, log);
}

/// The files that an input stands for.
pub(crate) fn battered(data: &[u8]) -> Option<BTreeMap<String, Vec<u8>>> {
    let (mode, rest) = data.split_first()?;
    if mode % 2 == 0 {
        let path = "log/00000000000000000001-0000000001".to_owned();
        return Some(BTreeMap::from([(path, rest.to_vec())]));
    }
    let mut files = sample_files();
    for blow in rest.chunks_exact(5) {
        strike(&mut files, blow);
    }
    Some(files)
}

fn strike(files: &mut BTreeMap<String, Vec<u8>>, blow: &[u8]) {
    let count = files.len();
    let Some(file) = files.values_mut().nth(usize::from(blow[0]) % count.max(1)) else { return };
    let place = usize::from(u16::from_le_bytes([blow[1], blow[2]])) * 8;
    match blow[3] % 4 {
        0 => {
            if let Some(byte) = file.get_mut(place + usize::from(blow[3] / 4 % 8)) {
                *byte ^= blow[4];
            }
        }
        1 => {
            let start = place / 512 * 512;
            let end = (start + 512).min(file.len());
            file.get_mut(start..end).into_iter().for_each(|sector| sector.fill(blow[4]));
        }
        2 => file.truncate(place.max(1)),
        _ => {
            let (from, to) = (place / 4096 * 4096, usize::from(blow[4] % 8) * 4096);
            if from + 4096 <= file.len() && to + 4096 <= file.len() {
                file.copy_within(from..from + 4096, to);
            }
        }
    }
}

/// What was recovered must be readable, must take one more entry, and must be found again.
fn go_on<D: Disk>(disk: &D, mut log: Log<D>) {
    let found = log.recovered();
    read_all(&log);
    let term = found.hard.term.max(found.last.term);
    if term.0 == u64::MAX || found.last.index.0 > u64::MAX - 4 || found.time > u64::MAX - 4 {
        return;
    }
    let id = LogId { term, index: found.last.index.next() };
    let entry = Entry { id, time: found.time + 1, body: Body::Blank };
    let append = Entries::new(vec![entry]).unwrap_or_default();
    let hard = Some(HardState { term, voted_for: None }).filter(|h| h.term > found.hard.term);
    let batch = Persist { seq: Seq(1), truncate_from: None, append, hard };
    assert!(log.persist(&[batch]).is_ok(), "a recovered log takes another entry");
    drop(log);
    let again = Log::open(disk.clone(), OWNER, OPTIONS).map(|log| log.recovered());
    assert!(
        again.as_ref().is_ok_and(|r| {
            (r.last, r.base) == (id, found.base) && r.holes == found.holes && r.held.is_none()
        }),
        "what was acknowledged is found again: {again:?} after {found:?}"
    );
}

/// Everything that recovery reports can be read, but for the holes that it names.
fn read_all<D: Disk>(log: &Log<D>) {
    let found = log.recovered();
    let mut from = found.first;
    while from <= found.last.index {
        if hole_at(&found.holes, from).is_some() {
            from = from.next();
            continue;
        }
        let piece = log.reader().read(from, found.last.index, 1 << 20);
        let last = piece.ok().and_then(|p| p.last());
        assert!(last.is_some(), "what recovery reports can be read");
        from = last.map_or(from, |id| id.index).next();
    }
}

#[cfg(test)]
#[path = "fuzz_tests.rs"]
mod tests;
