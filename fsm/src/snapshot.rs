//! The stream that carries a whole state, and its incremental reader.
//!
//! A stream is a sequence of frames: `kind: u8, length: u32, crc32c: u32` (over kind, length and
//! payload), payload. First one header frame, then the records in key order in record frames, then
//! one footer frame, and nothing behind it. The header frame's payload is `magic, version: u16`
//! and a bincode [`Header`]; a record is bincode `(table: u8, key, value)`, and a frame holds whole
//! records; the footer is bincode `(digest, counts)`. Nothing in it depends on the replica: the
//! same state gives the same bytes everywhere.
//!
//! The reader keeps at most one frame in memory and does not care where chunks are cut.

use crate::header::{Header, HeaderFault};
use crate::records::{Counts, Record, TableId};
use crate::{command::kind, records};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use holdfast_consensus::codec;
use holdfast_consensus::traits::SNAPSHOT_CHUNK_MAX;

/// Magic of the header frame.
pub const SNAPSHOT_MAGIC: [u8; 4] = *b"HFSN";
/// Version of the stream.
pub const SNAPSHOT_VERSION: u16 = 2;

/// Bytes before a frame's payload.
const FRAME_HEAD: usize = 9;
/// A record frame is closed once its payload has this many bytes.
const FRAME_TARGET: usize = 64 << 10;
/// Longest payload. A frame is at most one chunk.
const PAYLOAD_MAX: usize = SNAPSHOT_CHUNK_MAX - FRAME_HEAD;

const KIND_HEADER: u8 = 1;
const KIND_RECORDS: u8 = 2;
const KIND_FOOTER: u8 = 3;

/// One part of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The first.
    Header(Box<Header>),
    /// Records: table, key within the table, value.
    Records(Vec<(TableId, Bytes, Bytes)>),
    /// The last.
    Footer {
        /// Sum of the hashes of all records.
        digest: u128,
        /// Rows per table.
        counts: Counts,
    },
}

fn frame(kind: u8, payload: &[u8]) -> Bytes {
    assert!(payload.len() <= PAYLOAD_MAX, "a snapshot frame must fit into one chunk");
    let length = u32::try_from(payload.len()).expect("at most PAYLOAD_MAX, asserted above");
    let mut out = BytesMut::with_capacity(FRAME_HEAD + payload.len());
    out.put_u8(kind);
    out.put_u32_le(length);
    out.put_u32_le(checksum(kind, payload));
    out.put_slice(payload);
    out.freeze()
}

fn checksum(kind: u8, payload: &[u8]) -> u32 {
    let length = (payload.len() as u64).to_le_bytes();
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(&[kind]), &length), payload)
}

/// The header frame, or `None` if the configuration in it is absurdly large.
pub(crate) fn header_frame(header: &Header) -> Option<Bytes> {
    let mut payload = Vec::with_capacity(512);
    payload.extend_from_slice(&SNAPSHOT_MAGIC);
    payload.extend_from_slice(&SNAPSHOT_VERSION.to_le_bytes());
    payload.extend_from_slice(&codec::encode("snapshot header", header).ok()?);
    (payload.len() <= PAYLOAD_MAX).then(|| frame(KIND_HEADER, &payload))
}

/// The footer frame.
pub(crate) fn footer_frame(digest: u128, counts: &Counts) -> Bytes {
    let payload = codec::encode("snapshot footer", &(digest, counts))
        .expect("a footer is 72 bytes, far below the codec's limit");
    frame(KIND_FOOTER, &payload)
}

/// Collects records into frames.
#[derive(Debug, Default)]
pub(crate) struct RecordFrame {
    payload: Vec<u8>,
}

impl RecordFrame {
    /// Adds a record under its full key; true once the frame is full.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        // The same bytes as bincode's `(u8, Bytes, Bytes)`, without copying the parts first.
        self.payload.put_u8(key[0]);
        for part in [&key[1..], value] {
            self.payload.put_u64_le(part.len() as u64);
            self.payload.put_slice(part);
        }
        self.payload.len() >= FRAME_TARGET
    }

    /// The frame, or `None` if it holds nothing.
    pub(crate) fn finish(self) -> Option<Bytes> {
        (!self.payload.is_empty()).then(|| frame(KIND_RECORDS, &self.payload))
    }
}

/// Reads a stream piece by piece.
#[derive(Debug, Default)]
pub struct Parser {
    buffer: BytesMut,
    stage: Stage,
    /// Full key of the last record: keys must rise.
    last: Vec<u8>,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Header,
    Records,
    End,
}

impl Parser {
    /// Takes more bytes. Ask [`Parser::next_part`] until it has none before the next call: then
    /// at most one frame is buffered.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// True once the footer was read and nothing follows it.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.stage == Stage::End && self.buffer.is_empty()
    }

    /// The next whole part, or `None` if more bytes are needed. After an error the stream is
    /// worthless.
    ///
    /// # Errors
    /// What does not verify, in words. A newer type or version is said as such.
    pub fn next_part(&mut self) -> Result<Option<Part>, String> {
        if self.stage == Stage::End && !self.buffer.is_empty() {
            return Err(format!("{} bytes behind the footer", self.buffer.len()));
        }
        let Some(head) = self.buffer.first_chunk::<FRAME_HEAD>() else { return Ok(None) };
        let mut head = head.as_slice();
        let (kind, length, crc) = (head.get_u8(), head.get_u32_le(), head.get_u32_le());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > PAYLOAD_MAX {
            return Err(format!("a frame claims {length} bytes, more than {PAYLOAD_MAX}"));
        }
        if self.buffer.len() < FRAME_HEAD + length {
            return Ok(None);
        }
        let payload = self.buffer.split_to(FRAME_HEAD + length).freeze().slice(FRAME_HEAD..);
        if checksum(kind, &payload) != crc {
            return Err("the checksum of a frame does not match".to_owned());
        }
        match (self.stage, kind) {
            (Stage::Header, KIND_HEADER) => {
                self.stage = Stage::Records;
                Ok(Some(Part::Header(Box::new(header_of(&payload)?))))
            }
            (Stage::Records, KIND_RECORDS) => Ok(Some(Part::Records(self.records(&payload)?))),
            (Stage::Records, KIND_FOOTER) => {
                self.stage = Stage::End;
                let (digest, counts) =
                    codec::decode("snapshot footer", &payload).map_err(|e| e.to_string())?;
                Ok(Some(Part::Footer { digest, counts }))
            }
            (stage, kind) => Err(format!("a frame of kind {kind} where {stage:?} was expected")),
        }
    }

    fn records(&mut self, payload: &[u8]) -> Result<Vec<(TableId, Bytes, Bytes)>, String> {
        let mut rest = payload;
        let mut records = Vec::new();
        while !rest.is_empty() {
            let (table, key, value) = take_record(&mut rest).ok_or("a record is cut short")?;
            let table = TableId::from_number(table).ok_or(format!("unknown table {table}"))?;
            let full = records::key(table, &key);
            if full <= self.last {
                return Err("records are not in the order of their keys".to_owned());
            }
            check_value(table, &value)?;
            self.last = full;
            records.push((table, key, value));
        }
        Ok(records)
    }
}

fn header_of(payload: &[u8]) -> Result<Header, String> {
    let Some(rest) = payload.strip_prefix(&SNAPSHOT_MAGIC) else {
        return Err("it has another magic".to_owned());
    };
    let (version, rest) = rest.split_first_chunk::<2>().ok_or("the header is cut short")?;
    let found = u16::from_le_bytes(*version);
    if found != SNAPSHOT_VERSION {
        return Err(format!("it was {}", HeaderFault::other_format(found, SNAPSHOT_VERSION)));
    }
    let header: Header = codec::decode("snapshot header", rest).map_err(|e| e.to_string())?;
    if header.newest_type > kind::NEWEST {
        let (found, known) = (header.newest_type, kind::NEWEST);
        return Err(format!("it {}", HeaderFault::NewerType { found, known }));
    }
    Ok(header)
}

fn take_record(rest: &mut &[u8]) -> Option<(u8, Bytes, Bytes)> {
    let table = rest.split_off_first()?;
    let mut part = || {
        let length = u64::from_le_bytes(*rest.split_off(..8)?.first_chunk()?);
        let length = usize::try_from(length).ok()?;
        Some(Bytes::copy_from_slice(rest.split_off(..length)?))
    };
    Some((*table, part()?, part()?))
}

/// A record that does not decode must not get into a store.
fn check_value(table: TableId, value: &[u8]) -> Result<(), String> {
    match table {
        TableId::Topics => records::Topic::decode(value).map(drop),
        TableId::Tombstones => records::Tombstone::decode(value).map(drop),
        TableId::Members => records::Member::decode(value).map(drop),
        TableId::Sessions => records::Session::decode(value).map(drop),
        TableId::Kv => records::KvValue::decode(value).map(drop),
        TableId::Assignments => records::Assignment::decode(value).map(drop),
        TableId::Links => records::Link::decode(value).map(drop),
    }
    .map_err(|e| e.to_string())
}
