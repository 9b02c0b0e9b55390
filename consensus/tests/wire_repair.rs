//! The bytes of the repair of damaged entries (R15): golden encodings, bounds that are checked
//! before anything is allocated, and round trips.
#![forbid(unsafe_code)]

use bytes::Bytes;
use holdfast_consensus::message::{Message, REPAIR_WANTS_MAX};
use holdfast_consensus::wire::{self, FrameError};
use holdfast_consensus::{Body, Entry, Hole, Identity, Index, LogId, MemberId, Membership, Term};
use proptest::prelude::*;
use std::fmt::Write as _;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes every write");
        text
    })
}

fn hole(index: u64, term: Option<u64>) -> Hole {
    let known = term.map(|term| Identity { term: Term(term), crc: 0xc0de });
    Hole { index: Index(index), known }
}

fn entry(term: u64, index: u64, body: Body) -> Entry {
    Entry { id: LogId::new(term, index), time: 8, body }
}

fn command(index: u64) -> Entry {
    entry(2, index, Body::Command(Bytes::from_static(b"\x01\x00topic")))
}

#[test]
fn both_messages_have_their_golden_bytes() {
    let voters = Membership::of_voters([(MemberId(1), "n1".into())]);
    let all = [
        (
            Message::Repair { ask: 7, wants: vec![hole(5, Some(2)), hole(9, None)] },
            "320000000e0000000700000000000000020000000000000005000000000000000102000000000000\
00dec00000090000000000000000",
        ),
        (
            Message::RepairReply {
                ask: 7,
                entries: vec![
                    command(5),
                    entry(2, 9, Body::Blank),
                    entry(3, 11, Body::Membership(voters.into())),
                ],
            },
            "a60000000f0000000700000000000000030000000000000002000000000000000500000000000000\
08000000000000000100000007000000020000000000000009000000000000000800000000000000\
0000000003000000000000000b000000000000000800000000000000020000000100000000000000\
01000000000000000000000000000000000000000000000001000000000000000100000000000000\
02000000000000006e310100746f706963",
        ),
        (
            Message::RepairReply { ask: 7, entries: vec![] },
            "140000000f00000007000000000000000000000000000000",
        ),
    ];
    for (message, golden) in all {
        let body = wire::encode_message(&message).expect("a small message");
        assert_eq!(hex(&body), golden, "{message:?}");
        assert_eq!(wire::decode_message(&body), Ok(message));
    }
}

/// A message body with this number in the place of a list's length.
fn claims(message: &Message, at: usize, count: u64) -> Bytes {
    let mut bytes = wire::encode_message(message).expect("a small message").to_vec();
    bytes[at..at + 8].copy_from_slice(&count.to_le_bytes());
    bytes.into()
}

#[test]
fn lists_beyond_their_bounds_neither_encode_nor_decode() {
    let most = REPAIR_WANTS_MAX as u64;
    let wants = |count: u64| (1..=count).map(|index| hole(index, None)).collect();
    let given = |count: u64| (1..=count).map(command).collect();
    let fits = [
        Message::Repair { ask: 1, wants: wants(most) },
        Message::RepairReply { ask: 1, entries: given(most) },
    ];
    for message in fits {
        let body = wire::encode_message(&message).expect("the bound itself is allowed");
        assert_eq!(wire::decode_message(&body), Ok(message));
    }
    let over = [
        Message::Repair { ask: 1, wants: wants(most + 1) },
        Message::Repair { ask: 1, wants: vec![] },
        Message::Repair { ask: 1, wants: vec![hole(4, None), hole(4, None)] },
        Message::RepairReply { ask: 1, entries: given(most + 1) },
        Message::RepairReply { ask: 1, entries: vec![command(4), command(3)] },
        Message::RepairReply { ask: 1, entries: vec![entry(3, 4, Body::Blank), command(5)] },
    ];
    for message in over {
        let refused = wire::encode_message(&message);
        assert!(matches!(refused, Err(FrameError::Malformed(_))), "{message:?}: {refused:?}");
    }
    // The length stands behind the head's length (4), the variant (4) and the number (8).
    for count in [most + 1, u64::MAX] {
        for message in [
            Message::Repair { ask: 1, wants: wants(3) },
            Message::RepairReply { ask: 1, entries: given(3) },
        ] {
            let decoded = wire::decode_message(&claims(&message, 16, count));
            assert!(matches!(decoded, Err(FrameError::Codec(_))), "{decoded:?}");
        }
    }
}

fn any_entries() -> impl Strategy<Value = Vec<Entry>> {
    let body = prop_oneof![
        Just(Body::Blank),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(|b| Body::Command(b.into())),
    ];
    proptest::collection::vec((1u64..5, 0u64..3, any::<u64>(), body), 0..6).prop_map(|steps| {
        let mut id = LogId::new(1, 0);
        let entry = |(index, term, time, body): (u64, u64, u64, Body)| {
            id = LogId::new(id.term.0 + term, id.index.0 + index);
            Entry { id, time, body }
        };
        steps.into_iter().map(entry).collect()
    })
}

fn any_wants() -> impl Strategy<Value = Vec<Hole>> {
    let known = proptest::option::of((any::<u64>(), any::<u32>()));
    proptest::collection::btree_map(any::<u64>(), known, 1..8).prop_map(|wants| {
        let hole = |(index, known): (u64, Option<(u64, u32)>)| Hole {
            index: Index(index),
            known: known.map(|(term, crc)| Identity { term: Term(term), crc }),
        };
        wants.into_iter().map(hole).collect()
    })
}

proptest! {
    #[test]
    fn both_messages_survive_the_wire(
        ask in any::<u64>(), wants in any_wants(), entries in any_entries()
    ) {
        for message in [Message::Repair { ask, wants }, Message::RepairReply { ask, entries }] {
            let body = wire::encode_message(&message).expect("small messages encode");
            prop_assert_eq!(wire::decode_message(&body), Ok(message));
        }
    }

    #[test]
    fn a_damaged_message_decodes_to_what_encodes_to_it_or_not_at_all(
        entries in any_entries(), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let message = Message::RepairReply { ask: 1, entries };
        let mut bytes = wire::encode_message(&message).expect("small messages encode").to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let body = Bytes::from(bytes);
        if let Ok(message) = wire::decode_message(&body) {
            prop_assert_eq!(wire::encode_message(&message), Ok(body));
        }
    }
}
