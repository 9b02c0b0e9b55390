use super::*;
use crate::record::{Meta, RECORD_HEADER, encode_batch};
use holdfast_consensus::{Body, Entry, HardState, Index, MemberId, Membership, Term};

fn entry(term: u64, index: u64, payload: &'static [u8]) -> Item {
    let body = Body::Command(Bytes::from_static(payload));
    Item::entry(&Entry { id: LogId::new(term, index), time: 5, body }).unwrap()
}

fn items() -> Vec<Item> {
    let meta = Meta { boot: 3, ..Meta::default() };
    let voter = Membership::of_voters([(MemberId(7), "a".to_owned())]);
    let voter = Entry { id: LogId::new(2, 9), time: 6, body: Body::Membership(voter.into()) };
    vec![
        Item::meta(&meta).unwrap(),
        entry(2, 8, b"hello"),
        Item::entry(&voter).unwrap(),
        Item::Truncate { from: Index(9), needs: 1 },
        entry(3, 9, b""),
        Item::Watermark { at: Position::new(4, 8192), commit: Index(7) },
        Item::Repair(Box::new(entry(1, 2, b"old"))),
        Item::Index(Bytes::from_static(&[1; 21])),
        Item::Seal { last: LogId::new(3, 9) },
    ]
}

fn body(pending: &mut Pending) -> Bytes {
    match pending.take() {
        Some(Item::Index(bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_side_index_says_of_every_record_what_it_is_and_where() {
    let mut pending = Pending::default();
    assert_eq!(pending.size(), 0);
    pending.batch(Position::new(5, 8192), LogId::new(2, 7), &items());
    assert!(pending.size() > 0);
    let mut parts = Parts::new();
    decode(&body(&mut pending), &mut parts).unwrap();
    assert_eq!(pending.size(), 0);
    let part = &parts[&(5, 8192)];
    assert_eq!((part.prev, part.lines.len()), (LogId::new(2, 7), items().len()));
    let mut offset = 8192 + BATCH_RECORD as u64;
    for (line, item) in part.lines.iter().zip(items()) {
        assert_eq!((line.offset, line.header.size()), (offset, item.size()));
        offset += item.size();
        match (&item, &line.content) {
            (Item::Entry { id, crc, .. }, Content::Lost { crc: known }) => {
                assert_eq!((line.header.id, known), (*id, crc));
            }
            (Item::Repair(_), Content::Lost { .. }) => {
                assert_eq!(line.header.id, LogId::new(1, 2));
            }
            (Item::Meta(_), Content::Meta(meta)) => assert_eq!(meta.boot, 3),
            (Item::Truncate { .. }, Content::Truncate { needs: 1 })
            | (Item::Watermark { .. }, Content::Watermark { commit: Index(7), .. })
            | (Item::Index(_), Content::Index)
            | (Item::Seal { .. }, Content::Seal) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(part.end, offset);
}

#[test]
fn an_entry_costs_eight_bytes_in_the_side_index() {
    let size = |count: u64| {
        let items: Vec<Item> = (1..=count).map(|at| entry(1, at, b"x")).collect();
        let mut pending = Pending::default();
        pending.batch(Position::new(1, 8192), LogId::default(), &items);
        pending.size()
    };
    assert_eq!(size(256) - size(16), 240 * 8);
    // With its record's head and the place of the batch.
    assert!(size(1) <= 104, "{}", size(1));
}

#[test]
fn what_recovery_found_gives_the_same_side_index_as_what_was_written() {
    let items: Vec<Item> = items().into_iter().filter(|i| !matches!(i, Item::Index(_))).collect();
    let (at, prev) = (Position::new(5, 8192), LogId::new(2, 7));
    let mut written = Pending::default();
    written.batch(at, prev, &items);
    let hard = HardState { term: Term(2), voted_for: None };
    let head = crate::record::BatchHead { hard, durable: at, seq: 0, prev };
    let mut bytes = Vec::new();
    let place = crate::record::At { unique: 5, origin: 8192, chain: 0 };
    encode_batch(&mut bytes, place, &head, &items);
    let mut found = Vec::new();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let header = Header::parse(rest).unwrap();
        let content = Content::decode(&header, rest).unwrap();
        let offset = 8192 + (bytes.len() - rest.len()) as u64;
        found.push(Found { offset, header, content });
        rest = &rest[RECORD_HEADER + header.len.next_multiple_of(8)..];
    }
    let mut recovered = Pending::default();
    recovered.found(5, &found);
    assert_eq!(body(&mut recovered), body(&mut written));
}

#[test]
fn a_side_index_that_is_cut_short_or_altered_never_panics() {
    let mut pending = Pending::default();
    pending.batch(Position::new(5, 8192), LogId::new(2, 7), &items());
    let bytes = body(&mut pending);
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len], &mut Parts::new()).is_err() || len == 0, "length {len}");
        let mut bad = bytes.to_vec();
        bad[len] ^= 0x55;
        decode(&bad, &mut Parts::new()).ok();
    }
}

/// Found by fuzzing: places and indexes at the end of 64 bits overflowed.
#[test]
fn numbers_at_the_end_of_their_range_are_refused() {
    let mut pending = Pending::default();
    pending.batch(Position::new(5, 8192), LogId::new(2, 7), &items());
    let bytes = body(&mut pending);
    for field in [8..16, 24..32] {
        let mut bad = bytes.to_vec();
        bad[field].fill(0xFF);
        assert!(decode(&bad, &mut Parts::new()).is_err());
    }
}
