//! Reading segments side by side finds what reading them one by one finds, in the same order.

use super::*;
use crate::mem_disk::MemDisk;
use crate::segment::Owner;
use crate::{Log, LogOptions};
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::LogStore;
use holdfast_consensus::{Body, Entries, Entry, HardState, LogId, MemberId, Seq, Term};

/// A log of several segments.
fn written() -> MemDisk {
    let disk = MemDisk::new();
    let owner = Owner { member: MemberId(1), ..Owner::default() };
    let options = LogOptions { segment_bytes: LogOptions::SEGMENT_MIN };
    let mut log = Log::open(disk.clone(), owner, options).unwrap();
    for at in 1..=60 {
        let body = Body::Command(vec![7; 3000].into());
        let append = Entries::new(vec![Entry { id: LogId::new(1, at), time: at, body }]).unwrap();
        let hard = (at == 1).then_some(HardState { term: Term(1), voted_for: None });
        log.persist(&[Persist { seq: Seq(at), truncate_from: None, append, hard }]).unwrap();
    }
    disk
}

fn facts(found: &Inventory<crate::MemFile>) -> String {
    let chain = Chain::below(found, u64::MAX).unwrap();
    let raws = read_all(found, &chain.links, None).unwrap();
    assert!(raws.len() >= 8 && raws.iter().all(|raw| !raw.records.is_empty()));
    format!("{raws:?}")
}

#[test]
fn lanes_change_nothing_of_what_is_found() {
    let disk = written();
    let mut found = inventory(&disk, Mode::Write).unwrap();
    let sound = facts(&found);
    for lanes in [2, 3, 64] {
        found.lanes = lanes;
        assert_eq!(facts(&found), sound, "{lanes} lanes");
    }
    // Damage in every third segment: the records behind it, and why the rest is not there.
    for loaded in found.segments.values().step_by(3) {
        loaded.file.write_at(FIRST_BATCH + 8192, &[0xff; 64]).unwrap();
    }
    found.lanes = 1;
    let damaged = facts(&found);
    assert_ne!(damaged, sound);
    for lanes in [2, 3, 64] {
        found.lanes = lanes;
        assert_eq!(facts(&found), damaged, "{lanes} lanes");
    }
}

#[test]
fn of_several_failures_the_oldest_segment_s_is_reported() {
    let disk = written();
    let mut found = inventory(&disk, Mode::Write).unwrap();
    let chain = Chain::below(&found, u64::MAX).unwrap();
    // Files that are shorter than they were when they were listed.
    let cut: Vec<u64> = chain.links[2..5].iter().map(|link| link.header.unique).collect();
    for unique in &cut {
        found.segments[unique].file.set_len(BLOCK).unwrap();
    }
    let told = |found: &Inventory<crate::MemFile>| {
        read_all(found, &chain.links, None).map(drop).unwrap_err().to_string()
    };
    let one = told(&found);
    found.lanes = 3;
    for _ in 0..20 {
        assert_eq!(told(&found), one);
    }
}
