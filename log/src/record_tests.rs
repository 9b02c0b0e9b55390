use super::*;
use crate::disk::{Disk, DiskFile, Mode};
use crate::mem_disk::MemDisk;
use crate::segment::{
    BadHeader, Copied, Cursor, FIRST_BATCH, FORMAT, HEADER_LEN, Join, Owner, Previous,
    SegmentHeader, Step, Walk,
};
use holdfast_consensus::ClusterId;
use proptest::prelude::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn voter() -> Membership {
    Membership::of_voters([(MemberId(7), "a".to_owned())])
}

fn entry(term: u64, index: u64, time: Micros, body: Body) -> Item {
    Item::entry(&Entry { id: LogId::new(term, index), time, body }).unwrap()
}

fn head() -> BatchHead {
    BatchHead {
        hard: HardState { term: Term(3), voted_for: Some(MemberId(7)) },
        durable: Position { segment: 4, offset: 4096, seq: 76 },
        seq: 78,
        prev: LogId::new(3, 9),
    }
}

/// A batch at the first place of segment 5.
fn at(chain: u32) -> At {
    At { unique: 5, origin: FIRST_BATCH, chain }
}

/// One record of every kind and form.
fn every_kind() -> Vec<Item> {
    let label = SnapshotMeta {
        last: LogId::new(3, 9),
        time: 90,
        membership: voter(),
        membership_index: Index(1),
        group: 0,
        cluster: ClusterId(0x42),
        epoch: 6,
        digest: 0x99,
        bytes: 0,
        newest_type: 1002,
    };
    let peer = PeerMemory {
        member: MemberId(8),
        boot: 2,
        term: Term(3),
        last: LogId::new(3, 4),
        commit: Index(2),
        epoch: 6,
    };
    let meta = Meta {
        boot: 4,
        promise: 150_000,
        peers: vec![peer],
        commit: Index(9),
        time: 90,
        membership: Some((Index(1), voter())),
    };
    vec![
        Item::meta(&meta).unwrap(),
        entry(3, 10, 100, Body::Blank),
        entry(3, 11, 110, Body::Command(Bytes::from_static(b"hello"))),
        entry(3, 12, 120, Body::Membership(voter().into())),
        Item::Truncate { from: Index(11), needs: 2 },
        Item::Watermark { at: Position { segment: 5, offset: 8192, seq: 77 }, commit: Index(10) },
        Item::base(&label, true).unwrap(),
        Item::Seal { last: LogId::new(3, 12) },
        Item::Index(Bytes::from_static(&[7; 13])),
        Item::Repair(Box::new(entry(3, 8, 80, Body::Command(Bytes::from_static(b"hello"))))),
    ]
}

fn header() -> SegmentHeader {
    SegmentHeader {
        unique: 5,
        owner: Owner { member: MemberId(7), group: 0, cluster: ClusterId(0x42), epoch: 6 },
        first: Index(10),
        prev: LogId::new(3, 9),
        join: Join { unique: 4, end: 12288, chain: 0xAABB_CCDD },
        copied: Some(Copied {
            source: Position::new(4, 8192),
            end: 4444,
            last: Index(12),
            crc: 0x5566_7788,
        }),
        bytes: 65536,
        boot: 4,
        previous: Previous {
            first: Index(5),
            prev: LogId::new(2, 4),
            join: Join { unique: 3, end: 16384, chain: 0x0102_0304 },
        },
        reused: false,
    }
}

/// Written by an independent program from the description of the format.
const GOLDEN: &[(&str, &[&str])] = &[
    (
        "batch",
        &[
            "b701010048000000030000000000000000000000000000004433221130d5ae72040000000000000000100000",
            "000000004c000000000000000700000000000000b0030000000000004e000000000000000a000000e80cfafc",
            "03000000000000000900000000000000",
        ],
    ),
    (
        "meta",
        &[
            "b7060000a20000000000000000000000000000000000000030d5ae72a9b580850400000000000000f0490200",
            "0000000001000000000000000800000000000000020000000000000003000000000000000300000000000000",
            "04000000000000000200000000000000060000000000000009000000000000005a0000000000000001010000",
            "0000000000010000000000000007000000000000000000000000000000000000000000000001000000000000",
            "000700000000000000010000000000000061000000000000",
        ],
    ),
    (
        "entry",
        &[
            "b70200001000000003000000000000000a00000000000000a9b58085878f10044578c6120000000064000000",
            "00000000",
        ],
    ),
    (
        "entry",
        &[
            "b70200001500000003000000000000000b00000000000000878f1004ec6edd6b4a276f79010000006e000000",
            "0000000068656c6c6f000000",
        ],
    ),
    (
        "entry",
        &[
            "b70200004900000003000000000000000c00000000000000ec6edd6be52459e360e51f890200000078000000",
            "0000000001000000000000000700000000000000000000000000000000000000000000000100000000000000",
            "070000000000000001000000000000006100000000000000",
        ],
    ),
    (
        "truncate",
        &["b70300000800000000000000000000000b00000000000000e52459e356424df90200000000000000"],
    ),
    (
        "watermark",
        &[
            "b7040000200000000000000000000000000000000000000056424df9d3b32f3c050000000000000000200000",
            "000000004d000000000000000a00000000000000",
        ],
    ),
    (
        "base",
        &[
            "b70501009300000003000000000000000900000000000000d3b32f3c2f11de77030000000000000009000000",
            "000000005a000000000000000100000000000000070000000000000000000000000000000000000000000000",
            "0100000000000000070000000000000001000000000000006101000000000000000000000000000000420000",
            "0000000000000000000000000006000000000000009900000000000000000000000000000000000000000000",
            "00ea030000000000",
        ],
    ),
    ("seal", &["b70700000000000003000000000000000c000000000000002f11de770db3c474"]),
    (
        "index",
        &[
            "b70800000d000000000000000000000000000000000000000db3c474dcb86291070707070707070707070707",
            "07000000",
        ],
    ),
    (
        "repair",
        &[
            "b70900001500000003000000000000000800000000000000dcb86291974939f4d417f9b90100000050000000",
            "0000000068656c6c6f000000",
        ],
    ),
];

const GOLDEN_HEADER: &[&str] = &[
    "48464c4f4753454702000000e000000005000000000000000700000000000000000000000000000042000000",
    "00000000000000000000000006000000000000000a0000000000000003000000000000000900000000000000",
    "04000000000000000030000000000000040000000000000000200000000000005c110000000000000c000000",
    "00000000ddccbbaa887766550000010000000000040000000000000005000000000000000200000000000000",
    "0400000000000000030000000000000000400000000000000403020100000000000000000000000000000000",
    "e29a5a21",
];

#[test]
fn every_kind_of_record_has_these_bytes() {
    let mut bytes = Vec::new();
    let (offsets, chain) = encode_batch(&mut bytes, at(0x1122_3344), &head(), &every_kind());
    let mut starts = vec![0];
    starts.extend(offsets.iter().map(|o| usize::try_from(*o).unwrap()));
    starts.push(bytes.len());
    for (n, (name, golden)) in GOLDEN.iter().enumerate() {
        assert_eq!(hex(&bytes[starts[n]..starts[n + 1]]), golden.concat(), "{name}");
    }
    assert_eq!(GOLDEN.len() + 1, starts.len());
    assert_eq!(chain, 0xf439_4997);
}

#[test]
fn a_segment_header_has_these_bytes() {
    assert_eq!(hex(&header().encode()), GOLDEN_HEADER.concat());
}

#[test]
fn a_header_survives_a_round_trip_and_no_flipped_bit() {
    let bytes = header().encode();
    assert_eq!(SegmentHeader::decode(&bytes), Ok(header()));
    for bit in 0..HEADER_LEN * 8 {
        let mut bad = bytes;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(SegmentHeader::decode(&bad).is_err(), "bit {bit}");
    }
    assert_eq!(SegmentHeader::decode(&[0; HEADER_LEN]), Err(BadHeader::Zero));
}

#[test]
fn a_newer_format_is_told_apart_before_anything_else_is_believed() {
    let mut bytes = header().encode();
    bytes[8] += 1;
    assert_eq!(SegmentHeader::decode(&bytes), Err(BadHeader::Newer(FORMAT + 1)));
    bytes[8] = 1;
    assert_eq!(SegmentHeader::decode(&bytes), Err(BadHeader::Older(1)));
}

#[test]
fn a_record_at_another_place_of_its_own_segment_does_not_verify() {
    // A command that carries a piece of the log, or a write that went to another sector.
    let mut bytes = Vec::new();
    encode_batch(&mut bytes, at(9), &head(), &every_kind());
    let mut moved = vec![0; 4096];
    moved.extend_from_slice(&bytes);
    let file = file_with(&moved);
    let mut walk = Walk::new(&file, 5, cursor(9), file.len().unwrap());
    assert!(matches!(walk.step().unwrap(), Step::Blank(FIRST_BATCH)));
    assert!(!walk.resync().unwrap());
}

fn file_with(bytes: &[u8]) -> crate::MemFile {
    let disk = MemDisk::new();
    let file = disk.open("a", Mode::CreateNew).unwrap();
    file.write_at(FIRST_BATCH, bytes).unwrap();
    file.set_len(FIRST_BATCH + crate::position::align_up(bytes.len() as u64)).unwrap();
    file
}

fn cursor(chain: u32) -> Cursor {
    Cursor { offset: FIRST_BATCH, chain, batch_end: FIRST_BATCH }
}

#[test]
fn a_walk_returns_what_was_written() {
    let mut bytes = Vec::new();
    let (offsets, last) = encode_batch(&mut bytes, at(9), &head(), &every_kind());
    let file = file_with(&bytes);
    let mut walk = Walk::new(&file, 5, cursor(9), file.len().unwrap());
    let mut found = Vec::new();
    while let Step::Record(record) = walk.step().unwrap() {
        found.push(record);
    }
    assert_eq!(walk.cursor.chain, last);
    let places: Vec<u64> = found.iter().skip(1).map(|f| f.offset - FIRST_BATCH).collect();
    assert_eq!(places, offsets);
    let Content::Batch(batch) = &found[0].content else { panic!() };
    assert_eq!((batch.head, batch.len, batch.records), (head(), bytes.len() as u64, 10));
    assert_eq!(found[5].content, Content::Truncate { needs: 2 });
    assert_eq!(found[5].header.id.index, Index(11));
    let Content::Entry(facts) = &found[3].content else { panic!() };
    assert_eq!(facts.weight, 64 + 5);
    let Content::Entry(EntryFacts { membership: Some(m), .. }) = &found[4].content else {
        panic!()
    };
    assert_eq!(**m, voter());
    let Content::Repair(facts) = &found[10].content else { panic!() };
    assert_eq!((found[10].header.id, facts.weight), (LogId::new(3, 8), 64 + 5));
}

#[test]
fn records_of_another_segment_or_another_history_do_not_verify() {
    let mut bytes = Vec::new();
    encode_batch(&mut bytes, at(9), &head(), &every_kind());
    let file = file_with(&bytes);
    let mut other = Walk::new(&file, 6, cursor(9), file.len().unwrap());
    assert!(matches!(other.step().unwrap(), Step::Bad(FIRST_BATCH, _)));
    let mut unchained = Walk::new(&file, 5, cursor(8), file.len().unwrap());
    assert!(matches!(unchained.step().unwrap(), Step::Unchained(FIRST_BATCH)));
}

#[test]
fn an_entry_whose_own_checksum_does_not_fit_is_never_given_to_anybody() {
    let item = Item::entry(&Entry {
        id: LogId::new(3, 9),
        time: 7,
        body: Body::Command(Bytes::from_static(b"payload")),
    });
    let Ok(Item::Entry { id, time, tag, payload, crc, weight, membership }) = item else {
        panic!()
    };
    let crc = crc ^ 1;
    let wrong = Item::Entry { id, time, tag, payload, crc, weight, membership };
    let mut bytes = Vec::new();
    let (offsets, _) = encode_batch(&mut bytes, at(9), &head(), &[wrong]);
    // The record verifies: these are the bytes that were written.
    let file = file_with(&bytes);
    let mut walk = Walk::new(&file, 5, cursor(9), file.len().unwrap());
    assert!(matches!(walk.step().unwrap(), Step::Record(_)));
    assert!(matches!(walk.step().unwrap(), Step::Record(_)));
    let record = Bytes::from(bytes.split_off(usize::try_from(offsets[0]).unwrap()));
    assert_eq!(shared_entry(&record).unwrap_err(), "the entry's own CRC does not match");
}

#[test]
fn no_flipped_bit_of_a_batch_goes_unnoticed() {
    let mut bytes = Vec::new();
    encode_batch(&mut bytes, at(9), &head(), &every_kind());
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let file = file_with(&bad);
        let mut walk = Walk::new(&file, 5, cursor(9), file.len().unwrap());
        let mut count = 0;
        while let Step::Record(_) = walk.step().unwrap() {
            count += 1;
        }
        assert!(count < 11, "bit {bit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn entries_survive_a_round_trip(
        term in 1u64..u64::MAX,
        index in 1u64..u64::MAX,
        time: u64,
        unique: u64,
        chain: u32,
        payload in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..5000)),
    ) {
        let body = payload.map_or(Body::Blank, |p| Body::Command(p.into()));
        let entry = Entry { id: LogId::new(term, index), time, body };
        let item = Item::entry(&entry).unwrap();
        let mut bytes = Vec::new();
        let (offsets, _) = encode_batch(&mut bytes, At { unique, origin: 0, chain }, &head(), &[item]);
        let record = Bytes::from(bytes.split_off(usize::try_from(offsets[0]).unwrap()));
        prop_assert_eq!(shared_entry(&record), Ok(entry));
    }

    #[test]
    fn arbitrary_bytes_never_panic_a_walk(
        bytes in proptest::collection::vec(any::<u8>(), 0..9000),
        unique: u64,
    ) {
        let file = file_with(&bytes);
        let mut walk = Walk::new(&file, unique, cursor(0), file.len().unwrap());
        prop_assert!(!matches!(walk.step().unwrap(), Step::Record(_)));
        prop_assert!(!walk.resync().unwrap());
        // As if the checksum matched: the content alone must not panic either.
        if let Ok(header) = Header::parse(&bytes)
            && header.size() <= bytes.len() as u64
        {
            let decoded = Content::decode(&header, &bytes[..usize::try_from(header.size()).unwrap()]);
            prop_assert!(decoded.is_ok() || decoded.is_err());
        }
    }
}
