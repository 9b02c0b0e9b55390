//! Carries the table of places over a log that was read: every record and every unreadable stretch
//! gets its row, and what is damaged below D becomes what the side index knows of it (R9, R14, R15).

use crate::chain::Link;
use crate::disk::DiskFile;
use crate::fault;
use crate::position::{Position, align_up};
use crate::record::{Content, Header, Kind, RECORD_HEADER, Resume};
use crate::scan::{Inventory, Proof, Raw, Unread, held};
use crate::segment::{Cursor, Found, Walk};
use crate::side_index::{self, Line, Parts};
use crate::verdict::{self, Before, Bytes, Later, Listed, Place, PlaceFacts, Reach, Row};
use holdfast_consensus::LogId;
use holdfast_consensus::fault::LogFault;

/// A damaged place, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) row: &'static str,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// The entry, where its identity is known.
    pub(crate) entry: Option<(LogId, u32)>,
    pub(crate) why: String,
}

/// One pass of the table over a log.
pub(crate) struct Judge<'f, F> {
    found: &'f Inventory<F>,
    durable: Position,
    /// The side index, read only if something below D is damaged.
    parts: Parts,
    /// Where the last batch header that verifies begins: a hard state.
    last_hard: Position,
    /// Where the log was cut, and why.
    cut: Option<(Position, String)>,
    before: Before,
    /// Why the member is held, if it is; then nothing further is judged.
    held: Option<String>,
}

impl<'f, F: DiskFile> Judge<'f, F> {
    pub(crate) fn new(
        found: &'f Inventory<F>,
        durable: Position,
        links: &[Link],
        raws: &[Raw],
    ) -> Result<Self, LogFault> {
        let mut judge = Self {
            found,
            durable,
            parts: Parts::new(),
            last_hard: Position::default(),
            cut: None,
            before: Before::Verified,
            held: None,
        };
        let mut damaged = false;
        for (link, raw) in links.iter().zip(raws) {
            let unique = link.header.unique;
            let below = |bad: &Unread| Position::new(unique, bad.from).before(durable);
            damaged |= raw.bad.iter().any(|(_, bad)| below(bad));
        }
        judge.last_hard = last_hard(links, raws, durable);
        if damaged {
            for (link, raw) in links.iter().zip(raws) {
                judge.read_side_index(link, raw)?;
            }
        }
        Ok(judge)
    }

    fn read_side_index(&mut self, link: &Link, raw: &Raw) -> Result<(), LogFault> {
        let Some(loaded) = self.found.segments.get(&link.header.unique) else { return Ok(()) };
        for record in raw.records.iter().filter(|r| r.header.kind == Kind::Index) {
            let mut body = vec![0; record.header.len];
            (loaded.file.read_at(record.offset + RECORD_HEADER as u64, &mut body))
                .map_err(|e| fault::unread("read the side index", &e))?;
            if let Err(why) = side_index::decode(&body, &mut self.parts) {
                self.hold(link, record.offset, "P9", &why);
            }
        }
        Ok(())
    }

    /// Judges every segment, oldest first.
    pub(crate) fn all(mut self, mut links: Vec<Link>, raws: Vec<Raw>) -> Result<Proof, LogFault> {
        for (n, raw) in raws.into_iter().enumerate() {
            let next = links.get(n + 1).map(|next| next.header);
            let link = &mut links[n];
            let resume = next.map(|next| Resume::at(next.prev));
            if self.held.is_some() {
                continue;
            }
            self.segment(link, raw, resume)?;
            // The chain goes on in the next segment, unless its end here is not known.
            let Some(next) = next.filter(|_| self.before == Before::Verified) else {
                if self.before == Before::Lost {
                    self.before = Before::Verified;
                }
                continue;
            };
            let crc = link.records.last().map_or(link.header.join.chain, |r| r.header.crc);
            if next.join.chain != crc {
                let why = "its successor continues another history".to_owned();
                let (at, bytes) = (link.end, Bytes::Unchained);
                self.unread(link, Unread { from: at, to: at, bytes, why }, resume)?;
                self.before = if self.cut.is_some() { Before::Cut } else { Before::Verified };
            }
        }
        let end = links
            .last()
            .map_or_else(Position::default, |link| Position::new(link.header.unique, link.end));
        if let (None, Some(link)) = (&self.cut, links.last_mut())
            && end.before(self.durable)
        {
            let why = format!(
                "the log ends here, but bytes up to segment {} offset {} are known durable",
                self.durable.segment, self.durable.offset
            );
            let facts = self.facts(Position::new(end.segment, end.offset), Bytes::Blank);
            let row = verdict::place(PlaceFacts { later: Later::None, ..facts });
            let name = row.name;
            self.hold(link, end.offset, name, &why);
        }
        let cut = self.cut.unwrap_or((end, "the last segment ends".to_owned()));
        Ok(Proof { links, durable: self.durable, cut, held: self.held })
    }

    /// The member is held from here on: what was found before can be read, and nothing else is
    /// done (R5, R14).
    fn hold(&mut self, link: &Link, offset: u64, row: &str, why: &str) {
        let at = Position::new(link.header.unique, offset);
        self.cut = Some((at, why.to_owned()));
        self.before = Before::Cut;
        self.held.get_or_insert_with(|| held(&link.path, offset, row, why));
    }

    fn segment(
        &mut self,
        link: &mut Link,
        raw: Raw,
        resume: Option<Resume>,
    ) -> Result<(), LogFault> {
        link.end = align_up(raw.end);
        if raw.bad.is_empty() && self.before == Before::Verified && self.keeps_all_good() {
            link.records = raw.records;
            return Ok(());
        }
        let missing: Vec<_> = (0..raw.bad.len()).map(|n| missing(&raw, n)).collect();
        let mut bad = raw.bad.into_iter().zip(missing).peekable();
        for (n, record) in raw.records.into_iter().enumerate() {
            if self.held.is_some() {
                return Ok(());
            }
            while let Some(((_, unread), missing)) = bad.next_if(|((before, _), _)| *before <= n) {
                // The batch behind says where the log stood before it.
                let resume = match &record.content {
                    Content::Batch(batch) => Some(Resume::at(batch.head.prev)),
                    Content::Entry(_) => Some(Resume::before(record.header.id)),
                    _ => None,
                };
                let resume = resume.map(|resume| Resume { missing, ..resume });
                self.unread(link, unread, resume)?;
            }
            let at = Position::new(link.header.unique, record.offset);
            let row = verdict::place(self.facts(at, Bytes::Good));
            match row.verdict {
                Place::Keep => {
                    link.records.push(record);
                    self.before = Before::Verified;
                }
                Place::Behind => {}
                _ => self.hold(link, at.offset, row.name, row.why),
            }
        }
        for ((_, unread), missing) in bad {
            let resume = resume.map(|resume| Resume { missing, ..resume });
            self.unread(link, unread, resume)?;
        }
        Ok(())
    }

    /// True if the table keeps a record that verifies behind another one, wherever it lies: then a
    /// segment without a bad place is kept as it was read, with the verdict that each of its records
    /// would get.
    fn keeps_all_good(&self) -> bool {
        let places = [Reach::Below, Reach::Above].into_iter();
        places.flat_map(|reach| [(reach, Later::Hard), (reach, Later::None)]).all(
            |(reach, later)| {
                let (bytes, before, listed) = (Bytes::Good, self.before, Listed::Nothing);
                let facts = PlaceFacts { reach, bytes, before, listed, later };
                verdict::place(facts).verdict == Place::Keep
            },
        )
    }

    fn facts(&self, at: Position, bytes: Bytes) -> PlaceFacts {
        PlaceFacts {
            reach: if at.before(self.durable) { Reach::Below } else { Reach::Above },
            bytes,
            before: self.before,
            listed: Listed::Nothing,
            later: if at.before(self.last_hard) { Later::Hard } else { Later::None },
        }
    }

    /// A stretch that cannot be read: damaged as far as it lies below D, torn behind.
    fn unread(
        &mut self,
        link: &mut Link,
        unread: Unread,
        resume: Option<Resume>,
    ) -> Result<(), LogFault> {
        if self.held.is_some() {
            return Ok(());
        }
        let unique = link.header.unique;
        let from = Position::new(unique, unread.from);
        let mut split = unread.from;
        if from.before(self.durable) {
            let inside = unique == self.durable.segment && self.durable.offset < unread.to;
            split = if inside { self.durable.offset } else { unread.to };
            let resume = if inside { self.resume_at_durable() } else { resume };
            self.lost(link, &Unread { to: split, ..unread.clone() }, resume)?;
        }
        if self.held.is_some() {
            return Ok(());
        }
        if split < unread.to || (split == unread.from && !from.before(self.durable)) {
            let row = verdict::place(self.facts(Position::new(unique, split), unread.bytes));
            match row.verdict {
                Place::Cut => {
                    link.end = align_up(split);
                    self.cut = Some((Position::new(unique, split), unread.why));
                    self.before = Before::Cut;
                }
                Place::Behind => {}
                _ => self.hold(link, split, row.name, row.why),
            }
        }
        Ok(())
    }

    /// Where the log stood at D, if the side index says so.
    fn resume_at_durable(&self) -> Option<Resume> {
        self.parts
            .get(&(self.durable.segment, self.durable.offset))
            .map(|part| Resume::at(part.prev))
    }

    /// A damaged stretch below D. What the side index lists is looked at line by line; the rest is
    /// unknown up to the next place where the log says what it held.
    fn lost(
        &mut self,
        link: &mut Link,
        unread: &Unread,
        resume: Option<Resume>,
    ) -> Result<(), LogFault> {
        let unique = link.header.unique;
        let mut cursor = unread.from;
        let start = open_batch(&link.records, unread.from).unwrap_or(unread.from);
        let parts: Vec<_> = (self.parts.range((unique, start)..(unique, unread.to)))
            .map(|((_, offset), part)| (*offset, part.clone()))
            .collect();
        for (offset, part) in parts {
            if part.end <= cursor {
                continue;
            }
            let at = align_up(cursor);
            if offset > at {
                self.unknown(link, (cursor, offset), unread, Some(Resume::at(part.prev)));
            }
            if offset >= cursor {
                self.line(link, &batch_line(offset, part.prev), unread)?;
            }
            for line in part.lines.iter().filter(|line| line.offset >= cursor) {
                if line.offset < unread.to {
                    self.line(link, line, unread)?;
                }
            }
            cursor = part.end.min(unread.to);
        }
        if cursor != unread.from {
            cursor = align_up(cursor);
        }
        // Behind a part that was listed, or before D, less is missing than the batch tells.
        let whole = cursor == unread.from;
        let resume = resume.map(|r| Resume { missing: r.missing.filter(|_| whole), ..r });
        if cursor < unread.to || unread.from == unread.to {
            self.unknown(link, (cursor, unread.to), unread, resume);
        }
        Ok(())
    }

    /// A record that the side index lists.
    fn line(&mut self, link: &mut Link, line: &Line, unread: &Unread) -> Result<(), LogFault> {
        if self.held.is_some() {
            return Ok(());
        }
        let at = Position::new(link.header.unique, line.offset);
        let read = self.record_at(link, line).map_err(|e| fault::unread("read a segment", &e))?;
        let bytes = match (&read, unread.bytes, self.before) {
            (Some(_), Bytes::Unchained, Before::Verified) => Bytes::Unchained,
            (Some(_), ..) => Bytes::Good,
            (None, Bytes::Blank, _) => Bytes::Blank,
            (None, ..) => Bytes::Bad,
        };
        let listed = match line.header.kind {
            Kind::Entry | Kind::Repair => Listed::Entry,
            Kind::Batch => Listed::Hard,
            _ => Listed::Control,
        };
        let row = verdict::place(PlaceFacts { listed, ..self.facts(at, bytes) });
        match (row.verdict, read) {
            (Place::Keep, Some(found)) => {
                link.records.push(found);
                self.before = Before::Verified;
                return Ok(());
            }
            (Place::LostEntry | Place::Restored | Place::Replaced, _) => {}
            _ => {
                self.hold(link, line.offset, row.name, row.why);
                return Ok(());
            }
        }
        let entry = match line.content {
            Content::Lost { crc } => Some((line.header.id, crc)),
            _ => None,
        };
        let to = line.offset + line.header.size();
        self.damage(link, row, (line.offset, to), entry, &unread.why);
        let (header, content) = (line.header, line.content.clone());
        link.records.push(Found { offset: line.offset, header, content });
        self.before = Before::Lost;
        Ok(())
    }

    /// The record that stands where the side index says, if it is that record and verifies.
    fn record_at(&self, link: &Link, line: &Line) -> std::io::Result<Option<Found>> {
        let Some(loaded) = self.found.segments.get(&link.header.unique) else { return Ok(None) };
        let start = Cursor { offset: line.offset, chain: 0, batch_end: line.offset };
        let mut walk = Walk::new(&loaded.file, link.header.unique, start, loaded.bytes);
        let Ok((header, content)) = walk.record_at(line.offset, loaded.bytes)? else {
            return Ok(None);
        };
        let same = header.kind == line.header.kind
            && (matches!(header.kind, Kind::Batch | Kind::Seal) || header.id == line.header.id)
            && match (&content, &line.content) {
                (Content::Entry(facts) | Content::Repair(facts), Content::Lost { crc }) => {
                    facts.crc == *crc
                }
                (Content::Batch(_), _) => true,
                (content, listed) => content == listed,
            };
        Ok(same.then_some(Found { offset: line.offset, header, content }))
    }

    /// A stretch of which nothing is known but how the log goes on behind it.
    fn unknown(
        &mut self,
        link: &mut Link,
        (from, to): (u64, u64),
        unread: &Unread,
        resume: Option<Resume>,
    ) {
        if self.held.is_some() {
            return;
        }
        let row = verdict::place(self.facts(Position::new(link.header.unique, from), unread.bytes));
        let (Place::LostUnknown, Some(resume)) = (row.verdict, resume) else {
            self.hold(link, from, row.name, row.why);
            return;
        };
        self.damage(link, row, (from, to), None, &unread.why);
        let id = LogId::default();
        let header = Header { kind: Kind::Index, flags: 0, len: 0, id, chain: 0, crc: 0 };
        link.records.push(Found { offset: from, header, content: Content::Gap(Box::new(resume)) });
        self.before = Before::Lost;
    }

    fn damage(
        &self,
        link: &mut Link,
        row: &Row<Place, 5>,
        (from, to): (u64, u64),
        entry: Option<(LogId, u32)>,
        why: &str,
    ) {
        let why = format!("{why}; {}", row.why);
        link.damage.push(Damage { row: row.name, from, to, entry, why });
    }
}

/// Where the last batch header begins that will count: the one before the first place above D that
/// cannot be read.
fn last_hard(links: &[Link], raws: &[Raw], durable: Position) -> Position {
    let mut last = Position::default();
    for (n, (link, raw)) in links.iter().zip(raws).enumerate() {
        let unique = link.header.unique;
        let torn = raw.bad.iter().find(|(_, bad)| durable.before(Position::new(unique, bad.to)));
        let counted = torn.map_or(raw.records.len(), |(before, _)| *before);
        let hard = raw.records[..counted].iter().rfind(|r| r.header.kind == Kind::Batch);
        last = hard.map_or(last, |record| Position::new(unique, record.offset));
        // What a successor of another history holds counts only below D.
        let next = links.get(n + 1).map(|next| next.header.join.chain);
        let crc = raw.records.last().map_or(link.header.join.chain, |r| r.header.crc);
        let parted = next.is_some_and(|chain| chain != crc) && raw.bad.is_empty();
        let end = Position::new(unique, align_up(raw.end));
        if torn.is_some() || (parted && !end.before(durable)) {
            return last;
        }
    }
    last
}

/// How many records are missing in the stretch with this number, if it lies in one batch whose
/// header verifies and nothing else of that batch is missing.
fn missing(raw: &Raw, number: usize) -> Option<u64> {
    let (before, unread) = raw.bad.get(number)?;
    let start = raw.records[..*before].iter().rposition(|r| r.header.kind == Kind::Batch)?;
    let Content::Batch(batch) = &raw.records[start].content else { return None };
    let end = raw.records[start].offset + batch.len;
    let inside = |bad: &Unread| (raw.records[start].offset..end).contains(&bad.from);
    let alone = raw.bad.iter().filter(|(_, bad)| inside(bad)).count() == 1;
    if !alone || !inside(unread) || unread.to > align_up(end) {
        return None;
    }
    let rest = raw.records[start + 1..].iter();
    let found = rest.take_while(|r| r.header.kind != Kind::Batch && r.offset < end).count();
    u64::from(batch.records).checked_sub(found as u64)
}

/// Where the batch begins whose records reach to `offset`, if one does.
fn open_batch(records: &[Found], offset: u64) -> Option<u64> {
    records
        .iter()
        .rev()
        .find_map(|record| match &record.content {
            Content::Batch(batch) => Some((record.offset, record.offset + batch.len)),
            _ => None,
        })
        .filter(|(_, end)| offset < *end)
        .map(|(start, _)| start)
}

/// The header of a batch, as a line of its own.
fn batch_line(offset: u64, prev: LogId) -> Line {
    let len = crate::record::BATCH_BODY;
    let header = Header { kind: Kind::Batch, flags: 0, len, id: prev, chain: 0, crc: 0 };
    Line { offset, header, content: Content::LostBatch { prev } }
}
