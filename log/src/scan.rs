//! The first half of recovery: find the segments, follow their chain, read every record with
//! positioned reads, and decide by the proved position D what is kept, torn or damaged (R9, R12,
//! R13, R16). Nothing is written here.

use crate::disk::{Disk, DiskFile, Mode};
use crate::fault::poison;
use crate::position::{LOG_DIR, Name, Position, align_up};
use crate::record::Content;
use crate::segment::{
    BadHeader, Cursor, FIRST_BATCH, FORMAT, Found, HEADER_LEN, SegmentHeader, Step, Walk,
};
use holdfast_consensus::Index;
use holdfast_consensus::fault::LogFault;
use std::collections::BTreeMap;
use std::io;

/// The remedy that every refusal over damage names.
pub(crate) const REMEDY: &str = "nothing was changed; look at it with `holdfast log verify`, then either restore the \
     disk or set this data directory aside and let the node join again as a new member";

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
}

/// A segment file with its header.
#[derive(Debug)]
pub(crate) struct Loaded<F> {
    pub(crate) path: String,
    pub(crate) file: F,
    pub(crate) bytes: u64,
    pub(crate) header: Result<SegmentHeader, BadHeader>,
}

/// Lists the directory and reads the headers. `mode` is how the files are opened.
pub(crate) fn inventory<D: Disk>(disk: &D, mode: Mode) -> Result<Inventory<D::File>, LogFault> {
    let mut found = Inventory {
        segments: BTreeMap::new(),
        spares: Vec::new(),
        unfinished: Vec::new(),
        highest: 0,
    };
    let names = match disk.list(LOG_DIR) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        names => names.map_err(|e| poison("open the log", e))?,
    };
    for name in names.iter().filter_map(|name| Name::parse(name)) {
        found.highest = found.highest.max(name.number());
        let path = name.path();
        match name {
            Name::Unfinished { .. } => found.unfinished.push(path),
            Name::Spare { number } => {
                let bytes = disk.open(&path, Mode::Read).and_then(|file| file.len());
                found.spares.push((number, bytes.map_err(|e| poison("open a spare", e))?));
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

fn load<D: Disk>(
    disk: &D,
    path: String,
    mode: Mode,
    first: u64,
    unique: u64,
) -> Result<Loaded<D::File>, LogFault> {
    let read = || -> io::Result<(D::File, u64, [u8; HEADER_LEN])> {
        let file = disk.open(&path, mode)?;
        let (bytes, mut head) = (file.len()?, [0; HEADER_LEN]);
        if bytes >= FIRST_BATCH {
            file.read_at(0, &mut head)?;
        }
        Ok((file, bytes, head))
    };
    let (file, bytes, head) = read().map_err(|e| poison("read a segment header", e))?;
    let header = match SegmentHeader::decode(&head) {
        Err(BadHeader::Newer(theirs)) => {
            return Err(LogFault::Refused(format!(
                "{path} has log format {theirs}, this build reads {FORMAT}: nothing was changed; install the newer build"
            )));
        }
        Ok(header) if header.unique != unique || header.first.0 != first => {
            Err(BadHeader::Damaged("the header belongs to another name"))
        }
        header => header,
    };
    // A segment has its whole length, durably, before its header is written: a shorter file is no
    // tail that was never synced. [A file cut short by a tool read as torn, and the member came
    // back without what it had acknowledged.]
    if let Ok(head) = &header
        && bytes < head.bytes
    {
        let why = format!(
            "the file is {bytes} bytes long and was {} when it was made: it became shorter",
            head.bytes
        );
        return Err(damaged(&path, bytes, head.first, head.first, &why));
    }
    Ok(Loaded { path, file, bytes, header })
}

/// Everything that verified up to the cut, and where the cut is.
#[derive(Debug)]
pub(crate) struct Proof {
    /// Unique ids from the oldest segment to the one that holds the cut.
    pub(crate) chain: Vec<u64>,
    /// Records of each segment of the chain.
    pub(crate) records: Vec<Vec<Found>>,
    /// Where each segment of the chain ends.
    pub(crate) ends: Vec<u64>,
    /// Proved durable position D.
    pub(crate) durable: Position,
}

/// Reads the whole log. With `limit` (reopening in one process, R12), what lies at or behind it
/// never counts, and everything before it must be there.
pub(crate) fn prove<F: DiskFile>(
    found: &Inventory<F>,
    limit: Option<Position>,
) -> Result<Proof, LogFault> {
    let mut below = limit.map_or(u64::MAX, |l| l.segment.saturating_add(1));
    loop {
        let chain = chain_below(found, below)?;
        let mut scan = Scan::of(found, &chain, limit)?;
        if let Some(limit) = limit {
            scan.durable = limit;
        }
        let Some((at, why)) = scan.end(&chain) else { return Ok(scan.finish(chain)) };
        if at.before(scan.durable) {
            let path = found.segments.get(&at.segment).map_or("", |s| s.path.as_str());
            let first = scan.next_index(found, &chain);
            let why = format!(
                "{why}; bytes up to segment {} offset {} are known durable",
                scan.durable.segment, scan.durable.offset
            );
            return Err(damaged(path, at.offset, first, first.max(scan.highest), &why));
        }
        // R12: a copy that does not verify to the end its header names is void.
        match void_copy(found, at) {
            true => below = at.segment,
            false => return Ok(scan.finish(chain)),
        }
    }
}

fn void_copy<F>(found: &Inventory<F>, at: Position) -> bool {
    let header = found.segments.get(&at.segment).and_then(|s| s.header.as_ref().ok());
    header.and_then(|h| h.copied).is_some_and(|copied| at.offset < copied.end)
}

pub(crate) fn damaged(path: &str, offset: u64, first: Index, last: Index, why: &str) -> LogFault {
    LogFault::Damaged { first, last, detail: format!("{path} at offset {offset}: {why}; {REMEDY}") }
}

/// The chain of segments that ends in the newest one below the unique id `below`, oldest first.
fn chain_below<F: DiskFile>(found: &Inventory<F>, mut below: u64) -> Result<Vec<u64>, LogFault> {
    let newest = loop {
        let Some((unique, loaded)) = found.segments.range(..below).next_back() else {
            if let Some(loaded) = found.segments.values().next() {
                let why = "no segment of the log can be used";
                return Err(damaged(&loaded.path, 0, Index(1), Index(1), why));
            }
            return Ok(Vec::new());
        };
        match &loaded.header {
            Ok(_) => break *unique,
            Err(bad) => {
                assert_nothing_was_written(*unique, loaded, bad)?;
                below = *unique;
            }
        }
    };
    let (mut chain, mut at) = (vec![newest], newest);
    loop {
        let loaded = found.segments.get(&at);
        let Some(header) = loaded.and_then(|l| l.header.as_ref().ok()) else {
            let path = loaded.map_or("", |l| l.path.as_str());
            let why = "the header of a segment inside the log does not verify";
            return Err(damaged(path, 0, Index(0), Index(0), why));
        };
        let prev = header.join.unique;
        if prev >= at {
            let path = loaded.map_or("", |l| l.path.as_str());
            return Err(damaged(path, 0, header.first, header.first, "it follows a later segment"));
        }
        if found.segments.contains_key(&prev) {
            chain.push(prev);
            at = prev;
            continue;
        }
        // Segments are given up oldest first, one directory sync each: an older one that is
        // still there proves that the missing one was lost and not compacted.
        if let Some((_, older)) = found.segments.range(..prev).next_back() {
            let why = format!("segment {prev} behind it is missing");
            let first = older.header.as_ref().map_or(Index(0), |h| h.first);
            return Err(damaged(&older.path, 0, first, header.first.prev(), &why));
        }
        chain.reverse();
        return Ok(chain);
    }
}

/// R16: a header that does not verify belongs to an empty segment only if no record in the file
/// verifies under the unique id in its name (and it is the last, which the caller has seen).
fn assert_nothing_was_written<F: DiskFile>(
    unique: u64,
    loaded: &Loaded<F>,
    bad: &BadHeader,
) -> Result<(), LogFault> {
    let start = Cursor { offset: 0, chain: 0, batch_end: 0 };
    let mut walk = Walk::new(&loaded.file, unique, start, loaded.bytes);
    if walk.resync().map_err(|e| poison("read a segment", e))? {
        let why = format!("its header does not verify ({bad:?}) but records of it do");
        return Err(damaged(&loaded.path, 0, Index(0), Index(0), &why));
    }
    Ok(())
}

/// One pass over a chain.
struct Scan {
    records: Vec<Vec<Found>>,
    ends: Vec<u64>,
    durable: Position,
    /// The first place that does not verify.
    broken: Option<(Position, String)>,
    /// Highest entry index seen anywhere.
    highest: Index,
}

impl Scan {
    fn of<F: DiskFile>(
        found: &Inventory<F>,
        chain: &[u64],
        limit: Option<Position>,
    ) -> Result<Self, LogFault> {
        let mut scan = Self {
            records: Vec::new(),
            ends: Vec::new(),
            durable: Position::default(),
            broken: None,
            highest: Index(0),
        };
        for (at, unique) in chain.iter().enumerate() {
            let Some(loaded) = found.segments.get(unique) else { continue };
            let Ok(header) = &loaded.header else { continue };
            let next = chain.get(at + 1).and_then(|u| found.segments.get(u));
            let join = next.and_then(|l| l.header.as_ref().ok()).map(|h| h.join);
            let end = join.map(|j| j.end).or(limit.map(|l| l.offset));
            scan.segment(loaded, header, end).map_err(|e| poison("read the log", e))?;
            let chain_end = scan.records.last().and_then(|r| r.last());
            let crc = chain_end.map_or(header.join.chain, |found| found.header.crc);
            if let (Some(join), None) = (join, &scan.broken)
                && join.chain != crc
            {
                let at = Position::new(*unique, join.end);
                scan.broken = Some((at, "its successor continues another history".into()));
            }
        }
        Ok(scan)
    }

    fn segment<F: DiskFile>(
        &mut self,
        loaded: &Loaded<F>,
        header: &SegmentHeader,
        end: Option<u64>,
    ) -> io::Result<()> {
        let whole = loaded.bytes - loaded.bytes % crate::position::BLOCK;
        let limit = end.unwrap_or(whole).min(whole);
        let mut walk = Walk::new(&loaded.file, header.unique, Cursor::start(header), limit);
        let (mut records, mut cut) = (Vec::new(), limit);
        loop {
            let (offset, why) = match walk.step()? {
                Step::Record(found) => {
                    self.evidence(&found);
                    if self.broken.is_none() {
                        records.push(*found);
                    }
                    continue;
                }
                Step::End(offset) if end.is_none_or(|end| end == offset) => break,
                Step::End(offset) => (offset, "the file ends before its successor says".into()),
                Step::Blank(offset) => (offset, "nothing is there".to_owned()),
                Step::Bad(offset, why) => (offset, why),
            };
            if self.broken.is_none() {
                cut = offset;
                self.broken = Some((Position::new(header.unique, offset), why));
            }
            if !walk.resync()? {
                break;
            }
        }
        self.records.push(records);
        self.ends.push(align_up(cut));
        Ok(())
    }

    fn evidence(&mut self, found: &Found) {
        match &found.content {
            Content::Batch { head, .. } if self.durable.before(head.durable) => {
                self.durable = head.durable;
            }
            Content::Watermark { at, .. } if self.durable.before(*at) => self.durable = *at,
            Content::Entry { .. } => self.highest = self.highest.max(found.header.id.index),
            _ => {}
        }
    }

    /// The index that would follow the last entry that verified.
    fn next_index<F>(&self, found: &Inventory<F>, chain: &[u64]) -> Index {
        let last = self.records.iter().flatten().rev().find_map(|r| match r.content {
            Content::Entry { .. } => Some(r.header.id.index.next()),
            Content::Truncate { .. } => Some(r.header.id.index),
            _ => None,
        });
        let header = || found.segments.get(chain.first()?)?.header.as_ref().ok();
        last.or_else(|| header().map(|h| h.first)).unwrap_or(Index(1))
    }

    /// Where the verified log ends, and what is there.
    fn end(&self, chain: &[u64]) -> Option<(Position, String)> {
        self.broken.clone().or_else(|| {
            let end = Position::new(*chain.last()?, *self.ends.last()?);
            Some((end, "the last segment ends".to_owned()))
        })
    }

    fn finish(mut self, mut chain: Vec<u64>) -> Proof {
        self.drop_half_truncation(&chain);
        // Segments behind the last record hold nothing.
        let last = self.records.iter().rposition(|r| !r.is_empty());
        let holding = last.map_or(chain.len().min(1), |at| at + 1);
        chain.truncate(holding);
        self.records.truncate(holding);
        self.ends.truncate(holding);
        let (records, ends, durable) = (self.records, self.ends, self.durable);
        Proof { chain, records, ends, durable }
    }

    /// A truncation counts only with its whole replacement (R3), unless both are proved.
    fn drop_half_truncation(&mut self, chain: &[u64]) {
        let mut entries = 0u64;
        for (at, records) in self.records.iter().enumerate().rev() {
            for (n, found) in records.iter().enumerate().rev() {
                match found.content {
                    Content::Entry { .. } => entries += 1,
                    Content::Truncate { needs } => {
                        let mark = Position::new(chain[at], found.offset);
                        if entries < u64::from(needs) && !mark.before(self.durable) {
                            self.records.truncate(at + 1);
                            self.records[at].truncate(n);
                        }
                        return;
                    }
                    _ => {}
                }
            }
        }
    }
}
