use super::*;
use crate::disk::Mode;
use crate::{Log, LogOptions, MemDisk, Owner};
use bytes::Bytes;
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::LogStore;
use holdfast_consensus::{Body, ClusterId, Entries, LogId, MemberId, Seq};

fn entry(index: u64) -> Entry {
    let body = Body::Command(Bytes::from(format!("command {index}")));
    Entry { id: LogId::new(1, index), time: index, body }
}

/// A log of this many entries, `batch` of them a batch.
fn log(entries: u64, batch: u64) -> MemDisk {
    let disk = MemDisk::new();
    let owner = Owner { member: MemberId(1), group: 0, cluster: ClusterId(7), epoch: 3 };
    let options = LogOptions { segment_bytes: 256 << 10 };
    let mut log = Log::open(disk.clone(), owner, options).unwrap();
    for (seq, first) in (1..).zip((1..=entries).step_by(usize::try_from(batch).unwrap())) {
        let append = Entries::new((first..first + batch).map(entry).collect()).unwrap();
        log.persist(&[Persist { seq: Seq(seq), truncate_from: None, append, hard: None }]).unwrap();
    }
    for _ in 0..2 {
        log.watermark(Index(entries)).unwrap();
    }
    disk
}

#[test]
fn records_are_told_in_order_with_their_entries_across_pieces_and_segments() {
    let disk = log(6000, 100);
    let mut records = records(&disk).unwrap();
    let (mut next, mut segments) = (1, 0);
    while let Some(record) = records.next() {
        let record = record.unwrap();
        segments += u64::from(record.kind == "header");
        let found = records.entry(&record).unwrap();
        assert_eq!(found.is_some(), record.kind == "entry", "{record:?}");
        if let Some(found) = found {
            assert_eq!((record.index, found), (Index(next), entry(next)));
            next += 1;
        }
    }
    assert!(next == 6001 && segments > 1, "{next} {segments}");
}

#[test]
fn one_damaged_entry_hides_none_of_those_behind_it_in_its_batch() {
    let disk = log(40, 10);
    let at = records(&disk).unwrap().map(Result::unwrap).find(|r| r.index == Index(13)).unwrap();
    disk.flip_bit(&at.file, at.offset + at.len - 9, 3).unwrap();
    let told: Vec<_> = records(&disk).unwrap().map(Result::unwrap).collect();
    let entries: Vec<_> = told.iter().filter(|r| r.kind == "entry").map(|r| r.index.0).collect();
    assert_eq!(entries, (1..=40).filter(|index| *index != 13).collect::<Vec<_>>());
    let bad: Vec<_> = told.iter().filter(|r| !r.ok).map(|r| (r.kind, r.offset)).collect();
    assert_eq!(bad, [("none", at.offset)]);
}

#[test]
fn a_file_that_holds_something_else_by_now_gives_no_entry() {
    let (disk, other) = (log(10, 1), log(6000, 100));
    let mut records = records(&disk).unwrap();
    let record = records.by_ref().map(Result::unwrap).find(|r| r.kind == "entry").unwrap();
    assert_eq!(records.entry(&record).unwrap(), Some(entry(1)));
    // A later segment of another file: no two of one log have the same salt.
    let (path, _) = disk.files().into_iter().find(|(p, _)| p.starts_with("log/0")).unwrap();
    let (_, bytes) = other.files().into_iter().rfind(|(p, _)| p.starts_with("log/0")).unwrap();
    disk.open(&path, Mode::Write).unwrap().write_at(0, &bytes).unwrap();
    assert_eq!(records.entry(&record).unwrap(), None, "its record is not there any more");
}

#[test]
fn a_segment_without_a_header_hides_none_of_its_records() {
    let disk = log(6000, 100);
    let told = |disk: &MemDisk| -> Vec<RecordInfo> {
        let all = records(disk).unwrap().map(Result::unwrap);
        all.filter(|r| r.ok && r.kind != "header").collect()
    };
    let whole = told(&disk);
    for (file, _) in disk.files().into_iter().filter(|(path, _)| path.starts_with("log/0")) {
        let broken = MemDisk::from_files(disk.files());
        broken.open(&file, Mode::Write).unwrap().write_at(0, &[0; 8192]).unwrap();
        let (whole, found) = (whole.clone(), told(&broken));
        assert_eq!(found.len(), whole.len(), "{file}");
        assert!(found == whole, "{file}: the same records, in the same order");
    }
}
