//! Segments: their header, their file, and the walk over their records.

use crate::disk::DiskFile;
use crate::position::{BLOCK, BLOCK_BYTES, Position, align_up};
use crate::record::{BATCH_RECORD, Content, Header, Kind, RECORD_HEADER, u32_at, u64_at};
use crate::sync::{Boundary, Mutex};
use holdfast_consensus::{ClusterId, Index, LogId, MemberId};
use std::io;
use std::sync::PoisonError;

const MAGIC: [u8; 8] = *b"HFLOGSEG";
/// Version of the log's format that this build reads and writes.
/// 2: the header stands twice and repeats its predecessor's, records are salted with their offset,
/// batches say where the log stood before them and carry the side index. 1 was never released.
pub(crate) const FORMAT: u32 = 2;
/// Bytes of the header that are used; the rest of its block is zero.
pub(crate) const HEADER_LEN: usize = 224;
/// The header's second copy stands in a block of its own.
pub(crate) const HEADER_COPY: u64 = BLOCK;
/// Offset of the first batch.
pub(crate) const FIRST_BATCH: u64 = 2 * BLOCK;

/// Whose log it is; stands in every segment header.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The member: lives in the log alone and dies with it (R1).
    pub member: MemberId,
    /// Raft group (R44).
    pub group: u64,
    /// The cluster; zero until one is formed.
    pub cluster: ClusterId,
    /// Recovery epoch (R8).
    pub epoch: u64,
}

/// Where the log before a segment ends: that is decided by the successor alone (R13).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Join {
    /// Unique id of the previous segment; zero for the very first.
    pub(crate) unique: u64,
    /// Offset at which the previous segment ends.
    pub(crate) end: u64,
    /// CRC of the last record before the end.
    pub(crate) chain: u32,
}

/// What a segment copied from the unproved end of the log before it (R12).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// From where on the source was copied.
    pub(crate) source: Position,
    /// Where the copy ends in this segment.
    pub(crate) end: u64,
    /// Index of the last entry of the copy.
    pub(crate) last: Index,
    /// CRC of the last record of the copy.
    pub(crate) crc: u32,
}

/// What a header repeats of its predecessor's, so that this one can be read, or its extent known,
/// without it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Previous {
    pub(crate) first: Index,
    pub(crate) prev: LogId,
    pub(crate) join: Join,
}

/// The header of a segment.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) unique: u64,
    pub(crate) owner: Owner,
    /// Index of the first entry that the segment can hold.
    pub(crate) first: Index,
    /// The entry before `first`.
    pub(crate) prev: LogId,
    pub(crate) join: Join,
    pub(crate) copied: Option<Copied>,
    /// Length of the file when it was made.
    pub(crate) bytes: u64,
    /// Number of the start that made it: never lost, whatever happens to meta records (R3).
    pub(crate) boot: u64,
    /// From the header of the segment that `join` names.
    pub(crate) previous: Previous,
    /// The file held another segment before, whose bytes may lie behind the end of this one. Their
    /// salt is another, so that none of them verifies.
    pub(crate) reused: bool,
}

/// Why a header cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// Every byte of the header is zero (R16).
    Zero,
    /// A newer build wrote it.
    Newer(u32),
    /// A build from before the first release wrote it.
    Older(u32),
    /// It does not verify.
    Damaged(&'static str),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let copied = self.copied.unwrap_or_default();
        let mut out = [0; HEADER_LEN];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[12..16].copy_from_slice(&224u32.to_le_bytes());
        out[40..56].copy_from_slice(&self.owner.cluster.0.to_le_bytes());
        for (at, field) in [
            (16, self.unique),
            (24, self.owner.member.0),
            (32, self.owner.group),
            (56, self.owner.epoch),
            (64, self.first.0),
            (72, self.prev.term.0),
            (80, self.prev.index.0),
            (88, self.join.unique),
            (96, self.join.end),
            (104, copied.source.segment),
            (112, copied.source.offset),
            (120, copied.end),
            (128, copied.last.0),
            (144, self.bytes),
            (152, self.boot),
            (160, self.previous.first.0),
            (168, self.previous.prev.term.0),
            (176, self.previous.prev.index.0),
            (184, self.previous.join.unique),
            (192, self.previous.join.end),
        ] {
            out[at..at + 8].copy_from_slice(&field.to_le_bytes());
        }
        out[136..140].copy_from_slice(&self.join.chain.to_le_bytes());
        out[140..144].copy_from_slice(&copied.crc.to_le_bytes());
        out[200..204].copy_from_slice(&self.previous.join.chain.to_le_bytes());
        out[204..208].copy_from_slice(&u32::from(self.reused).to_le_bytes());
        let crc = crc32c::crc32c(&out[..HEADER_LEN - 4]);
        out[HEADER_LEN - 4..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, BadHeader> {
        if bytes.iter().all(|b| *b == 0) {
            return Err(BadHeader::Zero);
        }
        if bytes[0..8] != MAGIC {
            return Err(BadHeader::Damaged("not a segment header"));
        }
        // The version is looked at first: a newer build may lay out everything else anew.
        match u32_at(bytes, 8) {
            FORMAT => {}
            newer if newer > FORMAT => return Err(BadHeader::Newer(newer)),
            older => return Err(BadHeader::Older(older)),
        }
        if crc32c::crc32c(&bytes[..HEADER_LEN - 4]) != u32_at(bytes, HEADER_LEN - 4) {
            return Err(BadHeader::Damaged("the header's checksum does not match"));
        }
        let word = |at| u64_at(bytes, at);
        let copied = Copied {
            source: Position::new(word(104), word(112)),
            end: word(120),
            last: Index(word(128)),
            crc: u32_at(bytes, 140),
        };
        let mut cluster = [0; 16];
        cluster.copy_from_slice(&bytes[40..56]);
        Ok(Self {
            unique: word(16),
            owner: Owner {
                member: MemberId(word(24)),
                group: word(32),
                cluster: ClusterId(u128::from_le_bytes(cluster)),
                epoch: word(56),
            },
            first: Index(word(64)),
            prev: LogId::new(word(72), word(80)),
            join: Join { unique: word(88), end: word(96), chain: u32_at(bytes, 136) },
            copied: (copied.end != 0).then_some(copied),
            bytes: word(144),
            boot: word(152),
            previous: Previous {
                first: Index(word(160)),
                prev: LogId::new(word(168), word(176)),
                join: Join { unique: word(184), end: word(192), chain: u32_at(bytes, 200) },
            },
            reused: u32_at(bytes, 204) != 0,
        })
    }

    /// The two blocks at the start of a segment, with a copy of the header in each.
    pub(crate) fn blocks(&self) -> Vec<u8> {
        let (mut blocks, header) = (vec![0; 2 * BLOCK_BYTES], self.encode());
        for block in blocks.chunks_exact_mut(BLOCK_BYTES) {
            block[..HEADER_LEN].copy_from_slice(&header);
        }
        blocks
    }

    /// What the header of the next segment repeats of this one.
    pub(crate) const fn repeated(&self) -> Previous {
        Previous { first: self.first, prev: self.prev, join: self.join }
    }
}

/// An open segment, shared by the writer and the readers.
#[derive(Debug)]
pub(crate) struct Segment<F> {
    pub(crate) header: SegmentHeader,
    pub(crate) path: String,
    pub(crate) file: F,
    /// Bytes below are acknowledged and never written again. Published after the sync.
    published: Boundary,
    /// Bytes below were verified by positioned reads in this open: only they are shared (R17).
    verified: Boundary,
    cursor: Mutex<Cursor>,
}

impl<F: DiskFile> Segment<F> {
    /// A segment whose bytes up to `cursor` have been verified in this open.
    pub(crate) fn new(
        header: SegmentHeader,
        path: String,
        file: F,
        published: u64,
        cursor: Cursor,
    ) -> Self {
        let (published, verified) = (Boundary::new(published), Boundary::new(cursor.offset));
        Self { header, path, file, published, verified, cursor: Mutex::new(cursor) }
    }

    pub(crate) fn published(&self) -> u64 {
        self.published.observe()
    }

    /// Everything below `end` is durable and will never change.
    pub(crate) fn publish(&self, end: u64) {
        self.published.publish(end);
    }

    /// Verifies, by positioned reads, whatever below `end` was not verified in this open.
    pub(crate) fn verify_to(&self, end: u64) -> Result<(), String> {
        if end <= self.verified.observe() {
            return Ok(());
        }
        let published = self.published();
        assert!(end <= published, "readers ask only for what was published");
        let mut cursor = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        let mut walk = Walk::new(&self.file, self.header.unique, *cursor, published);
        while walk.cursor.offset < end {
            match walk.step().map_err(|e| e.to_string())? {
                Step::Record(_) => {}
                Step::End(offset) | Step::Blank(offset) => {
                    return Err(format!("{} offset {offset}: nothing is there", self.path));
                }
                Step::Unchained(offset) => {
                    let why = "a record that does not follow its predecessor";
                    return Err(format!("{} offset {offset}: {why}", self.path));
                }
                Step::Bad(offset, why) => {
                    return Err(format!("{} offset {offset}: {why}", self.path));
                }
            }
        }
        *cursor = walk.cursor;
        self.verified.publish(cursor.offset);
        Ok(())
    }
}

/// Where a walk stands.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The next record, or the end of a batch (not yet aligned).
    pub(crate) offset: u64,
    /// CRC of the record before.
    pub(crate) chain: u32,
    /// End of the batch that `offset` is in; `offset` itself between batches.
    pub(crate) batch_end: u64,
}

impl Cursor {
    /// At the first batch of a segment.
    pub(crate) const fn start(header: &SegmentHeader) -> Self {
        Self { offset: FIRST_BATCH, chain: header.join.chain, batch_end: FIRST_BATCH }
    }
}

/// A verified record and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) offset: u64,
    pub(crate) header: Header,
    pub(crate) content: Content,
}

/// One step of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A record that verifies and continues the chain.
    Record(Found),
    /// The limit was reached in order.
    End(u64),
    /// Nothing was ever written here (zeros where a batch would begin).
    Blank(u64),
    /// A record that verifies but does not continue the chain.
    Unchained(u64),
    /// Something that does not verify.
    Bad(u64, String),
}

/// Walks over the records of a segment with positioned reads.
pub(crate) struct Walk<'f, F> {
    window: Window<'f, F>,
    unique: u64,
    limit: u64,
    pub(crate) cursor: Cursor,
}

impl<'f, F: DiskFile> Walk<'f, F> {
    /// A walk from `cursor` up to `limit` (an offset within the file).
    pub(crate) fn new(file: &'f F, unique: u64, cursor: Cursor, limit: u64) -> Self {
        Self { window: Window::new(file, limit), unique, limit, cursor }
    }

    /// The next record. After anything but a record the walk stands still.
    pub(crate) fn step(&mut self) -> io::Result<Step> {
        let mut at = self.cursor;
        let opening = at.offset == at.batch_end;
        if opening {
            at.offset = align_up(at.offset);
            if at.offset >= self.limit {
                return Ok(Step::End(at.offset));
            }
        }
        let bound = if opening { self.limit } else { at.batch_end };
        let (header, content) = match self.record_at(at.offset, bound)? {
            Ok(found) => found,
            Err(None) if opening => return Ok(Step::Blank(at.offset)),
            Err(None) => return Ok(Step::Bad(at.offset, "no record".into())),
            Err(Some(why)) => return Ok(Step::Bad(at.offset, why)),
        };
        if header.chain != at.chain {
            return Ok(Step::Unchained(at.offset));
        }
        if opening != (header.kind == Kind::Batch) {
            return Ok(Step::Bad(at.offset, "a batch does not begin where it must".into()));
        }
        let offset = at.offset;
        at.offset += header.size();
        at.chain = header.crc;
        if let Content::Batch(batch) = &content {
            let len = batch.len;
            let Some(end) = offset.checked_add(len).filter(|end| *end <= self.limit) else {
                return Ok(Step::Bad(offset, "the batch is longer than its segment".into()));
            };
            if len < BATCH_RECORD as u64 || len % 8 != 0 {
                return Ok(Step::Bad(offset, "the batch has an impossible length".into()));
            }
            at.batch_end = end;
        }
        self.cursor = at;
        Ok(Step::Record(Found { offset, header, content }))
    }

    /// Searches the next record behind the cursor, within its batch, that verifies at its place,
    /// and stands there if it is an entry: that one says itself where the log stood before it.
    pub(crate) fn resync_in_batch(&mut self) -> io::Result<bool> {
        let end = self.cursor.batch_end;
        let mut offset = self.cursor.offset + 8;
        while self.cursor.offset < end && offset < end {
            if let Ok((header, _)) = self.record_at(offset, end)?
                && header.kind != Kind::Batch
            {
                if header.kind != Kind::Entry {
                    return Ok(false);
                }
                self.cursor = Cursor { offset, chain: header.chain, batch_end: end };
                return Ok(true);
            }
            offset += 8;
        }
        Ok(false)
    }

    /// Searches the next block behind the cursor that holds a verifying batch header, whatever its
    /// chain says, and stands there. Such a batch is evidence for what is durable and for nothing
    /// else (R9).
    pub(crate) fn resync(&mut self) -> io::Result<bool> {
        let mut offset = align_up(self.cursor.offset + 1);
        while offset < self.limit {
            if let Ok((header, Content::Batch(_))) = self.record_at(offset, self.limit)? {
                self.cursor = Cursor { offset, chain: header.chain, batch_end: offset };
                return Ok(true);
            }
            offset += BLOCK;
        }
        Ok(false)
    }

    /// A record that verifies by itself. `Err(None)` means that its header is all zero.
    pub(crate) fn record_at(
        &mut self,
        offset: u64,
        bound: u64,
    ) -> io::Result<Result<(Header, Content), Option<String>>> {
        let room = bound.min(self.limit).saturating_sub(offset);
        if room < RECORD_HEADER as u64 {
            return Ok(Err(Some("no room for a record".into())));
        }
        let head = self.window.get(offset, RECORD_HEADER)?;
        if head.iter().all(|b| *b == 0) {
            return Ok(Err(None));
        }
        let header = match Header::parse(head) {
            Ok(header) if header.size() <= room => header,
            Ok(_) => return Ok(Err(Some("the record is longer than its place".into()))),
            Err(why) => return Ok(Err(Some(why.into()))),
        };
        let size = RECORD_HEADER + header.len.next_multiple_of(8);
        let record = self.window.get(offset, size)?;
        if !header.verifies(self.unique, offset, record) {
            return Ok(Err(Some(format!(
                "the checksum of the {} does not match",
                header.kind.word()
            ))));
        }
        Ok(match Content::decode(&header, record) {
            Ok(content) => Ok((header, content)),
            Err(why) => Err(Some(format!("undecodable {}: {why}", header.kind.word()))),
        })
    }
}

/// A buffer over positioned reads.
struct Window<'f, F> {
    file: &'f F,
    limit: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl<'f, F: DiskFile> Window<'f, F> {
    const AHEAD: u64 = 256 << 10;

    fn new(file: &'f F, limit: u64) -> Self {
        Self { file, limit, start: 0, buffer: Vec::new() }
    }

    /// `len` bytes at `offset`; the caller has checked that they lie below the limit.
    fn get(&mut self, offset: u64, len: usize) -> io::Result<&[u8]> {
        let inside =
            offset >= self.start && offset + len as u64 <= self.start + self.buffer.len() as u64;
        if !inside {
            let want = (len as u64).max(Self::AHEAD).min(self.limit - offset);
            let want = usize::try_from(want).map_err(io::Error::other)?;
            self.buffer.resize(want, 0);
            // An error leaves nothing that could be taken for content.
            if let Err(e) = self.file.read_at(offset, &mut self.buffer) {
                self.buffer.clear();
                return Err(e);
            }
            self.start = offset;
        }
        let at = usize::try_from(offset - self.start).map_err(io::Error::other)?;
        Ok(&self.buffer[at..at + len])
    }
}
