//! The side index (R14, R15): what each batch holds, repeated in the batch behind it and so in
//! another sector, with that batch's sync and no other. If a record is damaged, its kind, term,
//! index and CRC are still known here; if the side index is damaged, the records are still there.
//!
//! Whatever is known durable has a batch behind it, since only that batch proves it (R9). So the
//! side index of everything below D is on disk.
//!
//! ```text
//! for each batch, in order:
//!  0  unique id of its segment u64     8  its offset u64
//! 16  last term before it u64         24  last index before it u64
//! 32  number of lines u32             36  bytes of the lines u32
//! 40  a line for each record behind the batch header:
//!     0  size in units of 8 bytes, u24, kind u8 (highest bit: the id follows)
//!     4  [term u64, index u64]: of an entry only where it does not follow the one before
//!        entry and repair: CRC of the entry u32
//!        truncate, watermark, base, meta: flags u32, length u32, the whole body
//!        seal, index: nothing
//! ```

use crate::position::Position;
use crate::record::{
    BATCH_RECORD, Content, ENTRY_PREFIX, Header, Item, Kind, RECORD_HEADER, Top, record_size,
    u32_at, u64_at, with_parts,
};
use crate::segment::Found;
use bytes::Bytes;
use holdfast_consensus::{Index, LogId};
use std::collections::BTreeMap;

/// Bytes of a part before its lines.
const PART_HEAD: usize = 40;
const HAS_ID: u8 = 0x80;
/// Most bytes that a line takes beside the body that it repeats.
const LINE_MAX: usize = 32;

/// The lines that the next batch carries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    /// Start of the part under construction, its lines, and the entry that needs no id.
    part: usize,
    lines: u32,
    next: LogId,
}

impl Pending {
    /// Takes in a batch that was written at this place, behind `prev`.
    pub(crate) fn batch(&mut self, at: Position, prev: LogId, items: &[Item]) {
        self.begin(at, prev);
        self.bytes.reserve(8 * items.len());
        for item in items {
            let size = item.size();
            match item {
                // Nearly all of them.
                Item::Entry { id, crc, .. } if *id == self.next => self.plain(size, *crc),
                _ => with_parts(item, |top, parts| self.line(top, size, parts)),
            }
        }
        self.end();
    }

    /// Takes in a batch as recovery found it: its header, and the records up to the next header.
    pub(crate) fn found(&mut self, segment: u64, records: &[Found]) {
        let Some((first, rest)) = records.split_first() else { return };
        let prev = match &first.content {
            Content::Batch(batch) => batch.head.prev,
            Content::LostBatch { prev } => *prev,
            _ => return,
        };
        // A batch of which a part is unknown cannot be described.
        if rest.iter().any(|r| matches!(r.content, Content::Gap(_))) {
            return;
        }
        self.begin(Position::new(segment, first.offset), prev);
        for record in rest {
            let Header { kind, flags, id, .. } = record.header;
            let (top, size) = (Top { kind, flags, id }, record.header.size());
            match &record.content {
                Content::Entry(facts) | Content::Repair(facts) => {
                    self.line(top, size, &[&facts.crc.to_le_bytes()]);
                }
                Content::Lost { crc } => self.line(top, size, &[&crc.to_le_bytes()]),
                content => {
                    if let Some(item) = as_item(top, content) {
                        with_parts(&item, |top, parts| self.line(top, size, parts));
                    }
                }
            }
        }
        self.end();
    }

    fn begin(&mut self, at: Position, prev: LogId) {
        self.part = self.bytes.len();
        for field in [at.segment, at.offset, prev.term.0, prev.index.0, 0] {
            self.bytes.extend_from_slice(&field.to_le_bytes());
        }
        self.lines = 0;
        self.next = LogId { index: prev.index.next(), ..prev };
    }

    /// The line of an entry that follows the one before.
    fn plain(&mut self, size: u64, crc: u32) {
        let mut line = [0; 8];
        line[..4].copy_from_slice(&word(size, Kind::Entry as u8).to_le_bytes());
        line[4..].copy_from_slice(&crc.to_le_bytes());
        self.bytes.extend_from_slice(&line);
        self.next.index = self.next.index.next();
        self.lines += 1;
    }

    fn line(&mut self, top: Top, size: u64, parts: &[&[u8]]) {
        let entry = matches!(top.kind, Kind::Entry | Kind::Repair);
        let id = !matches!(top.kind, Kind::Seal | Kind::Index) && (!entry || top.id != self.next);
        let kind = top.kind as u8 | if id { HAS_ID } else { 0 };
        self.bytes.extend_from_slice(&word(size, kind).to_le_bytes());
        if id {
            self.bytes.extend_from_slice(&top.id.term.0.to_le_bytes());
            self.bytes.extend_from_slice(&top.id.index.0.to_le_bytes());
        }
        match top.kind {
            Kind::Entry | Kind::Repair => {
                // An entry's body begins with its CRC.
                self.bytes.extend_from_slice(&parts[0][..4]);
                self.next = LogId { index: top.id.index.next(), ..top.id };
            }
            Kind::Seal | Kind::Index => {}
            _ => {
                let len: usize = parts.iter().map(|p| p.len()).sum();
                self.bytes.extend_from_slice(&u32::from(top.flags).to_le_bytes());
                self.bytes.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
                parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
            }
        }
        self.lines += 1;
    }

    fn end(&mut self) {
        let len = u32::try_from(self.bytes.len() - self.part - PART_HEAD).unwrap_or(u32::MAX);
        self.bytes[self.part + 32..self.part + 36].copy_from_slice(&self.lines.to_le_bytes());
        self.bytes[self.part + 36..self.part + 40].copy_from_slice(&len.to_le_bytes());
    }

    /// Bytes of the record that the next batch carries, zero if it carries none.
    pub(crate) fn size(&self) -> u64 {
        if self.bytes.is_empty() { 0 } else { record_size(self.bytes.len()) }
    }

    /// The record for the next batch; nothing is pending afterwards.
    pub(crate) fn take(&mut self) -> Option<Item> {
        let bytes = std::mem::take(&mut self.bytes);
        (!bytes.is_empty()).then(|| Item::Index(bytes.into()))
    }

    /// Most bytes that an item adds to the side index, to plan with.
    pub(crate) fn cost(item: &Item) -> u64 {
        let body = match item {
            Item::Entry { .. } | Item::Repair(_) => 0,
            other => other.size(),
        };
        body + LINE_MAX as u64
    }

    /// Most bytes that `batches` batches add beside their items.
    pub(crate) const fn overhead(batches: u64) -> u64 {
        record_size(0) + batches * (PART_HEAD + 2 * LINE_MAX) as u64
    }
}

/// First word of a line: the size of the record in units of 8 bytes, and its kind.
fn word(size: u64, kind: u8) -> u32 {
    // Bodies are bounded far below 2^24 units.
    let units = u32::try_from(size / 8).unwrap_or(u32::MAX) & 0x00FF_FFFF;
    units | u32::from(kind) << 24
}

/// The item that a control record was made from.
fn as_item(top: Top, content: &Content) -> Option<Item> {
    Some(match content {
        Content::Truncate { needs } => Item::Truncate { from: top.id.index, needs: *needs },
        Content::Watermark { at, commit } => Item::Watermark { at: *at, commit: *commit },
        Content::Base { kept, meta } => Item::base(meta, *kept).ok()?,
        Content::Meta(meta) => Item::meta(meta).ok()?,
        Content::Seal => Item::Seal { last: top.id },
        Content::Index => Item::Index(Bytes::new()),
        _ => return None,
    })
}

/// A batch as the side index describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Last entry before the batch.
    pub(crate) prev: LogId,
    /// Where its last record ends.
    pub(crate) end: u64,
    pub(crate) lines: Vec<Line>,
}

/// A record as the side index describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) offset: u64,
    /// As it stood there, but for the two CRCs of the record.
    pub(crate) header: Header,
    /// Its content; [`Content::Lost`] for entries, which are known by CRC only.
    pub(crate) content: Content,
}

/// Parts by segment and offset of the batch.
pub(crate) type Parts = BTreeMap<(u64, u64), Part>;

/// Reads the body of an index record that has verified.
pub(crate) fn decode(body: &[u8], into: &mut Parts) -> Result<(), String> {
    let mut rest = Rest(body);
    while !rest.0.is_empty() {
        let head = rest.take(PART_HEAD)?;
        let (segment, offset) = (u64_at(head, 0), u64_at(head, 8));
        let prev = LogId::new(u64_at(head, 16), u64_at(head, 24));
        let count = u32_at(head, 32);
        let mut lines = Rest(rest.take(u32_at(head, 36) as usize)?);
        let end =
            offset.checked_add(BATCH_RECORD as u64).ok_or("a batch at an impossible place")?;
        let mut part = Part { prev, end, lines: Vec::new() };
        let mut next = follower(prev)?;
        for _ in 0..count {
            part.lines.push(lines.line(part.end, &mut next)?);
            let size = part.lines.last().map_or(0, |line| line.header.size());
            part.end = part.end.checked_add(size).ok_or("a batch of impossible length")?;
        }
        if !lines.0.is_empty() {
            return Err("bytes behind the last line".into());
        }
        into.insert((segment, offset), part);
    }
    Ok(())
}

/// The identity of the entry behind this one, if it is of the same term.
fn follower(id: LogId) -> Result<LogId, String> {
    let index = id.index.0.checked_add(1).ok_or("an entry of impossible index")?;
    Ok(LogId { index: Index(index), ..id })
}

/// What was not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or("the side index ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn line(&mut self, offset: u64, next: &mut LogId) -> Result<Line, String> {
        let word = u32_at(self.take(4)?, 0);
        let ([.., byte], size) = (word.to_le_bytes(), (word & 0x00FF_FFFF) as usize * 8);
        let kind = Kind::from_byte(byte & !HAS_ID).ok_or("a line of unknown kind")?;
        let len = size.checked_sub(RECORD_HEADER).ok_or("a record of impossible length")?;
        let mut id =
            if matches!(kind, Kind::Entry | Kind::Repair) { *next } else { LogId::default() };
        if byte & HAS_ID != 0 {
            let bytes = self.take(16)?;
            id = LogId::new(u64_at(bytes, 0), u64_at(bytes, 8));
        }
        let mut header = Header { kind, flags: 0, len, id, chain: 0, crc: 0 };
        let content = match kind {
            Kind::Batch => return Err("a batch header within a batch".into()),
            Kind::Entry | Kind::Repair if len < ENTRY_PREFIX => {
                return Err("an entry of impossible length".into());
            }
            Kind::Entry | Kind::Repair => {
                *next = follower(id)?;
                Content::Lost { crc: u32_at(self.take(4)?, 0) }
            }
            Kind::Seal => Content::Seal,
            Kind::Index => Content::Index,
            _ => {
                let head = self.take(8)?;
                header.flags = u16::from_le_bytes([head[0], head[1]]);
                header.len = u32_at(head, 4) as usize;
                let body = self.take(header.len)?;
                if header.len > len || header.size() != size as u64 {
                    return Err("a body of another length than its record".into());
                }
                Content::decode_body(&header, body)?
            }
        };
        Ok(Line { offset, header, content })
    }
}

#[cfg(test)]
#[path = "side_index_tests.rs"]
mod tests;
