//! The entry points of the fuzz targets for the parts of a log: one record, one file header, and
//! the tools that only look.

use crate::disk::Mode;
use crate::fuzz::{battered, sample_files};
use crate::identity::Identity;
use crate::inspect;
use crate::mem_disk::MemDisk;
use crate::record::{
    At, BatchHead, Content, Header, Item, Kind, RECORD_HEADER, encode_batch, record_crc,
    shared_entry,
};
use crate::segment::{HEADER_LEN, SegmentHeader};
use crate::side_index::{self, Parts};
use crate::snapshot_files;
use bytes::Bytes;
use holdfast_consensus::fault::LogFault;
use std::collections::BTreeMap;

/// The unique id under which records are checked here.
const UNIQUE: u64 = 1;

/// Decodes one record. An odd first byte lets the record's checksum be put right first, so that the
/// fuzzer comes past it; an even one leaves the bytes as they are.
///
/// # Panics
/// If what decodes does not survive being encoded and decoded again.
pub fn fuzz_record(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let mut bytes = rest.to_vec();
    let size = match Header::parse(&bytes) {
        Ok(header) => usize::try_from(header.size()).unwrap_or(usize::MAX),
        Err(_) => return,
    };
    if bytes.len() < size {
        return;
    }
    bytes.truncate(size);
    if mode % 2 == 1 {
        let crc = record_crc(UNIQUE, 0, &bytes);
        bytes[28..RECORD_HEADER].copy_from_slice(&crc.to_le_bytes());
    }
    let Ok(header) = Header::parse(&bytes) else { return };
    if !header.verifies(UNIQUE, 0, &bytes) {
        return;
    }
    let content = Content::decode(&header, &bytes);
    if header.kind == Kind::Index {
        let mut parts = Parts::new();
        side_index::decode(&bytes[RECORD_HEADER..RECORD_HEADER + header.len], &mut parts).ok();
    }
    if header.kind != Kind::Entry {
        return;
    }
    let entry = shared_entry(&Bytes::from(bytes));
    assert!(content.is_ok() || entry.is_err(), "what can be read was believed by the start");
    let Ok(entry) = entry else { return };
    assert!(entry.id == header.id, "an entry has the identity of its record");
    let Ok(item) = Item::entry(&entry) else { return };
    let (mut again, place) = (Vec::new(), At { unique: UNIQUE, origin: 0, chain: 0 });
    let (offsets, _) = encode_batch(&mut again, place, &BatchHead::default(), &[item]);
    let at = offsets.first().and_then(|at| usize::try_from(*at).ok()).unwrap_or(usize::MAX);
    let same = again.get(at..).map(|record| shared_entry(&Bytes::copy_from_slice(record)));
    assert!(same == Some(Ok(entry)), "what decodes is encoded and decoded to the same");
}

/// Decodes the header of a file: of a segment, an identity, or a whole snapshot file, as the first
/// byte says; from 128 on the checksum of a segment's header is put right first.
///
/// # Panics
/// If what decodes does not survive being encoded and decoded again.
pub fn fuzz_header(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    match mode % 3 {
        0 => {
            let mut bytes = [0; HEADER_LEN];
            let len = rest.len().min(HEADER_LEN);
            bytes[..len].copy_from_slice(&rest[..len]);
            if *mode >= 128 {
                let crc = crc32c::crc32c(&bytes[..HEADER_LEN - 4]);
                bytes[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
            }
            if let Ok(header) = SegmentHeader::decode(&bytes) {
                let again = SegmentHeader::decode(&header.encode());
                assert!(again == Ok(header), "a header survives a round trip");
            }
        }
        1 => {
            if let Ok(identity) = Identity::decode(rest) {
                let again = identity.encode().and_then(|bytes| Identity::decode(&bytes));
                assert!(again == Ok(identity), "an identity survives a round trip");
            }
        }
        _ => {
            let path = "snap/00000000000000000001-00000000000000000001.snap".to_owned();
            let files = BTreeMap::from([(path, rest.to_vec())]);
            let disk = MemDisk::from_files(files.clone());
            let found = snapshot_files::verify_all(&disk);
            assert!(found.is_ok_and(|all| all.len() == 1), "a bad snapshot file is no error");
            assert!(disk.files() == files, "looking changes nothing");
        }
    }
}

/// Looks at a log of arbitrary bytes with every tool that only looks; the input is that of
/// [`crate::fuzz_recover`].
///
/// # Panics
/// If a tool changes a byte, reports more records than there is room for, or calls a log healthy
/// that a start refuses.
pub fn fuzz_dump(data: &[u8]) {
    let Some(files) = battered(data) else { return };
    let room = files.values().map(Vec::len).sum::<usize>() / RECORD_HEADER + files.len();
    let disk = MemDisk::from_files(files.clone());
    if let Ok(records) = inspect::records(&disk) {
        assert!(records.take(2 * room + 2).count() <= 2 * room + 1, "a listing comes to an end");
    }
    let report = inspect::verify(&disk);
    let proved = inspect::proved(&disk);
    assert!(disk.files() == files, "looking changes nothing");
    if let Ok(report) = &report
        && report.fault.is_none()
    {
        let held = !proved.as_ref().is_ok_and(|found| found.held.is_none());
        let refused = !matches!(
            proved,
            Err(LogFault::Unopened { .. } | LogFault::Poisoned { .. } | LogFault::Full { .. })
        );
        assert!(!(held && refused), "{proved:?} after {report:?}");
    }
}

/// Real records, headers and files to start from, by name: for the targets `record` and `header`.
#[must_use]
pub fn sample_parts() -> [Vec<(String, Vec<u8>)>; 2] {
    let disk = MemDisk::from_files(sample_files());
    let (mut records, mut headers) = (Vec::new(), Vec::new());
    let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
    for info in inspect::records(&disk).into_iter().flatten().flatten() {
        let seen = kinds.entry(info.kind).or_default();
        *seen += 1;
        let name = format!("{}-{seen}", info.kind);
        let Some(bytes) = piece(&disk, &info.file, info.offset, info.len) else { continue };
        // The fuzzer need not carry the long payloads of the sample.
        if info.kind == "header" && *seen <= 2 {
            headers.push((name, [&[0], bytes.as_slice()].concat()));
        } else if info.ok && *seen <= 2 && bytes.len() <= 512 {
            records.push((name.clone(), [&[0], bytes.as_slice()].concat()));
            records.push((format!("{name}-open"), [&[1], bytes.as_slice()].concat()));
        }
    }
    [records, headers]
}

fn piece(disk: &MemDisk, path: &str, offset: u64, len: u64) -> Option<Vec<u8>> {
    use crate::disk::{Disk, DiskFile};
    let mut bytes = vec![0; usize::try_from(len.max(HEADER_LEN as u64)).ok()?];
    disk.open(path, Mode::Read).ok()?.read_at(offset, &mut bytes).ok()?;
    bytes.truncate(usize::try_from(if len == 0 { HEADER_LEN as u64 } else { len }).ok()?);
    Some(bytes)
}
