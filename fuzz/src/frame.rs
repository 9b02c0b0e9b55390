//! Target `frame`: the bytes of a peer, who may be anybody.
//!
//! The input is a frame as it would come from a socket: a header and what follows. Nothing may
//! panic, and whatever decodes must encode to the very same bytes: one value, one encoding.

use bytes::Bytes;
use holdfast_consensus::codec;
use holdfast_consensus::entries::Entries;
use holdfast_consensus::fault::Refusal;
use holdfast_consensus::handshake::{Hello, PROTOCOL_VERSION};
use holdfast_consensus::message::{Confirmation, Message, Outcome, TransferState};
use holdfast_consensus::wire::{self, FRAME_HEADER, Frame, FrameKind};
use holdfast_consensus::{
    Body, ClusterId, Entry, Hole, Identity, Index, LogId, MemberId, Membership, SnapshotMeta, Term,
    Ticket, TransferId,
};

/// Decodes the input as a frame, and its body as what the header says it is.
///
/// # Panics
/// If something decodes and does not encode to the bytes it came from.
pub fn check(data: &[u8]) {
    let Some((header, rest)) = data.split_first_chunk::<FRAME_HEADER>() else { return };
    let Ok(len) = wire::body_len(header) else { return };
    // A reader would wait for the rest of the body; here there is no more.
    let Some(body) = rest.get(..len) else { return };
    let body = Bytes::copy_from_slice(body);
    if let Ok(frame) = wire::decode_frame(header, &body) {
        let again = wire::encode_frame(&frame, &body).expect("it fitted when it came");
        assert_eq!(again, data[..FRAME_HEADER + len], "the frame encodes differently");
    }
    // The body is judged whatever the checksum says: the fuzzer cannot forge one, a peer can.
    if header[6] == 1 {
        if let Ok(hello) = codec::decode::<Hello>("hello", &body) {
            let again = codec::encode("hello", &hello).expect("it fitted when it came");
            assert_eq!(again, body, "the hello encodes differently");
        }
    } else if let Ok(message) = wire::decode_message(&body) {
        let again = wire::encode_message(&message).expect("it fitted when it came");
        assert_eq!(again, body, "the message encodes differently");
    }
}

/// Real encodings to start from, by file name.
///
/// # Panics
/// Never: the values are small and well-formed.
#[must_use]
pub fn seeds() -> Vec<(String, Vec<u8>)> {
    let frame = |kind| Frame {
        kind,
        cluster: ClusterId(0xc1),
        epoch: 7,
        group: 0,
        from: MemberId(1),
        to: MemberId(2),
    };
    let hello = codec::encode("hello", &hello()).expect("a small value");
    let hello = wire::encode_frame(&frame(FrameKind::Hello), &hello).expect("a small body");
    let mut seeds = vec![("hello".to_owned(), hello.to_vec())];
    for (name, message) in messages() {
        let body = wire::encode_message(&message).expect("a small message");
        let whole = wire::encode_frame(&frame(FrameKind::Message), &body).expect("a small body");
        seeds.push((name.to_owned(), whole.to_vec()));
    }
    seeds
}

fn membership() -> Membership {
    Membership::of_voters((1..=3).map(|n| (MemberId(n), format!("n{n}"))))
}

fn hello() -> Hello {
    Hello {
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
        volume: 9,
    }
}

fn append() -> Message {
    let entry = |index, body| Entry { id: LogId::new(2, index), time: 8, body };
    let entries = Entries::new(vec![
        entry(6, Body::Blank),
        entry(7, Body::Command(Bytes::from_static(b"\x01\x00topic"))),
        entry(8, Body::Membership(membership().into())),
    ]);
    Message::Append {
        term: Term(2),
        round: 4,
        prev: LogId::new(1, 5),
        commit: Index(3),
        commit_own_term: true,
        entries: entries.expect("consecutive entries"),
    }
}

fn hole() -> Hole {
    let known = Identity { term: Term(2), crc: 0xc0de };
    Hole { index: Index(6), known: Some(known) }
}

fn given() -> Vec<Entry> {
    let entry = |index, body| Entry { id: LogId::new(2, index), time: 8, body };
    vec![entry(6, Body::Blank), entry(9, Body::Command(Bytes::from_static(b"\x01\x00topic")))]
}

fn confirmation() -> Confirmation {
    let answer = Bytes::from_static(b"gone");
    Confirmation { leader: MemberId(1), term: Term(2), index: Index(9), answer }
}

fn messages() -> Vec<(&'static str, Message)> {
    let (term, last) = (Term(2), LogId::new(1, 5));
    let (ticket, within, transfer) = (Ticket(11), 3_000_000, TransferId(6));
    let meta = SnapshotMeta { last, membership: membership(), bytes: 4096, ..Default::default() };
    let outcome = Outcome::Committed { at: last, result: Bytes::from_static(b"ok") };
    vec![
        ("vote", Message::Vote { term, pre: true, last, transfer: false }),
        ("append", append()),
        (
            "append_reply",
            Message::AppendReply { term, round: 4, result: Ok(last), promise: 0, low: false },
        ),
        ("snapshot_offer", Message::SnapshotOffer { term, transfer, meta }),
        (
            "snapshot_chunk",
            Message::SnapshotChunk {
                term,
                transfer,
                offset: 0,
                bytes: Bytes::from_static(b"chunk"),
            },
        ),
        (
            "snapshot_ack",
            Message::SnapshotAck { term, transfer, next: 5, state: TransferState::Wanted },
        ),
        (
            "forward",
            Message::Forward {
                ticket,
                term: Term(2),
                command: Bytes::from_static(b"\x01\x00x"),
                within,
            },
        ),
        ("forward_reply", Message::ForwardReply { ticket, outcome }),
        ("read_index", Message::ReadIndex { ticket, within }),
        ("read_index_reply", Message::ReadIndexReply { ticket, result: Ok(Index(9)) }),
        ("confirm", Message::Confirm { ticket, within, question: Bytes::from_static(b"gone?") }),
        ("confirm_reply", Message::ConfirmReply { ticket, result: Ok(confirmation()) }),
        ("repair", Message::Repair { ask: 7, wants: vec![hole()] }),
        ("repair_reply", Message::RepairReply { ask: 7, entries: given() }),
        ("confirm_unknown", Message::ConfirmReply { ticket, result: Err(Refusal::NoAnswer) }),
    ]
}
