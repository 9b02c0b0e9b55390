//! The first half of recovery: find the segments, follow their chain, read every record with
//! positioned reads, collect the facts, and let the tables of `verdict` decide what is kept, torn
//! or damaged (R9, R12 to R16). Nothing is written here.

use crate::chain::{Chain, Link};
use crate::disk::{Disk, DiskFile, Mode};
use crate::fault::unread;
use crate::judge::Judge;
use crate::position::{BLOCK, LOG_DIR, Name, Position};
use crate::record::{Content, Kind};
use crate::segment::{
    BadHeader, Cursor, FIRST_BATCH, FORMAT, Found, HEADER_COPY, HEADER_LEN, SegmentHeader, Step,
    Walk,
};
use crate::verdict::{Bytes, Copying, Head, Length, Named, SegmentFacts, Stand, Whole, Written};
use holdfast_consensus::Index;
use holdfast_consensus::fault::LogFault;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

/// The remedy that every refusal over damage names.
pub(crate) const REMEDY: &str = "nothing was changed; look at it with `holdfast log verify`, then restore the disk or put \
     the data directory back as it was last, never an older copy. If that is not possible, keep the directory and run \
     on with the others as long as they are a majority; this version cannot replace a member";

/// The files of the log's directory.
#[derive(Debug)]
pub(crate) struct Inventory<F> {
    /// Segments by unique id.
    pub(crate) segments: BTreeMap<u64, Loaded<F>>,
    /// Numbers of complete spares, with their length.
    pub(crate) spares: Vec<(u64, u64)>,
    /// Paths of unfinished spares.
    pub(crate) unfinished: Vec<String>,
    /// Highest number in any name: no unique id is ever used twice.
    pub(crate) highest: u64,
    /// The newest segment as it was noted beside the segments; zero if nothing was.
    pub(crate) newest: u64,
    /// How many threads may read segments at once.
    lanes: usize,
}

/// A segment file with its header.
#[derive(Debug)]
pub(crate) struct Loaded<F> {
    pub(crate) path: String,
    pub(crate) file: F,
    pub(crate) bytes: u64,
    pub(crate) header: Result<SegmentHeader, BadHeader>,
    /// What became of the two copies of the header.
    pub(crate) head: Head,
}

/// Lists the directory and reads the headers. `mode` is how the files are opened.
pub(crate) fn inventory<D: Disk>(disk: &D, mode: Mode) -> Result<Inventory<D::File>, LogFault> {
    let mut found = Inventory {
        segments: BTreeMap::new(),
        spares: Vec::new(),
        unfinished: Vec::new(),
        highest: 0,
        newest: 0,
        lanes: disk.lanes(),
    };
    let names = match disk.list(LOG_DIR) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        names => names.map_err(|e| unread("open the log", &e))?,
    };
    found.newest =
        crate::newest::read(disk).map_err(|e| unread("read the note of the newest segment", &e))?;
    found.highest = found.newest;
    for name in names.iter().filter_map(|name| Name::parse(name)) {
        found.highest = found.highest.max(name.number());
        let path = name.path();
        match name {
            // It is removed by a start, which must not begin before it is known that it can be.
            Name::Unfinished { .. } if disk.is_dir(&path).unwrap_or(false) => {
                return Err(unread("open a spare", &no_file(&path)));
            }
            Name::Unfinished { .. } => found.unfinished.push(path),
            Name::Spare { number } => {
                let bytes = disk.open(&path, Mode::Read).and_then(|file| file.len());
                found.spares.push((number, bytes.map_err(|e| unread("open a spare", &e))?));
            }
            Name::Segment { first, unique } => {
                let loaded = load(disk, path, mode, first, unique)?;
                if let Some(other) = found.segments.insert(unique, loaded) {
                    let why = format!("two segments carry the unique id {unique}");
                    return Err(damaged(&other.path, 0, Index(first), Index(first), &why));
                }
            }
        }
    }
    Ok(found)
}

fn no_file(path: &str) -> io::Error {
    let kind = io::ErrorKind::IsADirectory;
    io::Error::new(kind, format!("{path}: {}", io::Error::from(kind)))
}

fn load<D: Disk>(
    disk: &D,
    path: String,
    mode: Mode,
    first: u64,
    unique: u64,
) -> Result<Loaded<D::File>, LogFault> {
    let read = || -> io::Result<(D::File, u64, [[u8; HEADER_LEN]; 2])> {
        let file = disk.open(&path, mode)?;
        let (bytes, mut heads) = (file.len()?, [[0; HEADER_LEN]; 2]);
        for (head, offset) in heads.iter_mut().zip([0, HEADER_COPY]) {
            if bytes >= offset + BLOCK {
                file.read_at(offset, head)?;
            }
        }
        Ok((file, bytes, heads))
    };
    let (file, bytes, heads) = read().map_err(|e| unread("read a segment header", &e))?;
    let decode = |bytes: &[u8; HEADER_LEN]| match SegmentHeader::decode(bytes) {
        Ok(header) if header.unique != unique || header.first.0 != first => {
            Err(BadHeader::Damaged("the header belongs to another name"))
        }
        header => header,
    };
    let (header, head) = match heads.each_ref().map(decode) {
        [Ok(header), Ok(_)] => (Ok(header), Head::Both),
        [Ok(header), Err(_)] | [Err(_), Ok(header)] => (Ok(header), Head::One),
        [Err(BadHeader::Zero), Err(BadHeader::Zero)] => (Err(BadHeader::Zero), Head::Zero),
        [Err(BadHeader::Newer(theirs)), Err(_)] | [Err(_), Err(BadHeader::Newer(theirs))] => {
            (Err(BadHeader::Newer(theirs)), Head::Newer)
        }
        [Err(BadHeader::Zero), Err(bad)] | [Err(bad), Err(_)] => (Err(bad), Head::Bad),
    };
    if let Err(BadHeader::Newer(theirs) | BadHeader::Older(theirs)) = header {
        let remedy = if theirs > FORMAT {
            "install the newer build"
        } else {
            "it comes from before the first release; use the build that wrote it"
        };
        return Err(LogFault::Refused(format!(
            "{path} has log format {theirs}, this build reads {FORMAT}: nothing was changed; {remedy}"
        )));
    }
    Ok(Loaded { path, file, bytes, header, head })
}

/// What was read of one segment before anything is decided.
#[derive(Debug, Default)]
pub(crate) struct Raw {
    /// Every record that verifies, in order.
    pub(crate) records: Vec<Found>,
    /// Every place that does not, with the number of records before it.
    pub(crate) bad: Vec<(usize, Unread)>,
    /// Where the walk ended.
    pub(crate) end: u64,
    /// The highest position that a batch or a watermark among the records names as durable.
    pub(crate) durable: Position,
}

/// A stretch of a segment in which nothing verifies.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) bytes: Bytes,
    pub(crate) why: String,
}

/// What is proved, and where the cut is.
#[derive(Debug)]
pub(crate) struct Proof {
    /// From the oldest segment to the one that holds the cut.
    pub(crate) links: Vec<Link>,
    /// Proved durable position D.
    pub(crate) durable: Position,
    /// Where the log ends, and why it ends there.
    pub(crate) cut: (Position, String),
    /// Why the member is held, if it is: then nothing may be written.
    pub(crate) held: Option<String>,
}

/// Reads the whole log. With `limit` (reopening in one process, R12), what lies at or behind it
/// never counts, and everything before it must be there.
pub(crate) fn prove<F: DiskFile>(
    found: &Inventory<F>,
    limit: Option<Position>,
) -> Result<Proof, LogFault> {
    let mut below = limit.map_or(u64::MAX, |l| l.segment.saturating_add(1));
    loop {
        let chain = Chain::below(found, below)?;
        let raws = read_all(found, &chain.links, limit.map(|l| l.offset));
        let raws = raws.map_err(|e| unread("read the log", &e))?;
        let durable = limit.unwrap_or_else(|| evidence(&raws));
        let unwritten = chain.unwritten_stay_unnamed(found, durable)?;
        let judge = Judge::new(found, durable, &chain.links, &raws)?;
        let mut proof = judge.all(chain.links, raws)?;
        proof.held = chain.held.or(unwritten).or(proof.held);
        if proof.held.is_some() {
            return Ok(proof);
        }
        match void_copy(&proof) {
            Ok(Some(unique)) => below = unique,
            Ok(None) => return Ok(finish(proof)),
            Err(why) => {
                proof.held = Some(why);
                return Ok(proof);
            }
        }
    }
}

/// R9: D is the highest position that any verifying batch or watermark names.
fn evidence(raws: &[Raw]) -> Position {
    let later = |a: Position, b: Position| if a.before(b) { b } else { a };
    raws.iter().map(|raw| raw.durable).fold(Position::default(), later)
}

/// Reads every segment, on as many threads as the disk is worth. What is found in a segment depends
/// on its file and its successor's header alone, and is put back in order: the threads change nothing
/// but the time. Of several failures the one of the oldest segment is reported.
fn read_all<F: DiskFile>(
    found: &Inventory<F>,
    links: &[Link],
    limit: Option<u64>,
) -> io::Result<Vec<Raw>> {
    let lanes = found.lanes.min(links.len());
    let one = |n: usize| {
        let next = links.get(n + 1).map(|next| next.header.join.end);
        read(found, &links[n], next.or(limit))
    };
    if lanes <= 1 {
        return (0..links.len()).map(one).collect();
    }
    let queue = Mutex::new(0..links.len());
    let lane = || {
        let mut done = Vec::new();
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(n) = next else { return done };
            done.push((n, one(n)));
        }
    };
    let mut done = std::thread::scope(|scope| {
        // A thread that cannot be had is one lane less: this one reads whatever is left.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, lane).ok();
        let others: Vec<_> = (1..lanes).filter_map(spawn).collect();
        let mut done = lane();
        for other in others {
            match other.join() {
                Ok(theirs) => done.extend(theirs),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, raw)| raw).collect()
}

/// Reads one segment up to `end`, where its successor says that it ends.
fn read<F: DiskFile>(found: &Inventory<F>, link: &Link, end: Option<u64>) -> io::Result<Raw> {
    let mut raw = Raw::default();
    let Some(loaded) = found.segments.get(&link.header.unique) else {
        raw.end = end.unwrap_or(FIRST_BATCH);
        raw.unread(FIRST_BATCH, raw.end, Bytes::Blank, "the file is missing".into());
        return Ok(raw);
    };
    let whole = loaded.bytes - loaded.bytes % BLOCK;
    let limit = end.unwrap_or(whole).min(whole);
    let mut walk = Walk::new(&loaded.file, link.header.unique, Cursor::start(&link.header), limit);
    loop {
        let (offset, bytes, why) = match walk.step()? {
            Step::Record(found) => {
                raw.named(&found);
                raw.records.push(found);
                continue;
            }
            Step::End(offset) => {
                raw.end = end.unwrap_or(offset);
                let why = "the file ends before its successor says";
                raw.unread(offset.max(FIRST_BATCH), raw.end, Bytes::Blank, why.into());
                return Ok(raw);
            }
            Step::Blank(offset) => (offset, Bytes::Blank, "nothing is there".to_owned()),
            Step::Unchained(offset) => {
                let why = "the record does not follow its predecessor";
                (offset, Bytes::Unchained, why.to_owned())
            }
            Step::Bad(offset, why) => (offset, Bytes::Bad, why),
        };
        let more = walk.resync_in_batch()? || walk.resync()?;
        let (bytes, why) = match bytes {
            // What the file held before. A torn batch looks the same, and is cut like it.
            Bytes::Bad if !more && link.header.reused && offset % BLOCK == 0 => {
                (Bytes::Blank, "nothing was written here since the file was used again".to_owned())
            }
            _ => (bytes, why),
        };
        let to = if more { walk.cursor.offset } else { end.unwrap_or(limit) };
        raw.unread(offset, to, bytes, why);
        if !more {
            raw.end = to;
            return Ok(raw);
        }
    }
}

impl Raw {
    /// Takes note of what a record names as durable.
    fn named(&mut self, record: &Found) {
        let named = match &record.content {
            Content::Batch(batch) => batch.head.durable,
            Content::Watermark { at, .. } => *at,
            _ => return,
        };
        if self.durable.before(named) {
            self.durable = named;
        }
    }

    fn unread(&mut self, from: u64, to: u64, bytes: Bytes, why: String) {
        if from < to {
            self.bad.push((self.records.len(), Unread { from, to, bytes, why }));
        }
    }
}

/// R12: a copy that does not verify to the end that its header names, and from which nothing was
/// reported, is void. Returns the segment that holds it.
fn void_copy(proof: &Proof) -> Result<Option<u64>, String> {
    let at = proof.cut.0;
    let holder = proof.links.iter().position(|link| link.header.unique == at.segment);
    let Some(n) = holder else { return Ok(None) };
    let link = &proof.links[n];
    let partial = link.header.copied.is_some_and(|copied| at.offset < copied.end);
    let facts = SegmentFacts {
        head: link.head,
        stand: if n + 1 < proof.links.len() { Stand::Inside } else { Stand::Newest },
        written: if link.records.is_empty() { Written::Nothing } else { Written::Something },
        named: if proof.durable.segment >= at.segment { Named::Yes } else { Named::No },
        length: Length::Whole,
        copying: if partial { Copying::Partial } else { Copying::Complete },
    };
    let row = crate::verdict::segment(facts);
    match row.verdict {
        Whole::Void => Ok(Some(at.segment)),
        Whole::Held if partial => Err(held(&link.path, at.offset, row.name, row.why)),
        _ => Ok(None),
    }
}

/// Why the member is held: the place, the row, and the remedy (R5, R14).
pub(crate) fn held(path: &str, offset: u64, row: &str, why: &str) -> String {
    format!("{path} at offset {offset}: {why} (row {row}); {REMEDY}")
}

pub(crate) fn damaged(path: &str, offset: u64, first: Index, last: Index, why: &str) -> LogFault {
    LogFault::Damaged { first, last, detail: format!("{path} at offset {offset}: {why}; {REMEDY}") }
}

fn finish(mut proof: Proof) -> Proof {
    drop_half_truncation(&mut proof);
    // Segments behind the last record hold nothing.
    let last = proof.links.iter().rposition(|link| !link.records.is_empty());
    let holding = last.map_or(proof.links.len().min(1), |at| at + 1);
    proof.links.truncate(holding);
    proof
}

/// A truncation counts only with its whole replacement (R3), unless both are proved.
fn drop_half_truncation(proof: &mut Proof) {
    let mut entries = 0u64;
    for at in (0..proof.links.len()).rev() {
        let link = &proof.links[at];
        for (n, found) in link.records.iter().enumerate().rev() {
            // A truncation here or further back is proved.
            if Position::new(link.header.unique, found.offset).before(proof.durable) {
                return;
            }
            match found.content {
                Content::Entry(_) => entries += 1,
                Content::Lost { .. } if found.header.kind == Kind::Entry => entries += 1,
                Content::Gap(_) => return,
                Content::Truncate { needs } => {
                    if entries < u64::from(needs) {
                        proof.links.truncate(at + 1);
                        proof.links[at].records.truncate(n);
                    }
                    return;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
