//! Which segments make up the log. Each header names its predecessor and repeats that one's own
//! header, so that the chain is followed over a header that does not verify and over a missing
//! file; the table of segments decides what becomes of each (R12, R13, R16).

use crate::disk::DiskFile;
use crate::fault::unread;
use crate::judge::Damage;
use crate::log::LogOptions;
use crate::position::Position;
use crate::scan::{Inventory, Loaded, held};
use crate::segment::{Cursor, Found, Previous, SegmentHeader, Walk};
use crate::verdict::{
    self, Copying, Head, Length, Named, Row, SegmentFacts, Stand, Whole, Written,
};
use holdfast_consensus::fault::LogFault;

/// A segment of the chain.
#[derive(Debug)]
pub(crate) struct Link {
    /// Its header, or what its successor repeats of it.
    pub(crate) header: SegmentHeader,
    pub(crate) head: Head,
    /// The row that let it be read.
    pub(crate) row: &'static str,
    /// Its file, or where it should be.
    pub(crate) path: String,
    /// What counts, in order: records that verify, and what is known of those that do not.
    pub(crate) records: Vec<Found>,
    /// Where its content ends; a multiple of the block.
    pub(crate) end: u64,
    /// What was found damaged in it.
    pub(crate) damage: Vec<Damage>,
}

impl Link {
    fn new(header: SegmentHeader, head: Head, row: &'static str, path: String) -> Self {
        let end = crate::segment::FIRST_BATCH;
        Self { header, head, row, path, records: Vec::new(), end, damage: Vec::new() }
    }

    /// True if nothing at all is wrong with the segment.
    pub(crate) fn is_sound(&self) -> bool {
        self.damage.is_empty() && self.head == Head::Both
    }
}

/// The segments of the log, and the newest ones that were never written.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// Oldest first.
    pub(crate) links: Vec<Link>,
    /// Unique ids of the segments behind that hold nothing.
    unwritten: Vec<u64>,
    /// Why the member is held, if the segments alone say so.
    pub(crate) held: Option<String>,
}

impl Chain {
    /// The chain that ends in the newest segment below the unique id `below`.
    pub(crate) fn below<F: DiskFile>(found: &Inventory<F>, below: u64) -> Result<Self, LogFault> {
        let mut chain = Self::default();
        let last = found.segments.last_key_value().map_or(0, |(unique, _)| *unique);
        if found.newest > last {
            let row = verdict::segment(facts(Head::None, Stand::Newest, Length::Whole));
            let why = format!("the newest segment, {}, is missing: {}", found.newest, row.why);
            chain.hold(held(crate::position::LOG_DIR, 0, row.name, &why));
        }
        for (unique, loaded) in found.segments.range(..below).rev() {
            let row = newest(*unique, loaded, Named::No)?;
            match row.verdict {
                Whole::Empty => chain.unwritten.push(*unique),
                Whole::Read | Whole::ReadHalf => {}
                _ => chain.hold(held(&loaded.path, 0, row.name, row.why)),
            }
            if let Ok(header) = &loaded.header {
                let path = loaded.path.clone();
                chain.links.push(Link::new(*header, loaded.head, row.name, path));
                break;
            }
        }
        if chain.links.is_empty() {
            return match found.segments.values().next() {
                Some(loaded) => {
                    let none = || held(&loaded.path, 0, "S9", "no segment of the log can be used");
                    Err(LogFault::Held { why: chain.held.unwrap_or_else(none) })
                }
                None => chain.held.map_or(Ok(Self::default()), |why| Err(LogFault::Held { why })),
            };
        }
        loop {
            match chain.before(found) {
                Ok(Some(link)) => chain.links.push(link),
                Ok(None) => break,
                Err(why) => {
                    chain.hold(why);
                    break;
                }
            }
        }
        chain.links.reverse();
        Ok(chain)
    }

    fn hold(&mut self, why: String) {
        self.held.get_or_insert(why);
    }

    /// The predecessor of the segment that was found last.
    fn before<F: DiskFile>(&self, found: &Inventory<F>) -> Result<Option<Link>, String> {
        let Some(after) = self.links.last() else { return Ok(None) };
        let (unique, end) = (after.header.join.unique, after.header.join.end);
        if unique == 0 {
            return Ok(None);
        }
        if unique >= after.header.unique {
            return Err(held(&after.path, 0, "S8", "it follows a later segment"));
        }
        let Some(loaded) = found.segments.get(&unique) else {
            // Segments are given up oldest first, one directory sync each: with none older the
            // missing one was compacted.
            if found.segments.range(..unique).next_back().is_none() {
                return Ok(None);
            }
            let row = verdict::segment(facts(Head::None, Stand::Inside, Length::Whole));
            let header = repeated(after, unique, end, row.name)?;
            let path = crate::position::segment_name(header.first, unique).path();
            return Ok(Some(Link::new(header, Head::None, row.name, path)));
        };
        let row = verdict::segment(facts(loaded.head, Stand::Inside, length(loaded)));
        let header = match (&loaded.header, row.verdict) {
            (Ok(header), Whole::Read | Whole::ReadHalf) => *header,
            (_, Whole::ReadByName) => repeated(after, unique, end, row.name)?,
            _ => return Err(held(&loaded.path, 0, row.name, row.why)),
        };
        Ok(Some(Link::new(header, loaded.head, row.name, loaded.path.clone())))
    }

    /// R16: nothing that is known durable lay in a segment that was taken for empty.
    pub(crate) fn unwritten_stay_unnamed<F: DiskFile>(
        &self,
        found: &Inventory<F>,
        durable: Position,
    ) -> Result<Option<String>, LogFault> {
        for unique in &self.unwritten {
            let Some(loaded) = found.segments.get(unique) else { continue };
            if durable.segment >= *unique {
                let row = newest(*unique, loaded, Named::Yes)?;
                return Ok(Some(held(&loaded.path, 0, row.name, row.why)));
            }
        }
        Ok(None)
    }
}

fn facts(head: Head, stand: Stand, length: Length) -> SegmentFacts {
    let (written, named, copying) = (Written::Nothing, Named::Yes, Copying::Complete);
    SegmentFacts { head, stand, written, named, length, copying }
}

/// A segment has its whole length, durably, before its header is written.
fn length<F>(loaded: &Loaded<F>) -> Length {
    let made = loaded.header.as_ref().map_or(LogOptions::SEGMENT_MIN, |header| header.bytes);
    if loaded.bytes < made { Length::Short } else { Length::Whole }
}

/// The row of the newest segment that has a file.
fn newest<F: DiskFile>(
    unique: u64,
    loaded: &Loaded<F>,
    named: Named,
) -> Result<&'static Row<Whole, 6>, LogFault> {
    let mut written = Written::Something;
    if loaded.header.is_err() {
        let start = Cursor { offset: 0, chain: 0, batch_end: 0 };
        let mut walk = Walk::new(&loaded.file, unique, start, loaded.bytes);
        if !walk.resync().map_err(|e| unread("read a segment", &e))? {
            written = Written::Nothing;
        }
    }
    let facts = facts(loaded.head, Stand::Newest, length(loaded));
    Ok(verdict::segment(SegmentFacts { written, named, ..facts }))
}

/// The header that the successor repeats.
fn repeated(after: &Link, unique: u64, end: u64, row: &str) -> Result<SegmentHeader, String> {
    let Previous { first, prev, join } = after.header.previous;
    if first.0 == 0 {
        let why = format!(
            "segment {unique} before it cannot be read, and its own header does not say where that one began"
        );
        return Err(held(&after.path, 0, row, &why));
    }
    let owner = after.header.owner;
    Ok(SegmentHeader { unique, owner, first, prev, join, bytes: end, ..SegmentHeader::default() })
}
