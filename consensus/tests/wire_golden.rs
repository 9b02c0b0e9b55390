//! The bytes on the wire: golden encodings of the frame header, of every message and of the
//! hello, which must never change under one protocol version; round trips of arbitrary messages;
//! and decoders that refuse whatever else they are fed.
#![forbid(unsafe_code)]

use bytes::Bytes;
use holdfast_consensus::fault::Refusal;
use holdfast_consensus::handshake::{Hello, PROTOCOL_VERSION};
use holdfast_consensus::message::{
    CONFIRM_ANSWER_MAX, CONFIRM_QUESTION_MAX, Confirmation, Conflict, Message, Outcome,
    TransferState,
};
use holdfast_consensus::wire::{self, FRAME_BODY_MAX, FRAME_HEADER, Frame, FrameError, FrameKind};
use holdfast_consensus::{
    Body, ClusterId, Entries, Entry, Index, LogId, MemberId, Membership, SnapshotMeta, Term,
    Ticket, TransferId, codec,
};
use proptest::prelude::*;
use std::fmt::Write as _;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes every write");
        text
    })
}

fn membership() -> Membership {
    Membership {
        voters: vec![MemberId(1), MemberId(2)],
        outgoing: vec![MemberId(1)],
        learners: vec![MemberId(3)],
        names: [(MemberId(1), "n1".to_owned())].into(),
    }
}

fn meta() -> SnapshotMeta {
    SnapshotMeta {
        last: LogId::new(3, 100),
        time: 5,
        membership: membership(),
        membership_index: Index(9),
        group: 0,
        cluster: ClusterId(0xc1),
        epoch: 7,
        digest: 0xd1,
        bytes: 4096,
        newest_type: 3,
    }
}

fn entries() -> Entries {
    let entry = |index, body| Entry { id: LogId::new(2, index), time: 8, body };
    Entries::new(vec![
        entry(6, Body::Blank),
        entry(7, Body::Command(Bytes::from_static(b"\x01\x00topic"))),
        entry(8, Body::Membership(membership().into())),
    ])
    .expect("consecutive entries")
}

fn votes() -> Vec<(Message, &'static str)> {
    let (term, last) = (Term(2), LogId::new(1, 5));
    vec![
        (
            Message::Vote { term, pre: true, last, transfer: false },
            "1e000000000000000200000000000000010100000000000000050000000000000000",
        ),
        (
            Message::VoteReply { term, pre: false, asked: Term(3), granted: true },
            "1600000001000000020000000000000000030000000000000001",
        ),
        (
            Message::TimeoutNow { term, last, within: 250_000 },
            "240000000200000002000000000000000100000000000000050000000000000090d0030000000000",
        ),
    ]
}

fn appends() -> Vec<(Message, &'static str)> {
    let (term, round, prev) = (Term(2), 4, LogId::new(1, 5));
    let conflict = Conflict { prev, last: Index(4), term: Some(Term(1)), first_of_term: Index(2) };
    vec![
        (
            Message::Append {
                term,
                round,
                prev,
                commit: Index(3),
                commit_own_term: true,
                entries: entries(),
            },
            "c7000000030000000200000000000000040000000000000001000000000000000500000000000000\
03000000000000000103000000000000000200000000000000080000000000000000000000020000\
00000000000800000000000000010000000700000002000000000000000800000000000000020000\
00020000000000000001000000000000000200000000000000010000000000000001000000000000\
00010000000000000003000000000000000100000000000000010000000000000002000000000000\
006e310100746f706963",
        ),
        (
            Message::AppendReply { term, round, result: Ok(prev), promise: 0, low: false },
            "31000000040000000200000000000000040000000000000000000000010000000000000005000000\
00000000000000000000000000",
        ),
        (
            Message::AppendReply { term, round, result: Err(conflict), promise: 9, low: true },
            "4a000000040000000200000000000000040000000000000001000000010000000000000005000000\
0000000004000000000000000101000000000000000200000000000000090000000000000001",
        ),
    ]
}

fn snapshots() -> Vec<(Message, &'static str)> {
    let (term, transfer) = (Term(2), TransferId(6));
    let bytes = Bytes::from_static(b"chunk");
    vec![
        (
            Message::SnapshotOffer { term, transfer, meta: meta() },
            "c0000000050000000200000000000000060000000000000003000000000000006400000000000000\
05000000000000000200000000000000010000000000000002000000000000000100000000000000\
01000000000000000100000000000000030000000000000001000000000000000100000000000000\
02000000000000006e3109000000000000000000000000000000c100000000000000000000000000\
00000700000000000000d100000000000000000000000000000000100000000000000300",
        ),
        (
            Message::SnapshotChunk { term, transfer, offset: 4096, bytes },
            "1c000000060000000200000000000000060000000000000000100000000000006368756e6b",
        ),
        (
            Message::SnapshotAck { term, transfer, next: 4101, state: TransferState::Failed },
            "200000000700000002000000000000000600000000000000051000000000000002000000",
        ),
    ]
}

fn calls() -> Vec<(Message, &'static str)> {
    let (ticket, within) = (Ticket(11), 3_000_000);
    let command = Bytes::from_static(b"\xe8\x03put");
    let at = LogId::new(2, 9);
    let committed = Outcome::Committed { at, result: Bytes::from_static(b"ok") };
    let unknown = Outcome::Unknown(Refusal::NotLeader { hint: Some(MemberId(2)) });
    vec![
        (
            Message::Forward { ticket, term: Term(2), command, within },
            "1c000000080000000b000000000000000200000000000000c0c62d0000000000e803707574",
        ),
        (
            Message::ForwardReply { ticket, outcome: committed },
            "2a000000090000000b00000000000000000000000200000000000000090000000000000002000000\
000000006f6b",
        ),
        (
            Message::ForwardReply { ticket, outcome: unknown },
            "1d000000090000000b000000000000000300000000000000010200000000000000",
        ),
        (Message::ReadIndex { ticket, within }, "140000000a0000000b00000000000000c0c62d0000000000"),
        (
            Message::ReadIndexReply { ticket, result: Ok(Index(9)) },
            "180000000b0000000b00000000000000000000000900000000000000",
        ),
        (
            Message::ReadIndexReply { ticket, result: Err(Refusal::TooLarge) },
            "140000000b0000000b000000000000000100000006000000",
        ),
    ]
}

fn confirmations() -> Vec<(Message, &'static str)> {
    let (ticket, within) = (Ticket(11), 3_000_000);
    let answer = Bytes::from_static(b"gone");
    let said = Confirmation { leader: MemberId(1), term: Term(2), index: Index(9), answer };
    vec![
        (
            Message::Confirm { ticket, within, question: Bytes::from_static(b"what?") },
            "140000000c0000000b00000000000000c0c62d0000000000776861743f",
        ),
        (
            Message::ConfirmReply { ticket, result: Ok(said.clone()) },
            "280000000d0000000b0000000000000000000000010000000000000002000000000000000900000000000000676f6e65",
        ),
        (
            Message::ConfirmReply { ticket, result: Err(Refusal::NoAnswer) },
            "140000000d0000000b000000000000000100000007000000",
        ),
        (
            Message::ForwardReply { ticket, outcome: Outcome::Confirmed(said) },
            "34000000090000000b00000000000000040000000100000000000000020000000000000009000000000000000400000000000000676f6e65",
        ),
        (
            Message::ForwardReply { ticket, outcome: Outcome::NotCommitted(Refusal::NotVoter) },
            "14000000090000000b000000000000000200000008000000",
        ),
    ]
}

#[test]
fn questions_and_answers_beyond_their_bounds_neither_encode_nor_decode() {
    let (ticket, within) = (Ticket(11), 3_000_000);
    let message = |question: usize, answer: usize| {
        let said = Confirmation {
            leader: MemberId(1),
            term: Term(2),
            index: Index(9),
            answer: vec![7; answer].into(),
        };
        [
            Message::Confirm { ticket, within, question: vec![7; question].into() },
            Message::ConfirmReply { ticket, result: Ok(said) },
        ]
    };
    let refused = FrameError::Malformed("a question or an answer beyond its bound");
    for fits in message(CONFIRM_QUESTION_MAX, CONFIRM_ANSWER_MAX) {
        let body = wire::encode_message(&fits).expect("the bound itself is allowed");
        assert_eq!(wire::decode_message(&body), Ok(fits));
        let longer = Bytes::from([body.as_ref(), &[7]].concat());
        assert_eq!(wire::decode_message(&longer), Err(refused.clone()), "one byte more");
    }
    for over in message(CONFIRM_QUESTION_MAX + 1, CONFIRM_ANSWER_MAX + 1) {
        assert_eq!(wire::encode_message(&over), Err(refused.clone()));
    }
}

#[test]
fn every_message_has_its_golden_bytes() {
    let all = [votes(), appends(), snapshots(), calls(), confirmations()].concat();
    for (message, golden) in all {
        let body = wire::encode_message(&message).expect("a small message");
        assert_eq!(hex(&body), golden, "{message:?}");
        assert_eq!(wire::decode_message(&body), Ok(message));
    }
}

#[test]
fn the_hello_has_its_golden_bytes() {
    let hello = Hello {
        protocol: PROTOCOL_VERSION,
        name: "n1".into(),
        member: MemberId(1),
        cluster: ClusterId(0xc1),
        epoch: 7,
        group: 0,
        boot: 2,
        term: Term(3),
        durable: LogId::new(3, 100),
        commit: Index(99),
        forming: Some(vec!["n1".into(), "n2".into()]),
        membership: membership(),
        http: "http://127.0.0.1:7600".into(),
        build: "0.1.0".into(),
        newest_type: 3,
        volume: 0xd15c,
    };
    let bytes = codec::encode("hello", &hello).expect("a small value");
    assert_eq!(
        hex(&bytes),
        "010002000000000000006e310100000000000000c100000000000000000000000000000007000000\
00000000000000000000000002000000000000000300000000000000030000000000000064000000\
00000000630000000000000001020000000000000002000000000000006e3102000000000000006e\
32020000000000000001000000000000000200000000000000010000000000000001000000000000\
00010000000000000003000000000000000100000000000000010000000000000002000000000000\
006e311500000000000000687474703a2f2f3132372e302e302e313a373630300500000000000000\
302e312e3003005cd10000000000000000000000000000"
    );
    assert_eq!(codec::decode::<Hello>("hello", &bytes), Ok(hello));
}

fn frame(kind: FrameKind) -> Frame {
    Frame {
        kind,
        cluster: ClusterId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100),
        epoch: 7,
        group: 0,
        from: MemberId(1),
        to: MemberId(2),
    }
}

fn split(whole: &Bytes) -> (&[u8; FRAME_HEADER], &[u8]) {
    whole.split_first_chunk().expect("a frame holds its header")
}

#[test]
fn the_frame_header_has_its_golden_bytes() {
    for (kind, golden) in [
        (
            FrameKind::Hello,
            "4846667201000100000102030405060708090a0b0c0d0e0f07000000000000000000000000000000\
0100000000000000020000000000000004000000f3f08d59626f6479",
        ),
        (
            FrameKind::Message,
            "4846667201000200000102030405060708090a0b0c0d0e0f07000000000000000000000000000000\
01000000000000000200000000000000040000001ee5ff83626f6479",
        ),
    ] {
        let whole = wire::encode_frame(&frame(kind), b"body").expect("a small body");
        assert_eq!(hex(&whole), golden, "{kind:?}");
        let (header, body) = split(&whole);
        assert_eq!(wire::body_len(header), Ok(4));
        assert_eq!(wire::decode_frame(header, body), Ok(frame(kind)));
    }
}

#[test]
fn a_bad_header_is_refused_by_the_name_of_what_is_wrong() {
    let whole = wire::encode_frame(&frame(FrameKind::Message), b"body").expect("a small body");
    let (good, _) = split(&whole);
    let too_long = u32::try_from(FRAME_BODY_MAX + 1).expect("fits").to_le_bytes();
    let change = |at: usize, bytes: &[u8]| {
        let mut header = *good;
        header[at..at + bytes.len()].copy_from_slice(bytes);
        wire::body_len(&header)
    };
    assert_eq!(change(0, b"HTTP"), Err(FrameError::Magic(*b"HTTP")));
    assert_eq!(change(4, &[2, 0]), Err(FrameError::Version { theirs: 2 }));
    assert_eq!(change(6, &[3]), Err(FrameError::Kind(3)));
    assert!(matches!(change(7, &[1]), Err(FrameError::Malformed(_))));
    assert_eq!(change(56, &too_long), Err(FrameError::TooLong { len: FRAME_BODY_MAX + 1 }));
    assert_eq!(change(56, &[255; 4]), Err(FrameError::TooLong { len: u32::MAX as usize }));
}

#[test]
fn every_flipped_bit_of_a_frame_is_noticed() {
    let message = wire::encode_message(&appends()[0].0).expect("a small message");
    let whole = wire::encode_frame(&frame(FrameKind::Message), &message).expect("a small body");
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let bytes = Bytes::from(bytes);
        let (header, body) = split(&bytes);
        assert!(wire::decode_frame(header, body).is_err(), "bit {bit} was flipped unnoticed");
    }
}

#[test]
fn payloads_share_the_memory_of_the_frame() {
    let command = Bytes::from(vec![7; 4096]);
    let forward = Message::Forward { ticket: Ticket(1), term: Term(1), command, within: 1 };
    let body = wire::encode_message(&forward).expect("a small message");
    let Ok(Message::Forward { command, .. }) = wire::decode_message(&body) else {
        panic!("a forward came in");
    };
    assert!(body.as_ptr_range().contains(&command.as_ptr()), "the payload was copied");
}

#[test]
fn a_body_that_no_member_would_send_is_refused() {
    let good = wire::encode_message(&appends()[0].0).expect("a small message");
    for cut in 0..good.len() {
        assert!(wire::decode_message(&good.slice(..cut)).is_err(), "{cut} bytes decode");
    }
    let mut longer = good.to_vec();
    longer.push(0);
    assert!(wire::decode_message(&longer.into()).is_err(), "a byte behind the end");

    let swapped = [(MemberId(1), "n1".to_owned()), (MemberId(0), "n0".to_owned())];
    let names = codec::encode("names", &swapped.to_vec()).expect("a small value");
    let mut bytes = codec::encode("configuration", &Membership::default()).expect("a small value");
    bytes.truncate(24);
    bytes.extend_from_slice(&names);
    let refused = codec::decode::<Membership>("configuration", &bytes).expect_err("not sorted");
    assert!(refused.to_string().contains("names out of order"), "{refused}");

    let mut unsorted = meta();
    unsorted.membership.voters.reverse();
    let offer = Message::SnapshotOffer { term: Term(1), transfer: TransferId(1), meta: unsorted };
    let body = wire::encode_message(&offer).expect("encoding does not judge");
    assert_eq!(wire::decode_message(&body), Err(FrameError::Malformed("unsorted configuration")));
}

#[test]
fn entries_that_do_not_follow_their_predecessor_are_not_sent() {
    let append = |prev| Message::Append {
        term: Term(2),
        round: 1,
        prev,
        commit: Index(0),
        commit_own_term: false,
        entries: entries(),
    };
    assert!(wire::encode_message(&append(LogId::new(2, 5))).is_ok());
    for prev in [LogId::new(2, 4), LogId::new(2, 6), LogId::new(3, 5), LogId::new(0, u64::MAX)] {
        assert!(wire::encode_message(&append(prev)).is_err(), "{prev}");
    }
}

#[test]
fn a_claim_of_more_entries_than_a_message_may_hold_is_refused_at_the_claim() {
    let Message::Append { term, round, prev, commit, .. } = appends().remove(0).0 else {
        panic!("the first is an append");
    };
    let entries = Entries::empty();
    let empty = Message::Append { term, round, prev, commit, commit_own_term: true, entries };
    let mut body = wire::encode_message(&empty).expect("a heartbeat").to_vec();
    let count = body.len() - 8;
    body[count..].copy_from_slice(&(1u64 << 17).to_le_bytes());
    let refused = wire::decode_message(&body.into()).expect_err("there are no such entries");
    assert!(refused.to_string().contains("at most 65536 entries"), "{refused}");
}

fn any_log_id() -> impl Strategy<Value = LogId> {
    (any::<u32>(), any::<u32>()).prop_map(|(t, i)| LogId::new(t.into(), i.into()))
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..64).prop_map(Bytes::from)
}

fn any_membership() -> impl Strategy<Value = Membership> {
    let ids = || proptest::collection::btree_set(any::<u64>().prop_map(MemberId), 0..4);
    let names = proptest::collection::btree_map(any::<u64>().prop_map(MemberId), ".{0,9}", 0..4);
    (ids(), ids(), ids(), names).prop_map(|(voters, outgoing, learners, names)| Membership {
        voters: voters.into_iter().collect(),
        outgoing: outgoing.into_iter().collect(),
        learners: learners.into_iter().collect(),
        names,
    })
}

fn any_meta() -> impl Strategy<Value = SnapshotMeta> {
    let ids = (any::<u64>(), any::<u128>(), any::<u64>(), any::<u128>());
    let rest = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u16>());
    (any_log_id(), any_membership(), ids, rest).prop_map(|(last, membership, ids, rest)| {
        SnapshotMeta {
            last,
            time: rest.0,
            membership,
            membership_index: Index(rest.1),
            group: ids.0,
            cluster: ClusterId(ids.1),
            epoch: ids.2,
            digest: ids.3,
            bytes: rest.2,
            newest_type: rest.3,
        }
    })
}

fn any_refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        any::<Option<u64>>().prop_map(|hint| Refusal::NotLeader { hint: hint.map(MemberId) }),
        Just(Refusal::Busy),
        Just(Refusal::DiskFull),
        Just(Refusal::Deadline),
        Just(Refusal::Stopping),
        Just(Refusal::LostLeadership),
        Just(Refusal::TooLarge),
        Just(Refusal::NoAnswer),
        Just(Refusal::NotVoter),
    ]
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        (any_log_id(), any_bytes()).prop_map(|(at, result)| Outcome::Committed { at, result }),
        (any::<u64>(), any::<u64>())
            .prop_map(|(applied, age)| Outcome::Ready { applied: Index(applied), age }),
        any_refusal().prop_map(Outcome::NotCommitted),
        any_refusal().prop_map(Outcome::Unknown),
        any_confirmation().prop_map(Outcome::Confirmed),
    ]
}

fn any_confirmation() -> impl Strategy<Value = Confirmation> {
    (any::<u64>(), any::<u64>(), any::<u64>(), any_bytes()).prop_map(
        |(leader, term, index, answer)| Confirmation {
            leader: MemberId(leader),
            term: Term(term),
            index: Index(index),
            answer,
        },
    )
}

/// Entries behind `prev`: what follows is (step of the term, step of the time, body).
fn any_append() -> impl Strategy<Value = Message> {
    let body = prop_oneof![
        Just(Body::Blank),
        any_bytes().prop_map(Body::Command),
        any_membership().prop_map(|m| Body::Membership(m.into())),
    ];
    let steps = proptest::collection::vec((0u64..3, 0u64..1000, body), 0..6);
    (any_log_id(), any::<u64>(), any::<u64>(), any::<bool>(), steps).prop_map(
        |(prev, round, commit, commit_own_term, steps)| {
            let (mut id, mut time) = (prev, 0);
            let entries = steps.into_iter().map(|(terms, micros, body)| {
                id = LogId { term: Term(id.term.0 + terms), index: id.index.next() };
                time += micros;
                Entry { id, time, body }
            });
            let entries = Entries::new(entries.collect()).expect("built in order");
            let commit = Index(commit);
            Message::Append { term: Term(9), round, prev, commit, commit_own_term, entries }
        },
    )
}

fn any_reply() -> impl Strategy<Value = Message> {
    let conflict = (any_log_id(), any::<u64>(), any::<Option<u64>>(), any::<u64>()).prop_map(
        |(prev, last, term, first)| Conflict {
            prev,
            last: Index(last),
            term: term.map(Term),
            first_of_term: Index(first),
        },
    );
    let result = prop_oneof![any_log_id().prop_map(Ok), conflict.prop_map(Err)];
    (any::<u64>(), any::<u64>(), result, any::<u64>(), any::<bool>()).prop_map(
        |(term, round, result, promise, low)| Message::AppendReply {
            term: Term(term),
            round,
            result,
            promise,
            low,
        },
    )
}

fn any_snapshot_message() -> impl Strategy<Value = Message> {
    let ids = || (any::<u64>().prop_map(Term), any::<u64>().prop_map(TransferId), any::<u64>());
    let state = prop_oneof![
        Just(TransferState::Wanted),
        Just(TransferState::Done),
        Just(TransferState::Failed),
    ];
    prop_oneof![
        (ids(), any_meta()).prop_map(|((term, transfer, _), meta)| Message::SnapshotOffer {
            term,
            transfer,
            meta
        }),
        (ids(), any_bytes()).prop_map(|((term, transfer, offset), bytes)| {
            Message::SnapshotChunk { term, transfer, offset, bytes }
        }),
        (ids(), state).prop_map(|((term, transfer, next), state)| Message::SnapshotAck {
            term,
            transfer,
            next,
            state
        }),
    ]
}

fn any_message() -> impl Strategy<Value = Message> {
    let term = || any::<u64>().prop_map(Term);
    let ticket = || any::<u64>().prop_map(Ticket);
    prop_oneof![
        (term(), any::<bool>(), any_log_id(), any::<bool>())
            .prop_map(|(term, pre, last, transfer)| Message::Vote { term, pre, last, transfer }),
        (term(), any::<bool>(), term(), any::<bool>()).prop_map(|(term, pre, asked, granted)| {
            Message::VoteReply { term, pre, asked, granted }
        }),
        (term(), any_log_id(), any::<u64>()).prop_map(|(term, last, within)| Message::TimeoutNow {
            term,
            last,
            within
        }),
        any_append(),
        any_reply(),
        any_snapshot_message(),
        (ticket(), term(), any_bytes(), any::<u64>()).prop_map(
            |(ticket, term, command, within)| {
                Message::Forward { ticket, term, command, within }
            }
        ),
        (ticket(), any_outcome())
            .prop_map(|(ticket, outcome)| Message::ForwardReply { ticket, outcome }),
        (ticket(), any::<u64>()).prop_map(|(ticket, within)| Message::ReadIndex { ticket, within }),
        (ticket(), any::<u64>())
            .prop_map(|(ticket, at)| Message::ReadIndexReply { ticket, result: Ok(Index(at)) }),
        (ticket(), any_refusal())
            .prop_map(|(ticket, why)| Message::ReadIndexReply { ticket, result: Err(why) }),
        (ticket(), any::<u64>(), any_bytes()).prop_map(|(ticket, within, question)| {
            Message::Confirm { ticket, within, question }
        }),
        (ticket(), any_confirmation())
            .prop_map(|(ticket, said)| Message::ConfirmReply { ticket, result: Ok(said) }),
        (ticket(), any_refusal())
            .prop_map(|(ticket, why)| Message::ConfirmReply { ticket, result: Err(why) }),
    ]
}

proptest! {
    #[test]
    fn every_message_survives_the_wire(message in any_message()) {
        let body = wire::encode_message(&message).expect("small messages encode");
        let whole = wire::encode_frame(&frame(FrameKind::Message), &body).expect("small bodies");
        let (header, carried) = split(&whole);
        prop_assert_eq!(wire::decode_frame(header, carried), Ok(frame(FrameKind::Message)));
        prop_assert_eq!(wire::decode_message(&body), Ok(message));
    }

    #[test]
    fn arbitrary_bytes_decode_to_what_encodes_to_them_or_not_at_all(
        bytes in proptest::collection::vec(any::<u8>(), 0..512)
    ) {
        let body = Bytes::from(bytes);
        if let Ok(message) = wire::decode_message(&body) {
            prop_assert_eq!(wire::encode_message(&message), Ok(body));
        }
    }

    #[test]
    fn a_damaged_message_decodes_to_what_encodes_to_it_or_not_at_all(
        message in any_message(), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let mut bytes = wire::encode_message(&message).expect("small messages encode").to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let body = Bytes::from(bytes);
        if let Ok(message) = wire::decode_message(&body) {
            prop_assert_eq!(wire::encode_message(&message), Ok(body));
        }
    }
}
