//! The records of a log one by one, for people: of whatever size the log is, a piece of one segment
//! is held at a time. Nothing is judged here; a place where nothing verifies is told as such.

use crate::disk::{Disk, DiskFile};
use crate::fault::unread;
use crate::inspect::look;
use crate::record::{Content, Header, shared_entry};
use crate::segment::{BadHeader, Cursor, Found, SegmentHeader, Step, Walk};
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::{Entry, Index, Term};
use serde::Serialize;
use std::collections::VecDeque;
use std::io;

/// Records that are read together, so that the file is read once and not once for each of them.
const TOGETHER: usize = 512;

/// One record, or one place where none verifies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordInfo {
    /// Unique id of the segment.
    pub segment: u64,
    /// Its file, relative to the data directory.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// `batch`, `entry`, `truncate`, `watermark`, `base`, `meta`, `seal`, `index`, `repair`,
    /// `header`, or `none` where nothing verifies.
    pub kind: &'static str,
    /// Term (of a batch: its hard state's).
    pub term: Term,
    /// Index, zero where the kind has none.
    pub index: Index,
    /// Length of the whole record in bytes.
    pub len: u64,
    /// True if checksum and chain verify.
    pub ok: bool,
    /// What the record says, or why it does not verify.
    pub detail: String,
}

/// The records of a log, segment by segment.
///
/// # Errors
/// [`LogFault::Refused`] if a newer build wrote it, or what the disk says.
pub fn records<D: Disk>(disk: &D) -> Result<Records<D>, LogFault> {
    let found = look(disk)?;
    let files =
        found.segments.into_iter().rev().map(|(unique, loaded)| {
            (unique, loaded.path, loaded.file, loaded.bytes, loaded.header)
        });
    Ok(Records { files: files.collect(), current: None, ready: VecDeque::new() })
}

type File<F> = (u64, String, F, u64, Result<SegmentHeader, BadHeader>);

/// Iterator over the records of a log. See [`records`]. It holds a piece of one segment at a time,
/// however large the log is.
pub struct Records<D: Disk> {
    /// Segments still to come, the next one last.
    files: Vec<File<D::File>>,
    /// The segment under way, and where to go on in it.
    current: Option<(File<D::File>, Option<Cursor>)>,
    /// Read of it already.
    ready: VecDeque<Result<RecordInfo, LogFault>>,
}

impl<D: Disk> Records<D> {
    /// The entry that a record holds, of the segment whose record came last. `None` if it holds none,
    /// or if a live node has given the segment up since and its file holds something else.
    ///
    /// # Errors
    /// What the disk says.
    pub fn entry(&self, record: &RecordInfo) -> Result<Option<Entry>, LogFault> {
        let Some(((unique, _, file, ..), _)) = &self.current else { return Ok(None) };
        if *unique != record.segment || !record.ok || !matches!(record.kind, "entry" | "repair") {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(record.len).unwrap_or_default()];
        file.read_at(record.offset, &mut bytes).map_err(|e| unread("read a record", &e))?;
        let same = |header: Header| header.verifies(*unique, record.offset, &bytes);
        if !Header::parse(&bytes).is_ok_and(same) {
            return Ok(None);
        }
        Ok(shared_entry(&bytes.into()).ok())
    }
}

impl<D: Disk> Iterator for Records<D> {
    type Item = Result<RecordInfo, LogFault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(info) = self.ready.pop_front() {
                return Some(info);
            }
            let Some((file, cursor)) = &mut self.current else {
                let file = self.files.pop()?;
                let (info, cursor) = header_info(&file);
                let cursor = match cursor.map_or_else(|| first_batch(&file), |at| Ok(Some(at))) {
                    Ok(cursor) => cursor,
                    Err(e) => return Some(Err(unread("read a segment", &e))),
                };
                self.current = Some((file, cursor));
                return Some(Ok(info));
            };
            let Some(at) = cursor.take() else {
                self.current = None;
                continue;
            };
            match several(file, at, &mut self.ready) {
                Ok(next) => *cursor = next,
                // Behind the records that were read before it failed.
                Err(e) => self.ready.push_back(Err(unread("read a segment", &e))),
            }
        }
    }
}

fn header_info<F>((unique, path, _, _, header): &File<F>) -> (RecordInfo, Option<Cursor>) {
    let (ok, term, index, detail, cursor) = match header {
        Ok(h) => {
            let detail = format!(
                "member {} group {} cluster {} epoch {}; follows {} behind segment {} offset {}{}",
                h.owner.member,
                h.owner.group,
                h.owner.cluster,
                h.owner.epoch,
                h.prev,
                h.join.unique,
                h.join.end,
                if h.copied.is_some() { "; begins with a copy" } else { "" },
            );
            (true, h.prev.term, h.first, detail, Some(Cursor::start(h)))
        }
        Err(bad) => (false, Term(0), Index(0), format!("{bad:?}"), None),
    };
    let (segment, file, len) = (*unique, path.clone(), crate::segment::HEADER_LEN as u64);
    let info =
        RecordInfo { segment, file, offset: 0, kind: "header", term, index, len, ok, detail };
    (info, cursor)
}

/// Where the records of a segment begin whose header does not say it: they verify under the unique id
/// in the file's name (row S8 and others), and a dump that passed over them would hide what is there.
fn first_batch<F: DiskFile>((unique, _, file, bytes, _): &File<F>) -> io::Result<Option<Cursor>> {
    let start = Cursor { offset: 0, chain: 0, batch_end: 0 };
    let mut walk = Walk::new(file, *unique, start, *bytes);
    Ok(walk.resync()?.then_some(walk.cursor))
}

/// Reads some records from `at` on. Returns where to go on, if anything follows.
fn several<F: DiskFile>(
    (unique, path, file, bytes, _): &File<F>,
    at: Cursor,
    ready: &mut VecDeque<Result<RecordInfo, LogFault>>,
) -> io::Result<Option<Cursor>> {
    let mut walk = Walk::new(file, *unique, at, *bytes);
    while ready.len() < TOGETHER {
        let (offset, why) = match walk.step()? {
            Step::Record(found) => {
                ready.push_back(Ok(record_info(*unique, path, &found)));
                continue;
            }
            Step::End(_) => return Ok(None),
            Step::Blank(offset) => (offset, "nothing is here".to_owned()),
            Step::Bad(offset, why) => (offset, why),
            Step::Unchained(offset) => {
                (offset, "the record does not follow its predecessor".to_owned())
            }
        };
        if walk.resync_in_batch()? || walk.resync()? {
            ready.push_back(Ok(bad_info(*unique, path, offset, &why)));
            continue;
        }
        // Zeros up to the end are how every segment in use ends.
        if behind(file, offset, *bytes)? {
            let why = "nothing verifies from here on";
            ready.push_back(Ok(bad_info(*unique, path, offset, why)));
        }
        return Ok(None);
    }
    Ok(Some(walk.cursor))
}

fn bad_info(segment: u64, path: &str, offset: u64, why: &str) -> RecordInfo {
    RecordInfo {
        segment,
        file: path.to_owned(),
        offset,
        kind: "none",
        term: Term(0),
        index: Index(0),
        len: 0,
        ok: false,
        detail: why.to_owned(),
    }
}

fn record_info(segment: u64, path: &str, found: &Found) -> RecordInfo {
    let detail = match &found.content {
        Content::Batch(batch) => format!(
            "vote {}, durable up to segment {} offset {} sequence {}; {} records in {} bytes, sequence {}",
            batch.head.hard.voted_for.map_or("none".into(), |m| m.to_string()),
            batch.head.durable.segment,
            batch.head.durable.offset,
            batch.head.durable.seq,
            batch.records,
            batch.len,
            batch.head.seq,
        ),
        Content::Entry(facts) | Content::Repair(facts) => format!(
            "time {} us, crc {:08x}{}",
            facts.time,
            facts.crc,
            if facts.membership.is_some() { ", configuration" } else { "" }
        ),
        Content::Truncate { needs } => format!("cut from here, with {needs} entries in its place"),
        Content::Watermark { at, commit } => format!(
            "durable up to segment {} offset {} sequence {}, commit {commit}",
            at.segment, at.offset, at.seq
        ),
        Content::Base { kept, meta } => format!(
            "base of a snapshot, time {} us, suffix {}",
            meta.time,
            if *kept { "kept" } else { "dropped" }
        ),
        Content::Meta(meta) => format!("start {}, commit {}", meta.boot, meta.commit),
        Content::Seal => "the segment is full".into(),
        Content::Index => "what the batches before it hold".into(),
        Content::Lost { .. } | Content::LostBatch { .. } | Content::Gap(_) => "damaged".into(),
    };
    RecordInfo {
        segment,
        file: path.to_owned(),
        offset: found.offset,
        kind: found.header.kind.word(),
        term: found.header.id.term,
        index: found.header.id.index,
        len: found.header.size(),
        ok: true,
        detail,
    }
}

/// True if anything but zeros follows.
pub(crate) fn behind<F: DiskFile>(file: &F, mut from: u64, to: u64) -> io::Result<bool> {
    let mut piece = vec![0; 64 << 10];
    while from < to {
        let len = usize::try_from(to - from).unwrap_or(piece.len()).min(piece.len());
        file.read_at(from, &mut piece[..len])?;
        if piece[..len].iter().any(|b| *b != 0) {
            return Ok(true);
        }
        from += len as u64;
    }
    Ok(false)
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
