//! Records: what a segment holds behind its header. The byte layout is pinned by golden tests.
//!
//! ```text
//!  0  magic 0xB7    1  kind    2  flags u16    4  body length u32 (without padding)
//!  8  term u64     16  index u64              24  CRC of the previous record u32
//! 28  CRC-32C over the segment's unique id, the record's offset in it, bytes 0..28, body and padding
//! 32  body, padded with zeros to a multiple of 8
//! ```
//!
//! All numbers are little-endian. The unique id and the offset in the CRC make recycled or
//! misdirected bytes fail, and bytes of the log that a command happens to carry; the chained CRC
//! makes reordered or missing records visible, across segments too.

use crate::position::Position;
use bytes::Bytes;
use holdfast_consensus::codec;
use holdfast_consensus::damage::entry_crc;
use holdfast_consensus::{
    Body, Entry, HardState, Index, LogId, MemberId, Membership, Micros, SnapshotMeta, Term,
};
use serde::{Deserialize, Serialize};

/// Bytes of a record header.
pub(crate) const RECORD_HEADER: usize = 32;
/// Bytes of an entry's body before its payload.
pub(crate) const ENTRY_PREFIX: usize = 16;
/// Bytes of a batch header's body.
pub(crate) const BATCH_BODY: usize = 72;
/// Bytes of a whole batch header record.
pub(crate) const BATCH_RECORD: usize = RECORD_HEADER + BATCH_BODY;
/// Largest body that is believed: checked before anything is read or allocated.
pub(crate) const BODY_MAX: usize = 64 << 20;

const MAGIC: u8 = 0xB7;
/// Form of an entry that carries a command.
const COMMAND: u8 = 1;
const HAS_VOTE: u16 = 1;
const SUFFIX_KEPT: u16 = 1;

/// Kind of a record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Batch = 1,
    Entry = 2,
    Truncate = 3,
    Watermark = 4,
    Base = 5,
    Meta = 6,
    Seal = 7,
    /// The side index of the batches before (R14, R15).
    Index = 8,
    /// An entry that fills a hole (R15).
    Repair = 9,
}

impl Kind {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Batch,
            2 => Self::Entry,
            3 => Self::Truncate,
            4 => Self::Watermark,
            5 => Self::Base,
            6 => Self::Meta,
            7 => Self::Seal,
            8 => Self::Index,
            9 => Self::Repair,
            _ => return None,
        })
    }

    /// A stable lower-case word.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Entry => "entry",
            Self::Truncate => "truncate",
            Self::Watermark => "watermark",
            Self::Base => "base",
            Self::Meta => "meta",
            Self::Seal => "seal",
            Self::Index => "index",
            Self::Repair => "repair",
        }
    }
}

/// What a member remembers of a peer (R3). The list is empty until that rule is built.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerMemory {
    pub(crate) member: MemberId,
    pub(crate) boot: u64,
    pub(crate) term: Term,
    pub(crate) last: LogId,
    pub(crate) commit: Index,
    pub(crate) epoch: u64,
}

/// State that every fresh segment repeats, so that it stands alone once older ones are gone: all
/// of it as of the header's previous entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// Number of the start that wrote this (R3).
    pub(crate) boot: u64,
    /// Longest promise ever given in an acknowledgement, in microseconds; zero if none (R38).
    pub(crate) promise: Micros,
    /// Memory of peers (R3).
    pub(crate) peers: Vec<PeerMemory>,
    /// Commit index known when this was written (R10).
    pub(crate) commit: Index,
    /// Log time of the header's previous entry.
    pub(crate) time: Micros,
    /// Configuration in force at the header's previous entry.
    pub(crate) membership: Option<(Index, Membership)>,
}

/// Something to write.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Entry {
        id: LogId,
        time: Micros,
        tag: u8,
        payload: Bytes,
        crc: u32,
        weight: u32,
        /// Boxed: a command is moved several times on its way, and has none.
        membership: Option<Box<Membership>>,
    },
    /// Entries from `from` on are void, provided that the next `needs` entries are there: a
    /// truncation and its replacement count whole or not at all (R3).
    Truncate {
        from: Index,
        needs: u32,
    },
    Watermark {
        at: Position,
        commit: Index,
    },
    Base {
        last: LogId,
        kept: bool,
        meta: Box<SnapshotMeta>,
        encoded: Bytes,
    },
    Meta(Bytes),
    Seal {
        last: LogId,
    },
    /// The encoded side index of the batches before.
    Index(Bytes),
    /// An entry that fills a hole; always an [`Item::Entry`].
    Repair(Box<Item>),
}

/// A value that cannot be written.
#[derive(Debug)]
pub(crate) struct TooLarge(pub(crate) String);

impl Item {
    pub(crate) fn entry(entry: &Entry) -> Result<Self, TooLarge> {
        let (tag, payload, membership) = match &entry.body {
            Body::Blank => (0, Bytes::new(), None),
            Body::Command(bytes) => (COMMAND, bytes.clone(), None),
            Body::Membership(m) => {
                let bytes =
                    codec::encode("configuration", m).map_err(|e| TooLarge(e.to_string()))?;
                (2, bytes.into(), Some(m.clone()))
            }
        };
        if payload.len() > BODY_MAX - ENTRY_PREFIX {
            return Err(TooLarge(format!("entry {} has {} bytes", entry.id, payload.len())));
        }
        let crc = entry_crc(entry.id, tag, entry.time, &payload);
        let weight = u32::try_from(entry.weight()).unwrap_or(u32::MAX);
        Ok(Self::Entry { id: entry.id, time: entry.time, tag, payload, crc, weight, membership })
    }

    pub(crate) fn base(meta: &SnapshotMeta, kept: bool) -> Result<Self, TooLarge> {
        let encoded = codec::encode("snapshot label", meta).map_err(|e| TooLarge(e.to_string()))?;
        let meta = Box::new(meta.clone());
        Ok(Self::Base { last: meta.last, kept, meta, encoded: encoded.into() })
    }

    pub(crate) fn meta(meta: &Meta) -> Result<Self, TooLarge> {
        let encoded = codec::encode("meta record", meta).map_err(|e| TooLarge(e.to_string()))?;
        Ok(Self::Meta(encoded.into()))
    }

    fn body_len(&self) -> usize {
        match self {
            Self::Entry { payload, .. } => ENTRY_PREFIX + payload.len(),
            Self::Truncate { .. } => 8,
            Self::Watermark { .. } => 32,
            Self::Base { encoded, .. } => encoded.len(),
            Self::Meta(encoded) => encoded.len(),
            Self::Seal { .. } => 0,
            Self::Index(encoded) => encoded.len(),
            Self::Repair(entry) => entry.body_len(),
        }
    }

    /// Bytes that the record takes.
    pub(crate) fn size(&self) -> u64 {
        record_size(self.body_len())
    }
}

/// Bytes that a record with a body of this length takes.
pub(crate) const fn record_size(body: usize) -> u64 {
    (RECORD_HEADER + body.next_multiple_of(8)) as u64
}

/// What a batch header says besides what its records say.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BatchHead {
    /// Hard state from here on.
    pub(crate) hard: HardState,
    /// What was known durable when the batch was issued (R9).
    pub(crate) durable: Position,
    /// Highest sequence number in the batch.
    pub(crate) seq: u64,
    /// Last entry of the log before the batch: where the log stands behind whatever is lost.
    pub(crate) prev: LogId,
}

/// Where a batch goes: its segment, the offset of the first byte of the buffer in it, and the CRC
/// of the record before.
#[derive(Copy, Clone, Debug)]
pub(crate) struct At {
    pub(crate) unique: u64,
    pub(crate) origin: u64,
    pub(crate) chain: u32,
}

/// Appends one batch to `out`: its header and its records. Returns the offset of each record in
/// `out`, and the CRC of the last one.
pub(crate) fn encode_batch(
    out: &mut Vec<u8>,
    mut at: At,
    head: &BatchHead,
    items: &[Item],
) -> (Vec<u64>, u32) {
    let len: u64 = BATCH_RECORD as u64 + items.iter().map(Item::size).sum::<u64>();
    let crcs = items.iter().filter_map(|item| match item {
        Item::Entry { crc, .. } => Some(crc.to_le_bytes()),
        _ => None,
    });
    // In one go: a call of the checksum costs more than four bytes of it.
    let digest = crc32c::crc32c(crcs.collect::<Vec<_>>().as_flattened());
    let mut body = [0; BATCH_BODY];
    let fields = [
        head.durable.segment,
        head.durable.offset,
        head.durable.seq,
        head.hard.voted_for.map_or(0, |m| m.0),
        len,
        head.seq,
        0,
        head.prev.term.0,
        head.prev.index.0,
    ];
    for (slot, field) in body.chunks_exact_mut(8).zip(fields) {
        slot.copy_from_slice(&field.to_le_bytes());
    }
    let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
    body[48..52].copy_from_slice(&count.to_le_bytes());
    body[52..56].copy_from_slice(&digest.to_le_bytes());
    let flags = if head.hard.voted_for.is_some() { HAS_VOTE } else { 0 };
    let top = Top { kind: Kind::Batch, flags, id: LogId { term: head.hard.term, index: Index(0) } };
    at.chain = put_record(out, at, top, &[&body]);
    out.reserve(usize::try_from(len).unwrap_or(0));
    let mut offsets = Vec::with_capacity(items.len());
    for item in items {
        offsets.push(out.len() as u64);
        at.chain = with_parts(item, |top, parts| put_record(out, at, top, parts));
    }
    (offsets, at.chain)
}

/// Hands over the header fields and the body of an item, piece by piece.
pub(crate) fn with_parts<R>(item: &Item, put: impl FnOnce(Top, &[&[u8]]) -> R) -> R {
    let (item, repair) = match item {
        Item::Repair(entry) => (entry.as_ref(), true),
        item => (item, false),
    };
    let put = |kind, flags, id, parts: &[&[u8]]| {
        let kind = if repair { Kind::Repair } else { kind };
        put(Top { kind, flags, id }, parts)
    };
    match item {
        Item::Entry { id, time, tag, payload, crc, .. } => {
            let mut prefix = [0; ENTRY_PREFIX];
            prefix[0..4].copy_from_slice(&crc.to_le_bytes());
            prefix[4] = *tag;
            prefix[8..16].copy_from_slice(&time.to_le_bytes());
            put(Kind::Entry, 0, *id, &[&prefix, payload])
        }
        Item::Truncate { from, needs } => {
            let id = LogId { term: Term(0), index: *from };
            put(Kind::Truncate, 0, id, &[&u64::from(*needs).to_le_bytes()])
        }
        Item::Watermark { at, commit } => {
            let fields = [at.segment, at.offset, at.seq, commit.0].map(u64::to_le_bytes);
            put(Kind::Watermark, 0, LogId::default(), &[fields.as_flattened()])
        }
        Item::Base { last, kept, encoded, .. } => {
            put(Kind::Base, if *kept { SUFFIX_KEPT } else { 0 }, *last, &[encoded])
        }
        Item::Meta(encoded) => put(Kind::Meta, 0, LogId::default(), &[encoded]),
        Item::Seal { last } => put(Kind::Seal, 0, *last, &[]),
        Item::Index(encoded) => put(Kind::Index, 0, LogId::default(), &[encoded]),
        // A repair always wraps an entry.
        Item::Repair(_) => put(Kind::Repair, 0, LogId::default(), &[]),
    }
}

/// The fields of a record's header that its content decides.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Top {
    pub(crate) kind: Kind,
    pub(crate) flags: u16,
    pub(crate) id: LogId,
}

fn put_record(out: &mut Vec<u8>, at: At, top: Top, parts: &[&[u8]]) -> u32 {
    let start = out.len();
    let len: usize = parts.iter().map(|p| p.len()).sum();
    assert!(len <= BODY_MAX, "record bodies are bounded where items are made");
    let mut head = [0; RECORD_HEADER];
    head[0] = MAGIC;
    head[1] = top.kind as u8;
    head[2..4].copy_from_slice(&top.flags.to_le_bytes());
    head[4..8].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
    head[8..16].copy_from_slice(&top.id.term.0.to_le_bytes());
    head[16..24].copy_from_slice(&top.id.index.0.to_le_bytes());
    head[24..28].copy_from_slice(&at.chain.to_le_bytes());
    out.extend_from_slice(&head);
    for part in parts {
        out.extend_from_slice(part);
    }
    out.extend_from_slice(&[0; 8][..len.next_multiple_of(8) - len]);
    let crc = record_crc(at.unique, at.origin + start as u64, &out[start..]);
    out[start + 28..start + 32].copy_from_slice(&crc.to_le_bytes());
    crc
}

/// Aligned, so that the checksum takes whole words of it: every record pays for this.
#[repr(align(8))]
struct Salt([u8; 44]);

/// CRC of a whole record (header, body, padding) at this offset of the segment with this unique id.
pub(crate) fn record_crc(unique: u64, offset: u64, record: &[u8]) -> u32 {
    let mut salt = Salt([0; 44]);
    salt.0[0..8].copy_from_slice(&unique.to_le_bytes());
    salt.0[8..16].copy_from_slice(&offset.to_le_bytes());
    salt.0[16..44].copy_from_slice(&record[..28]);
    let sum = crc32c::crc32c(&salt.0);
    crc32c::crc32c_append(sum, &record[RECORD_HEADER..])
}

/// A record header as it stands on disk; nothing of it is proved yet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) flags: u16,
    pub(crate) len: usize,
    pub(crate) id: LogId,
    pub(crate) chain: u32,
    pub(crate) crc: u32,
}

impl Header {
    /// Reads a header from the first [`RECORD_HEADER`] bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes.len() < RECORD_HEADER {
            return Err("no room for a record");
        }
        if bytes[0] != MAGIC {
            return Err("no record");
        }
        let kind = Kind::from_byte(bytes[1]).ok_or("unknown kind of record")?;
        let len = u32_at(bytes, 4) as usize;
        if len > BODY_MAX {
            return Err("record length out of bounds");
        }
        Ok(Self {
            kind,
            flags: u16::from_le_bytes([bytes[2], bytes[3]]),
            len,
            id: LogId::new(u64_at(bytes, 8), u64_at(bytes, 16)),
            chain: u32_at(bytes, 24),
            crc: u32_at(bytes, 28),
        })
    }

    /// Bytes of the whole record.
    pub(crate) const fn size(&self) -> u64 {
        record_size(self.len)
    }

    /// True if the whole record verifies at this offset of the segment with this unique id.
    pub(crate) fn verifies(&self, unique: u64, offset: u64, record: &[u8]) -> bool {
        record.len() as u64 == self.size() && record_crc(unique, offset, record) == self.crc
    }
}

/// Where the log stood behind a damaged place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resume {
    pub(crate) id: LogId,
    /// True if this entry followed, false if the log ended with it.
    pub(crate) follows: bool,
    /// How many records are missing, where the batch tells.
    pub(crate) missing: Option<u64>,
}

impl Resume {
    /// The log ended with this entry.
    pub(crate) const fn at(id: LogId) -> Self {
        Self { id, follows: false, missing: None }
    }

    /// This entry followed.
    pub(crate) const fn before(id: LogId) -> Self {
        Self { id, follows: true, missing: None }
    }
}

/// The content of a verified record, or what is known of one that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Boxed, as all that is larger than an entry's facts: recovery holds one of these for every
    /// record of the log, and nearly all of them are entries.
    Batch(Box<BatchFacts>),
    Entry(EntryFacts),
    Truncate {
        needs: u32,
    },
    Watermark {
        at: Position,
        commit: Index,
    },
    Base {
        kept: bool,
        meta: Box<SnapshotMeta>,
    },
    Meta(Box<Meta>),
    Seal,
    /// The side index; its lines are read where damage asks for them.
    Index,
    Repair(EntryFacts),
    /// A damaged entry whose CRC the side index knows. Never on disk.
    Lost {
        crc: u32,
    },
    /// A damaged batch header whose hard state a later one replaced. Never on disk.
    LostBatch {
        prev: LogId,
    },
    /// Something unknown is damaged. Never on disk.
    Gap(Box<Resume>),
}

/// What a batch header says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchFacts {
    pub(crate) head: BatchHead,
    /// Bytes of the whole batch, without padding.
    pub(crate) len: u64,
    /// Number of its records, the header not among them.
    pub(crate) records: u32,
    /// Over the CRCs of its entries.
    pub(crate) digest: u32,
}

impl Content {
    /// Decodes a record that has verified. An error means a writer that followed other rules.
    pub(crate) fn decode(header: &Header, record: &[u8]) -> Result<Self, String> {
        Self::decode_body(header, &record[RECORD_HEADER..RECORD_HEADER + header.len])
    }

    /// As [`Content::decode`], from the body alone.
    pub(crate) fn decode_body(header: &Header, body: &[u8]) -> Result<Self, String> {
        let fixed = |len: usize| {
            if body.len() == len { Ok(()) } else { Err(format!("body of {} bytes", body.len())) }
        };
        Ok(match header.kind {
            Kind::Batch => {
                fixed(BATCH_BODY)?;
                let vote = MemberId(u64_at(body, 24));
                let voted_for = (header.flags & HAS_VOTE != 0).then_some(vote);
                Self::Batch(Box::new(BatchFacts {
                    head: BatchHead {
                        hard: HardState { term: header.id.term, voted_for },
                        durable: position_at(body),
                        seq: u64_at(body, 40),
                        prev: LogId::new(u64_at(body, 56), u64_at(body, 64)),
                    },
                    len: u64_at(body, 32),
                    records: u32_at(body, 48),
                    digest: u32_at(body, 52),
                }))
            }
            Kind::Entry => Self::Entry(EntryFacts::decode(header, body)?),
            Kind::Repair => Self::Repair(EntryFacts::decode(header, body)?),
            Kind::Truncate => {
                fixed(8)?;
                Self::Truncate { needs: u32_at(body, 0) }
            }
            Kind::Watermark => {
                fixed(32)?;
                Self::Watermark { at: position_at(body), commit: Index(u64_at(body, 24)) }
            }
            Kind::Base => {
                let meta: SnapshotMeta =
                    codec::decode("snapshot label", body).map_err(|e| e.to_string())?;
                if meta.last != header.id {
                    return Err("base record and its label differ".into());
                }
                Self::Base { kept: header.flags & SUFFIX_KEPT != 0, meta: Box::new(meta) }
            }
            Kind::Meta => {
                let meta = codec::decode("meta record", body).map_err(|e| e.to_string())?;
                Self::Meta(Box::new(meta))
            }
            Kind::Seal => {
                fixed(0)?;
                Self::Seal
            }
            Kind::Index => Self::Index,
        })
    }
}

/// What is kept of an entry: where it is read again, its payload is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryFacts {
    pub(crate) time: Micros,
    /// The CRC that identifies the entry among members.
    pub(crate) crc: u32,
    pub(crate) weight: u32,
    pub(crate) membership: Option<Box<Membership>>,
}

impl EntryFacts {
    /// The record has verified, and its CRC covers the entry's own: these are the bytes that were
    /// written. That the entry's own CRC fits its content is proved by every read of the entry
    /// ([`Parts::checked`]), before anybody is given it; computing it here too would cost a start a third
    /// of its checksums and find no byte that changed.
    fn decode(header: &Header, body: &[u8]) -> Result<Self, String> {
        let parts = Parts::of(header, body)?;
        let (membership, weight) = match parts.command() {
            Some(command) => (None, Entry::command_weight(command.len())),
            None => {
                let entry = Entry { id: header.id, time: parts.time, body: parts.other()? };
                let weight = entry.weight();
                match entry.body {
                    Body::Membership(membership) => (Some(membership), weight),
                    _ => (None, weight),
                }
            }
        };
        let weight = u32::try_from(weight).unwrap_or(u32::MAX);
        Ok(Self { time: parts.time, crc: u32_at(body, 0), weight, membership })
    }
}

/// Decodes a verified entry or repair record; the payload of a command shares `record`.
pub(crate) fn shared_entry(record: &Bytes) -> Result<Entry, String> {
    let parts = Parts::checked(record)?;
    let body = match parts.command() {
        Some(range) => Body::Command(record.slice(range)),
        None => parts.other()?,
    };
    Ok(Entry { id: parts.id, time: parts.time, body })
}

/// The parts of an entry or repair record. Small and copied, not an [`Entry`]: every read of one goes
/// through here, and moves what it is given several times.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) id: LogId,
    pub(crate) time: Micros,
    form: u8,
    payload: &'a [u8],
}

impl<'a> Parts<'a> {
    #[inline]
    fn of(header: &Header, body: &'a [u8]) -> Result<Self, String> {
        let payload = body.get(ENTRY_PREFIX..);
        let payload = payload.ok_or_else(|| format!("entry body of {} bytes", body.len()))?;
        Ok(Self { id: header.id, time: u64_at(body, 8), form: body[4], payload })
    }

    /// The parts of a whole record, whose entry's own CRC fits.
    #[inline]
    pub(crate) fn checked(record: &'a [u8]) -> Result<Self, String> {
        let header = Header::parse(record)?;
        let end = RECORD_HEADER + header.len;
        if !matches!(header.kind, Kind::Entry | Kind::Repair) || record.len() < end {
            return Err("not an entry record".into());
        }
        let body = &record[RECORD_HEADER..end];
        let parts = Self::of(&header, body)?;
        if entry_crc(parts.id, parts.form, parts.time, parts.payload) != u32_at(body, 0) {
            return Err("the entry's own CRC does not match".into());
        }
        Ok(parts)
    }

    /// Where the command lies in the record, if it is one.
    #[inline]
    pub(crate) fn command(&self) -> Option<std::ops::Range<usize>> {
        let start = RECORD_HEADER + ENTRY_PREFIX;
        (self.form == COMMAND).then(|| start..start + self.payload.len())
    }

    /// The body of what is no command.
    pub(crate) fn other(&self) -> Result<Body, String> {
        match self.form {
            0 if self.payload.is_empty() => Ok(Body::Blank),
            2 => codec::decode("configuration", self.payload)
                .map(Body::Membership)
                .map_err(|e| e.to_string()),
            form => Err(format!("entry of unknown form {form}")),
        }
    }
}

fn position_at(body: &[u8]) -> Position {
    Position { segment: u64_at(body, 0), offset: u64_at(body, 8), seq: u64_at(body, 16) }
}

/// Reads a number from a slice whose length was checked.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// As [`u64_at`].
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
