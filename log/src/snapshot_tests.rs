use super::*;
use crate::mem_disk::{MemDisk, Op};
use holdfast_consensus::{ClusterId, Index, LogId, MemberId, Membership};

fn label_of(index: u64) -> SnapshotMeta {
    SnapshotMeta {
        last: LogId::new(3, index),
        time: 90,
        membership: Membership::of_voters([(MemberId(7), "a".to_owned())]),
        membership_index: Index(1),
        group: 0,
        cluster: ClusterId(0x42),
        epoch: 6,
        digest: 0x99,
        bytes: 0,
        newest_type: 1002,
    }
}

fn publish(
    store: &SnapshotFiles<MemDisk>,
    index: u64,
    content: &[u8],
) -> Result<SnapshotMeta, StoreFault> {
    let mut writer = store.create(&label_of(index))?;
    writer.put_chunk(writer.offset(), content)?;
    store.publish(writer)
}

/// Written by an independent program from the description of the format.
const GOLDEN: &[&str] = &[
    "4846534e415053480100000093000000030000000000000009000000000000005a0000000000000001000000",
    "0000000007000000000000000000000000000000000000000000000001000000000000000700000000000000",
    "0100000000000000610100000000000000000000000000000042000000000000000000000000000000060000",
    "0000000000990000000000000000000000000000000000000000000000ea03bd21a70e070000004d23d6ae00",
    "00000000000000636f6e74656e7400000000f65b9cc8070000000000000001000000000000003375af61",
];

#[test]
fn a_snapshot_file_has_these_bytes() {
    let disk = MemDisk::new();
    let store = SnapshotFiles::open(disk.clone(), None).unwrap();
    let meta = publish(&store, 9, b"content").unwrap();
    assert_eq!(meta.bytes, 7);
    let path = "snap/00000000000000000009-00000000000000000003.snap";
    let bytes: String = disk.files()[path].iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(bytes, GOLDEN.concat());
}

#[test]
fn no_flipped_bit_of_a_snapshot_goes_unnoticed() {
    let disk = MemDisk::new();
    let store = SnapshotFiles::open(disk.clone(), None).unwrap();
    publish(&store, 9, b"some content").unwrap();
    let files = disk.files();
    let (path, bytes) = files.iter().next().unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut bad = files.clone();
        bad.get_mut(path).unwrap()[bit / 8] ^= 1 << (bit % 8);
        let store = SnapshotFiles::open(MemDisk::from_files(bad), None).unwrap();
        assert_eq!(store.newest(), None, "bit {bit}");
    }
}

#[test]
fn a_failed_step_of_publishing_publishes_nothing_and_is_not_resumed() {
    for op in [Op::Sync, Op::Rename, Op::Write] {
        let disk = MemDisk::new();
        let store = SnapshotFiles::open(disk.clone(), None).unwrap();
        let older = publish(&store, 5, b"older").unwrap();
        let mut writer = store.create(&label_of(9)).unwrap();
        writer.put_chunk(0, b"new").unwrap();
        disk.fail_next(op, ".partial");
        assert!(store.publish(writer).is_err(), "{op:?}");
        disk.clear_failures();
        assert_eq!(store.newest(), Some(older.clone()), "{op:?}");
        // A failed sync may have lost what still reads back (R12).
        assert_eq!(store.create(&label_of(9)).unwrap().offset(), 0, "{op:?}");
        assert_eq!(SnapshotFiles::open(disk, None).unwrap().newest(), Some(older), "{op:?}");
    }
}

#[test]
fn a_snapshot_that_fills_the_disk_is_refused_and_gives_its_space_back() {
    let disk = MemDisk::new();
    let store = SnapshotFiles::open(disk.clone(), None).unwrap();
    disk.set_budget(Some(2000));
    let mut writer = store.create(&label_of(9)).unwrap();
    let fault = writer.put_chunk(0, &[1; 4000]).unwrap_err();
    assert!(matches!(fault, StoreFault::Full { .. }), "{fault}");
    drop(writer);
    assert!(disk.files().is_empty());
    assert_eq!(store.newest(), None);
}

#[test]
fn an_interrupted_snapshot_goes_on_behind_its_last_chunk_that_verifies() {
    let disk = MemDisk::new();
    let store = SnapshotFiles::open(disk.clone(), None).unwrap();
    let mut writer = store.create(&label_of(9)).unwrap();
    writer.put_chunk(0, &[1; 100]).unwrap();
    writer.put_chunk(100, &[2; 100]).unwrap();
    let path = writer.path.clone();
    drop(writer);
    let mut files = disk.files();
    let partial = files.get_mut(&path).unwrap();
    let last = partial.len() - 1;
    partial[last] ^= 1;
    let store = SnapshotFiles::open(MemDisk::from_files(files), None).unwrap();
    let mut writer = store.create(&label_of(9)).unwrap();
    assert_eq!(writer.offset(), 100);
    writer.put_chunk(100, &[3; 50]).unwrap();
    let meta = store.publish(writer).unwrap();
    let mut reader = store.open(&meta, 100).unwrap();
    assert_eq!(reader.next_chunk().unwrap().unwrap(), Bytes::from(vec![3; 50]));
    assert_eq!(reader.next_chunk().unwrap(), None);
}
