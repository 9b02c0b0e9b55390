//! Looking at a log without opening it: nothing is locked, nothing is written, a live node may go
//! on beside it. What it appends meanwhile may show as torn.

use crate::chain::Link;
use crate::disk::{Disk, DiskFile, Mode};
use crate::fault::unread;
use crate::identity::{BadIdentity, Identity};
use crate::listing::behind;
use crate::position::LOG_DIR;
use crate::rebuild;
use crate::record::Content;
use crate::scan::{Inventory, Proof, inventory, prove};
use crate::segment::{FORMAT, Found};
use crate::snapshot_files;
use crate::state::State;
use crate::verdict::Head;
use holdfast_consensus::damage::Hole;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::{ClusterId, Index, LogId, MemberId, Recovered, SnapshotMeta, Term};
use serde::Serialize;

pub use crate::listing::{RecordInfo, Records, records};

/// How often a directory that changes under the reader is listed again.
const TRIES: u32 = 5;

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentInfo {
    /// Its file, relative to the data directory.
    pub file: String,
    /// Unique id.
    pub segment: u64,
    /// First index that it can hold.
    pub first: Index,
    /// Records that verify and count.
    pub records: u64,
    /// Entries among them.
    pub entries: u64,
    /// Where its content ends, in bytes.
    pub end: u64,
    /// `ok`, `torn` (something behind the end does not verify, and need not), `superseded` (to
    /// be removed by the next start), `damaged`, `missing`, or `unknown` if damage elsewhere hides
    /// it.
    pub state: &'static str,
    /// The row of the table of segments by which it is read, in the book's chapter on the log.
    pub row: &'static str,
}

/// One damaged place below the proved position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DamageInfo {
    /// The file, relative to the data directory.
    pub file: String,
    /// Where the damage begins, in bytes.
    pub offset: u64,
    /// Where it ends, in bytes.
    pub end: u64,
    /// The row of the table of places that judged it.
    pub row: &'static str,
    /// The entry that stood there, where its identity is known.
    pub entry: Option<LogId>,
    /// Its CRC, eight hexadecimal digits; empty where it is not known.
    pub crc: String,
    /// What was found, and what follows.
    pub detail: String,
}

/// An entry that was acknowledged and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HoleInfo {
    /// Its index.
    pub index: Index,
    /// Its term, where it is known.
    pub term: Option<Term>,
    /// Its CRC, eight hexadecimal digits; empty where it is not known.
    pub crc: String,
}

/// One snapshot file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SnapshotInfo {
    /// Its file, relative to the data directory.
    pub file: String,
    /// Last entry that it contains.
    pub last: LogId,
    /// Length of its content in bytes.
    pub bytes: u64,
    /// Why it does not verify, if it does not.
    pub fault: Option<String>,
}

/// What a verification found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Format version that this build reads.
    pub format: u32,
    /// Member that the log belongs to.
    pub member: MemberId,
    /// Its cluster as the newest segment knows it; if that is from before the cluster was formed, as
    /// the identity file says. Zero if neither tells.
    pub cluster: ClusterId,
    /// Segments by unique id.
    pub segments: Vec<SegmentInfo>,
    /// Everything before this place is proved durable: segment and offset.
    pub durable: (u64, u64),
    /// Last entry that counts.
    pub last: LogId,
    /// Term of the last hard state.
    pub term: Term,
    /// Its vote.
    pub voted_for: Option<MemberId>,
    /// Snapshot files.
    pub snapshots: Vec<SnapshotInfo>,
    /// Damaged places, each with the row that judged it.
    pub damage: Vec<DamageInfo>,
    /// Entries that cannot be read until a peer gives them back.
    pub holes: Vec<HoleInfo>,
    /// Why the log cannot be opened, if it cannot.
    pub fault: Option<String>,
}

impl Report {
    /// True if the log can be opened, nothing in it is damaged, and every snapshot file verifies.
    #[must_use]
    pub fn healthy(&self) -> bool {
        let whole = self.damage.is_empty() && self.holes.is_empty();
        whole && self.fault.is_none() && self.snapshots.iter().all(|s| s.fault.is_none())
    }
}

/// The files of a log, while a live node may give some of them up.
pub(crate) fn look<D: Disk>(disk: &D) -> Result<Inventory<D::File>, LogFault> {
    let mut tries = 1;
    loop {
        match inventory(disk, Mode::Read) {
            // A live node may give up a segment between the listing and the opening.
            Err(LogFault::Unopened { .. }) if tries < TRIES => tries += 1,
            found => return found,
        }
    }
}

/// What `act` says of a log while its files stand. If a live node gave one up meanwhile, its bytes may
/// have become another segment's under the reader, and it is looked at again. The files, still open,
/// come with it.
pub(crate) fn steady<D: Disk, T>(
    disk: &D,
    act: impl Fn(&Inventory<D::File>) -> Result<T, LogFault>,
) -> Result<(Inventory<D::File>, T), LogFault> {
    let mut tries = 1;
    loop {
        let found = look(disk)?;
        let said = act(&found);
        let names = match disk.list(LOG_DIR) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            names => names.map_err(|e| unread("list the log", &e))?,
        };
        let stands = |path: &String| names.iter().any(|name| path.ends_with(&format!("/{name}")));
        if tries == TRIES || found.segments.values().all(|loaded| stands(&loaded.path)) {
            return said.map(|said| (found, said));
        }
        tries += 1;
    }
}

/// What a start would prove of a log, without starting: nothing is locked or written. Snapshot
/// files are not looked at, so `snapshot` is empty, and a published one that the log does not reach
/// has not become its base.
///
/// # Errors
/// What the start would refuse the log for, or what the disk says.
pub fn proved<D: Disk>(disk: &D) -> Result<Recovered, LogFault> {
    let (_, (state, held)) = steady(disk, rebuild::look)?;
    Ok(Recovered { held, ..state.recovered() })
}

/// Who a directory says that it belongs to; `None` if it does not say.
///
/// # Errors
/// [`LogFault::Refused`] if the identity file cannot be used, or what the disk says.
pub fn identity<D: Disk>(disk: &D) -> Result<Option<Identity>, LogFault> {
    Identity::read(disk).map_err(|bad| match bad {
        BadIdentity::Disk(e) => unread("read the identity file", &e),
        BadIdentity::Refused(why) => LogFault::Refused(why),
    })
}

/// The cluster of a directory whose newest segment says `told`.
fn cluster_of<D: Disk>(disk: &D, told: ClusterId) -> ClusterId {
    if told != ClusterId::default() {
        return told;
    }
    match Identity::read(disk) {
        Ok(Some(identity)) => identity.cluster,
        // A file that cannot be used is a start's to refuse: what is verified here is the log.
        Ok(None) | Err(_) => told,
    }
}

/// Verifies a log and its snapshot files as a start would, without changing anything.
///
/// # Errors
/// [`LogFault::Refused`] if a newer build wrote it, or what the disk says. Damage is no error: it
/// is what the report is about.
pub fn verify<D: Disk>(disk: &D) -> Result<Report, LogFault> {
    Ok(steady(disk, |found| judged(disk, found))?.1.0)
}

/// As [`verify`], of files that are open already. Beside the report stands what the log says when it
/// is replayed, unless nothing of it is proved.
pub(crate) fn judged<D: Disk>(
    disk: &D,
    found: &Inventory<D::File>,
) -> Result<(Report, Option<State>), LogFault> {
    let newest = found.segments.values().rev().find_map(|l| l.header.as_ref().ok());
    let owner = newest.map_or_else(Default::default, |h| h.owner);
    let mut report = Report {
        format: FORMAT,
        member: owner.member,
        cluster: cluster_of(disk, owner.cluster),
        segments: Vec::new(),
        durable: (0, 0),
        last: LogId::default(),
        term: Term(0),
        voted_for: None,
        snapshots: snapshots(disk)?,
        damage: Vec::new(),
        holes: Vec::new(),
        fault: None,
    };
    let mut replayed = None;
    match prove(found, None) {
        Ok(proof) => {
            let (state, held) = rebuild::replayed(&proof);
            report.fault = held;
            report.durable = (proof.durable.segment, proof.durable.offset);
            (report.term, report.voted_for) = (state.hard.term, state.hard.voted_for);
            report.last = state.last;
            report.holes = holes(&state);
            describe(&mut report, found, &proof)?;
            replayed = Some(state);
        }
        Err(fault @ (LogFault::Unopened { .. } | LogFault::Poisoned { .. })) => return Err(fault),
        Err(fault) => {
            let text = fault.to_string();
            for (unique, loaded) in &found.segments {
                let state = if text.contains(&loaded.path) { "damaged" } else { "unknown" };
                report.segments.push(segment_info(*unique, loaded, None, state));
            }
            report.fault = Some(text);
        }
    }
    Ok((report, replayed))
}

fn holes(state: &State) -> Vec<HoleInfo> {
    let info = |hole: Hole| HoleInfo {
        index: hole.index,
        term: hole.known.map(|known| known.term),
        crc: hex(hole.known.map(|known| known.crc)),
    };
    state.named_holes().into_iter().map(info).collect()
}

fn hex(crc: Option<u32>) -> String {
    crc.map_or_else(String::new, |crc| format!("{crc:08x}"))
}

fn describe<F: DiskFile>(
    report: &mut Report,
    found: &Inventory<F>,
    proof: &Proof,
) -> Result<(), LogFault> {
    for (unique, loaded) in &found.segments {
        let at = proof.links.iter().position(|link| link.header.unique == *unique);
        let link = at.map(|n| &proof.links[n]);
        let last = at.is_some_and(|n| n + 1 == proof.links.len());
        let end = link.map_or(0, |link| link.end);
        let torn = last && {
            let behind = behind(&loaded.file, end, loaded.bytes);
            behind.map_err(|e| unread("read a segment", &e))?
        };
        let state = match link {
            None => "superseded",
            Some(link) if !link.is_sound() => "damaged",
            Some(_) if torn => "torn",
            Some(_) => "ok",
        };
        report.segments.push(segment_info(*unique, loaded, link, state));
    }
    for link in &proof.links {
        if !found.segments.contains_key(&link.header.unique) {
            report.segments.push(SegmentInfo {
                file: link.path.clone(),
                segment: link.header.unique,
                first: link.header.first,
                records: 0,
                entries: 0,
                end: link.end,
                state: "missing",
                row: link.row,
            });
        }
        if !matches!(link.head, Head::Both) {
            report.damage.push(DamageInfo {
                file: link.path.clone(),
                offset: 0,
                end: crate::segment::FIRST_BATCH,
                row: link.row,
                entry: None,
                crc: String::new(),
                detail: "a copy of the header does not verify; the other, or the next segment's, is used".into(),
            });
        }
        report.damage.extend(link.damage.iter().map(|damage| DamageInfo {
            file: link.path.clone(),
            offset: damage.from,
            end: damage.to,
            row: damage.row,
            entry: damage.entry.map(|(id, _)| id),
            crc: hex(damage.entry.map(|(_, crc)| crc)),
            detail: damage.why.clone(),
        }));
    }
    report.segments.sort_by_key(|segment| segment.segment);
    Ok(())
}

fn segment_info<F>(
    segment: u64,
    loaded: &crate::scan::Loaded<F>,
    link: Option<&Link>,
    state: &'static str,
) -> SegmentInfo {
    let records = link.map_or(&[][..], |link| &link.records);
    let read = |r: &&Found| {
        !matches!(r.content, Content::Lost { .. } | Content::LostBatch { .. } | Content::Gap(_))
    };
    let entries = records.iter().filter(|r| matches!(r.content, Content::Entry(_))).count();
    SegmentInfo {
        file: loaded.path.clone(),
        segment,
        first: loaded.header.as_ref().map_or(Index(0), |h| h.first),
        records: records.iter().filter(read).count() as u64,
        entries: entries as u64,
        end: link.map_or(0, |link| link.end),
        state,
        row: link.map_or("", |link| link.row),
    }
}

fn snapshots<D: Disk>(disk: &D) -> Result<Vec<SnapshotInfo>, LogFault> {
    let found = snapshot_files::verify_all(disk).map_err(|e| unread("read the snapshots", &e))?;
    let info = |(file, result): (String, Result<SnapshotMeta, String>)| match result {
        Ok(meta) => SnapshotInfo { file, last: meta.last, bytes: meta.bytes, fault: None },
        Err(why) => SnapshotInfo { file, last: LogId::default(), bytes: 0, fault: Some(why) },
    };
    Ok(found.into_iter().map(info).collect())
}
