//! Frames and the message codec. `net` moves these bytes; the simulator round-trips them.
//!
//! A frame is a fixed header and a body. The header carries everything that the message does not
//! repeat: version, cluster id, recovery epoch, group, member ids. The length is checked against
//! [`FRAME_BODY_MAX`] before anything is allocated, and header and body are covered by CRC-32C.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `HFfr` |
//! | 4 | 2 | frame version |
//! | 6 | 1 | kind |
//! | 7 | 1 | zero |
//! | 8 | 16 | cluster id |
//! | 24 | 8 | recovery epoch |
//! | 32 | 8 | group |
//! | 40 | 8 | sender |
//! | 48 | 8 | receiver |
//! | 56 | 4 | body length |
//! | 60 | 4 | CRC-32C of bytes 0..60 and of the body |
//!
//! All numbers are little-endian.

mod repair;

use crate::codec::{self, CodecError};
use crate::damage::Hole;
use crate::entries::Entries;
use crate::fault::Refusal;
use crate::message::{
    CONFIRM_ANSWER_MAX, CONFIRM_QUESTION_MAX, Confirmation, Conflict, Message, Outcome,
    TransferState,
};
use crate::types::{
    Body, ClusterId, Entry, Index, LogId, MemberId, Membership, Micros, SnapshotMeta, Term, Ticket,
    TransferId,
};
use bytes::{BufMut, Bytes, BytesMut};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use thiserror::Error;

/// Length of a frame header in bytes.
pub const FRAME_HEADER: usize = 64;
/// Version of the frame format.
pub const FRAME_VERSION: u16 = 1;
/// Largest frame body in bytes.
pub const FRAME_BODY_MAX: usize = 16 << 20;
/// Most entries in one message.
pub const ENTRIES_MAX: usize = 1 << 16;

const MAGIC: [u8; 4] = *b"HFfr";

/// What a frame carries.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A handshake value (encoded by [`codec`]).
    Hello,
    /// A [`Message`].
    Message,
}

impl FrameKind {
    const fn byte(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::Message => 2,
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Hello),
            2 => Some(Self::Message),
            _ => None,
        }
    }
}

/// The header of a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the body is.
    pub kind: FrameKind,
    /// Cluster of the sender; zero while it has none.
    pub cluster: ClusterId,
    /// Recovery epoch of the sender.
    pub epoch: u64,
    /// Raft group.
    pub group: u64,
    /// Sender.
    pub from: MemberId,
    /// Receiver; zero in a first hello, when it is not known yet.
    pub to: MemberId,
}

/// A frame that cannot be accepted. The connection it came on must be closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Not a Holdfast peer.
    #[error("not a Holdfast frame (magic {0:02x?}): is the address a peer port?")]
    Magic([u8; 4]),
    /// Another frame version.
    #[error("frame version {theirs}, this build speaks {FRAME_VERSION}: upgrade the older node")]
    Version {
        /// The version found.
        theirs: u16,
    },
    /// An unknown kind.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// Longer than allowed.
    #[error("frame body of {len} bytes exceeds {FRAME_BODY_MAX}")]
    TooLong {
        /// The length it claims.
        len: usize,
    },
    /// The checksum does not match.
    #[error("frame checksum {found:08x}, expected {expected:08x}")]
    Checksum {
        /// Computed.
        found: u32,
        /// In the header.
        expected: u32,
    },
    /// The body does not decode.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The body decodes to something that no member would send.
    #[error("malformed message: {0}")]
    Malformed(&'static str),
}

/// Length of the body that a header announces, checked before anything is allocated.
///
/// # Errors
/// [`FrameError`] if the header is not one of ours.
pub fn body_len(header: &[u8; FRAME_HEADER]) -> Result<usize, FrameError> {
    let magic = [header[0], header[1], header[2], header[3]];
    if magic != MAGIC {
        return Err(FrameError::Magic(magic));
    }
    let theirs = u16::from_le_bytes([header[4], header[5]]);
    if theirs != FRAME_VERSION {
        return Err(FrameError::Version { theirs });
    }
    if FrameKind::from_byte(header[6]).is_none() {
        return Err(FrameError::Kind(header[6]));
    }
    if header[7] != 0 {
        return Err(FrameError::Malformed("reserved byte of the header is not zero"));
    }
    let len = le_u32(header, 56) as usize;
    if len > FRAME_BODY_MAX { Err(FrameError::TooLong { len }) } else { Ok(len) }
}

fn le_u32(bytes: &[u8; FRAME_HEADER], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn le_u64(bytes: &[u8; FRAME_HEADER], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// A whole frame around a body.
///
/// # Errors
/// [`FrameError::TooLong`].
pub fn encode_frame(frame: &Frame, body: &[u8]) -> Result<Bytes, FrameError> {
    if body.len() > FRAME_BODY_MAX {
        return Err(FrameError::TooLong { len: body.len() });
    }
    let len = u32::try_from(body.len()).map_err(|_| FrameError::TooLong { len: body.len() })?;
    let mut out = BytesMut::with_capacity(FRAME_HEADER + body.len());
    out.put_slice(&MAGIC);
    out.put_u16_le(FRAME_VERSION);
    out.put_u8(frame.kind.byte());
    out.put_u8(0);
    out.put_u128_le(frame.cluster.0);
    out.put_u64_le(frame.epoch);
    out.put_u64_le(frame.group);
    out.put_u64_le(frame.from.0);
    out.put_u64_le(frame.to.0);
    out.put_u32_le(len);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&out), body);
    out.put_u32_le(crc);
    out.put_slice(body);
    Ok(out.freeze())
}

/// Checks a header and its body, whose length must be what [`body_len`] said.
///
/// # Errors
/// [`FrameError`].
pub fn decode_frame(header: &[u8; FRAME_HEADER], body: &[u8]) -> Result<Frame, FrameError> {
    if body_len(header)? != body.len() {
        return Err(FrameError::Malformed("body length differs from the header"));
    }
    let expected = le_u32(header, 60);
    let found = crc32c::crc32c_append(crc32c::crc32c(&header[..60]), body);
    if found != expected {
        return Err(FrameError::Checksum { found, expected });
    }
    let kind = FrameKind::from_byte(header[6]).ok_or(FrameError::Kind(header[6]))?;
    Ok(Frame {
        kind,
        cluster: ClusterId(u128::from(le_u64(header, 16)) << 64 | u128::from(le_u64(header, 8))),
        epoch: le_u64(header, 24),
        group: le_u64(header, 32),
        from: MemberId(le_u64(header, 40)),
        to: MemberId(le_u64(header, 48)),
    })
}

/// The part of a message that goes through bincode; entry bodies and chunks follow it raw, so
/// that they can be sliced out of the frame without a copy.
#[derive(Debug, Serialize, Deserialize)]
enum Head {
    Vote {
        term: Term,
        pre: bool,
        last: LogId,
        transfer: bool,
    },
    VoteReply {
        term: Term,
        pre: bool,
        asked: Term,
        granted: bool,
    },
    TimeoutNow {
        term: Term,
        last: LogId,
        within: Micros,
    },
    Append {
        term: Term,
        round: u64,
        prev: LogId,
        commit: Index,
        own: bool,
        #[serde(deserialize_with = "bounded_entries")]
        entries: Vec<EntryHead>,
    },
    AppendReply {
        term: Term,
        round: u64,
        result: Result<LogId, Conflict>,
        promise: Micros,
        low: bool,
    },
    SnapshotOffer {
        term: Term,
        transfer: TransferId,
        meta: SnapshotMeta,
    },
    SnapshotChunk {
        term: Term,
        transfer: TransferId,
        offset: u64,
    },
    SnapshotAck {
        term: Term,
        transfer: TransferId,
        next: u64,
        state: TransferState,
    },
    Forward {
        ticket: Ticket,
        term: Term,
        within: Micros,
    },
    ForwardReply {
        ticket: Ticket,
        outcome: Outcome,
    },
    ReadIndex {
        ticket: Ticket,
        within: Micros,
    },
    ReadIndexReply {
        ticket: Ticket,
        result: Result<Index, Refusal>,
    },
    Confirm {
        ticket: Ticket,
        within: Micros,
    },
    ConfirmReply {
        ticket: Ticket,
        result: Result<ConfirmationHead, Refusal>,
    },
    Repair {
        ask: u64,
        #[serde(deserialize_with = "repair::bounded")]
        wants: Vec<Hole>,
    },
    RepairReply {
        ask: u64,
        #[serde(deserialize_with = "repair::bounded")]
        entries: Vec<repair::GivenHead>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct ConfirmationHead {
    leader: MemberId,
    term: Term,
    index: Index,
}

#[derive(Debug, Serialize, Deserialize)]
struct EntryHead {
    term: Term,
    time: Micros,
    body: BodyHead,
}

#[derive(Debug, Serialize, Deserialize)]
enum BodyHead {
    Blank,
    Command { len: u32 },
    Membership(Membership),
}

/// Reads entry heads and stops at [`ENTRIES_MAX`]: a head takes several times its encoded size in
/// memory, so counting them afterwards would be too late.
fn bounded_entries<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<EntryHead>, D::Error> {
    struct Bounded;

    impl<'de> Visitor<'de> for Bounded {
        type Value = Vec<EntryHead>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {ENTRIES_MAX} entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            if let Some(claimed) = seq.size_hint().filter(|n| *n > ENTRIES_MAX) {
                return Err(A::Error::invalid_length(claimed, &self));
            }
            let mut heads = Vec::new();
            while let Some(head) = seq.next_element()? {
                if heads.len() == ENTRIES_MAX {
                    return Err(A::Error::invalid_length(ENTRIES_MAX + 1, &self));
                }
                heads.push(head);
            }
            Ok(heads)
        }
    }

    from.deserialize_seq(Bounded)
}

fn entry_head(entry: &Entry) -> Result<EntryHead, FrameError> {
    Ok(EntryHead { term: entry.id.term, time: entry.time, body: body_head(&entry.body)? })
}

fn body_head(body: &Body) -> Result<BodyHead, FrameError> {
    Ok(match body {
        Body::Blank => BodyHead::Blank,
        Body::Membership(m) => BodyHead::Membership(m.as_ref().clone()),
        Body::Command(bytes) => BodyHead::Command {
            len: u32::try_from(bytes.len()).map_err(|_| FrameError::Malformed("command length"))?,
        },
    })
}

/// The body behind its head; a command is cut off the front of `rest`.
fn body_from(head: BodyHead, rest: &mut Bytes) -> Result<Body, FrameError> {
    Ok(match head {
        BodyHead::Blank => Body::Blank,
        BodyHead::Membership(m) if m.is_well_formed() => Body::Membership(m.into()),
        BodyHead::Membership(_) => return Err(FrameError::Malformed("unsorted configuration")),
        BodyHead::Command { len } if len as usize <= rest.len() => {
            Body::Command(rest.split_to(len as usize))
        }
        BodyHead::Command { .. } => return Err(FrameError::Malformed("command beyond the end")),
    })
}

/// Encodes a message: length of the head, head, raw payloads.
///
/// # Errors
/// [`FrameError`] if it exceeds the limits.
pub fn encode_message(message: &Message) -> Result<Bytes, FrameError> {
    let mut payloads: Vec<&Bytes> = Vec::new();
    let head = match message.clone() {
        Message::Vote { term, pre, last, transfer } => Head::Vote { term, pre, last, transfer },
        Message::VoteReply { term, pre, asked, granted } => {
            Head::VoteReply { term, pre, asked, granted }
        }
        Message::TimeoutNow { term, last, within } => Head::TimeoutNow { term, last, within },
        Message::AppendReply { term, round, result, promise, low } => {
            Head::AppendReply { term, round, result, promise, low }
        }
        Message::SnapshotOffer { term, transfer, meta } => {
            Head::SnapshotOffer { term, transfer, meta }
        }
        Message::SnapshotChunk { term, transfer, offset, .. } => {
            Head::SnapshotChunk { term, transfer, offset }
        }
        Message::SnapshotAck { term, transfer, next, state } => {
            Head::SnapshotAck { term, transfer, next, state }
        }
        Message::Forward { ticket, term, within, .. } => Head::Forward { ticket, term, within },
        Message::ForwardReply { ticket, outcome } => Head::ForwardReply { ticket, outcome },
        Message::ReadIndex { ticket, within } => Head::ReadIndex { ticket, within },
        Message::ReadIndexReply { ticket, result } => Head::ReadIndexReply { ticket, result },
        Message::Confirm { ticket, within, ref question } => {
            bounded(question, CONFIRM_QUESTION_MAX)?;
            Head::Confirm { ticket, within }
        }
        Message::ConfirmReply { ticket, ref result } => confirm_reply_head(ticket, result)?,
        Message::Repair { ask, wants } => Head::Repair { ask, wants: repair::checked(wants)? },
        Message::RepairReply { ask, ref entries } => {
            Head::RepairReply { ask, entries: repair::heads(entries)? }
        }
        Message::Append { term, round, prev, commit, commit_own_term, entries } => {
            let follows = entries.first().is_none_or(|first| {
                first.term >= prev.term && Some(first.index.0) == prev.index.0.checked_add(1)
            });
            if !follows || entries.len() > ENTRIES_MAX {
                return Err(FrameError::Malformed("entries do not follow, or are too many"));
            }
            let entries = entries.iter().map(entry_head).collect::<Result<_, _>>()?;
            Head::Append { term, round, prev, commit, own: commit_own_term, entries }
        }
    };
    match message {
        Message::Append { entries, .. } => payloads.extend(entries.iter().filter_map(payload)),
        Message::RepairReply { entries, .. } => payloads.extend(entries.iter().filter_map(payload)),
        Message::SnapshotChunk { bytes, .. } => payloads.push(bytes),
        Message::Forward { command, .. } => payloads.push(command),
        Message::Confirm { question, .. } => payloads.push(question),
        Message::ConfirmReply { result: Ok(confirmation), .. } => {
            payloads.push(&confirmation.answer);
        }
        _ => {}
    }
    let head = codec::encode("message head", &head)?;
    let total = 4 + head.len() + payloads.iter().map(|p| p.len()).sum::<usize>();
    if total > FRAME_BODY_MAX {
        return Err(FrameError::TooLong { len: total });
    }
    let mut out = BytesMut::with_capacity(total);
    out.put_u32_le(u32::try_from(head.len()).map_err(|_| FrameError::Malformed("head length"))?);
    out.put_slice(&head);
    for payload in payloads {
        out.put_slice(payload);
    }
    Ok(out.freeze())
}

/// What of an entry follows the head raw.
fn payload(entry: &Entry) -> Option<&Bytes> {
    match &entry.body {
        Body::Command(bytes) => Some(bytes),
        Body::Blank | Body::Membership(_) => None,
    }
}

/// Decodes a message; payloads share the frame's memory.
///
/// # Errors
/// [`FrameError`] for anything that [`encode_message`] would not have produced.
pub fn decode_message(body: &Bytes) -> Result<Message, FrameError> {
    let Some((len, _)) = body.split_first_chunk::<4>() else {
        return Err(FrameError::Malformed("shorter than its head length"));
    };
    let head_end = 4usize.saturating_add(u32::from_le_bytes(*len) as usize);
    if head_end > body.len() {
        return Err(FrameError::Malformed("head length beyond the end"));
    }
    let head: Head = codec::decode("message head", &body[4..head_end])?;
    let mut rest = body.slice(head_end..);
    let message = from_head(head, &mut rest)?;
    if rest.is_empty() { Ok(message) } else { Err(FrameError::Malformed("bytes behind the end")) }
}

fn from_head(head: Head, rest: &mut Bytes) -> Result<Message, FrameError> {
    Ok(match head {
        Head::Vote { term, pre, last, transfer } => Message::Vote { term, pre, last, transfer },
        Head::VoteReply { term, pre, asked, granted } => {
            Message::VoteReply { term, pre, asked, granted }
        }
        Head::TimeoutNow { term, last, within } => Message::TimeoutNow { term, last, within },
        Head::Append { term, round, prev, commit, own, entries } => {
            let entries = decode_entries(prev, entries, rest)?;
            Message::Append { term, round, prev, commit, commit_own_term: own, entries }
        }
        Head::AppendReply { term, round, result, promise, low } => {
            Message::AppendReply { term, round, result, promise, low }
        }
        Head::SnapshotOffer { term, transfer, meta } => {
            if !meta.membership.is_well_formed() {
                return Err(FrameError::Malformed("unsorted configuration"));
            }
            Message::SnapshotOffer { term, transfer, meta }
        }
        Head::SnapshotChunk { term, transfer, offset } => {
            let bytes = rest.split_off(0);
            Message::SnapshotChunk { term, transfer, offset, bytes }
        }
        Head::SnapshotAck { term, transfer, next, state } => {
            Message::SnapshotAck { term, transfer, next, state }
        }
        Head::Forward { ticket, term, within } => {
            Message::Forward { ticket, term, within, command: rest.split_off(0) }
        }
        Head::ForwardReply { ticket, outcome } => Message::ForwardReply { ticket, outcome },
        Head::ReadIndex { ticket, within } => Message::ReadIndex { ticket, within },
        Head::ReadIndexReply { ticket, result } => Message::ReadIndexReply { ticket, result },
        Head::Confirm { ticket, within } => {
            let question = rest.split_off(0);
            bounded(&question, CONFIRM_QUESTION_MAX)?;
            Message::Confirm { ticket, within, question }
        }
        Head::ConfirmReply { ticket, result: Ok(head) } => {
            let ConfirmationHead { leader, term, index } = head;
            let answer = rest.split_off(0);
            bounded(&answer, CONFIRM_ANSWER_MAX)?;
            let result = Ok(Confirmation { leader, term, index, answer });
            Message::ConfirmReply { ticket, result }
        }
        Head::ConfirmReply { ticket, result: Err(why) } => {
            Message::ConfirmReply { ticket, result: Err(why) }
        }
        Head::Repair { ask, wants } => Message::Repair { ask, wants: repair::checked(wants)? },
        Head::RepairReply { ask, entries } => {
            Message::RepairReply { ask, entries: repair::entries(entries, rest)? }
        }
    })
}

/// Refuses a question or an answer that no member would send.
fn bounded(payload: &Bytes, max: usize) -> Result<(), FrameError> {
    if payload.len() > max {
        return Err(FrameError::Malformed("a question or an answer beyond its bound"));
    }
    Ok(())
}

fn confirm_reply_head(
    ticket: Ticket,
    result: &Result<Confirmation, Refusal>,
) -> Result<Head, FrameError> {
    let result = match result {
        Ok(Confirmation { leader, term, index, answer }) => {
            bounded(answer, CONFIRM_ANSWER_MAX)?;
            Ok(ConfirmationHead { leader: *leader, term: *term, index: *index })
        }
        Err(why) => Err(why.clone()),
    };
    Ok(Head::ConfirmReply { ticket, result })
}

fn decode_entries(
    prev: LogId,
    heads: Vec<EntryHead>,
    rest: &mut Bytes,
) -> Result<Entries, FrameError> {
    let mut index = prev.index;
    let mut entries = Vec::with_capacity(heads.len());
    for head in heads {
        index = Index(index.0.checked_add(1).ok_or(FrameError::Malformed("index overflow"))?);
        let body = body_from(head.body, rest)?;
        entries.push(Entry { id: LogId { term: head.term, index }, time: head.time, body });
    }
    if entries.first().is_some_and(|e| e.id.term < prev.term) {
        return Err(FrameError::Malformed("terms go back"));
    }
    Entries::new(entries).ok_or(FrameError::Malformed("terms or times go back"))
}
