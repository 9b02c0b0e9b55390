//! Two logs side by side, without opening either: nothing is locked or written, and a live node may
//! go on beside it.
//!
//! Compared is what both can prove: the entries of the range that both hold, by term, kind, log time
//! and content, and the term that stands at the base of a compacted one. A damaged entry whose
//! identity the log has kept is compared by that identity; where not even that is known, the index
//! is named as one that could not be compared.
//!
//! Two members of one cluster may differ at their ends: entries that were never committed are
//! replaced by a leader. What they must never do is in [`Violation`], each with its proof.

use crate::disk::Disk;
use crate::inspect::{Report, identity, judged, steady};
use crate::rebuild::entry_at;
use crate::scan::Inventory;
use crate::state::State;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::{Body, ClusterId, Entry, HardState, Index, LogId, Term};

/// What was read of one log.
pub struct Evidence<D: Disk> {
    found: Inventory<D::File>,
    state: Option<State>,
    side: Side,
}

/// What one log says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The configured node name; `None` without an identity file.
    pub name: Option<String>,
    /// The cluster: of the identity file, else of the newest segment. Zero if it belongs to none.
    pub cluster: ClusterId,
    /// Recovery epoch, from the same place.
    pub epoch: u64,
    /// What a verification finds: its segments, damaged places, holes and snapshots, and why the
    /// log cannot be opened for writing, if it cannot.
    pub report: Report,
    /// Where the log begins and ends; `None` if nothing of it can be read.
    pub extent: Option<Extent>,
}

/// Where a log begins and ends, and what it knows committed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Term and vote; a log whose report has a fault does not prove them.
    pub hard: HardState,
    /// Starts so far.
    pub boot: u64,
    /// The entry before the first one that is held.
    pub base: LogId,
    /// Last entry; equals `base` if none is held.
    pub last: LogId,
    /// The highest index that this log knows committed: of a watermark, of its base, or of its
    /// newest snapshot that verifies. A floor.
    pub known: Index,
}

/// One entry as one log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is the base of the log: only its term is known.
    Base(Term),
    /// It verifies.
    Entry {
        /// The entry.
        entry: Box<Entry>,
        /// Its CRC, the same on every member.
        crc: u32,
        /// File and offset of its record, relative to the data directory, in bytes.
        place: (String, u64),
    },
    /// It is damaged; what it was is known.
    Lost {
        /// Its term.
        term: Term,
        /// Its CRC.
        crc: u32,
    },
    /// It is damaged, and what it was is not known.
    Unknown,
}

impl Seen {
    /// Its term, where it is known.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        match self {
            Self::Base(term) | Self::Lost { term, .. } => Some(*term),
            Self::Entry { entry, .. } => Some(entry.id.term),
            Self::Unknown => None,
        }
    }

    /// Its CRC, where it is known.
    #[must_use]
    pub fn crc(&self) -> Option<u32> {
        match self {
            Self::Entry { crc, .. } | Self::Lost { crc, .. } => Some(*crc),
            Self::Base(_) | Self::Unknown => None,
        }
    }

    /// `base`, `blank`, `command`, `configuration`, or `damaged`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Base(_) => "base",
            Self::Lost { .. } | Self::Unknown => "damaged",
            Self::Entry { entry, .. } => match entry.body {
                Body::Blank => "blank",
                Body::Command(_) => "command",
                Body::Membership(_) => "configuration",
            },
        }
    }
}

/// By what two entries at one index differ: the first of these that does.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// Their terms.
    Term,
    /// What they are: blank, command, configuration.
    Kind,
    /// Their log time.
    Time,
    /// Their content.
    Payload,
    /// Their CRC, where one of them cannot be read.
    Checksum,
}

impl By {
    /// In one word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Term => "term",
            Self::Kind => "kind",
            Self::Time => "time",
            Self::Payload => "payload",
            Self::Checksum => "checksum",
        }
    }
}

/// The first index at which two logs differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The index.
    pub index: Index,
    /// By what.
    pub by: By,
    /// What the first log has there.
    pub a: Seen,
    /// What the second log has there.
    pub b: Seen,
}

/// Something that two logs of one cluster and recovery epoch can never show while Raft holds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Both know the index committed, and hold different entries there (state machine safety).
    Committed,
    /// One term has two entries at one index (log matching; a term has one leader).
    SameTerm,
    /// They agree again behind the difference, at this index (log matching).
    Rejoined(Index),
    /// One knows the index committed by a term that came before the other's entry: the leader of
    /// that later term did not hold what was committed (leader completeness).
    Incomplete,
}

impl Violation {
    /// What it says, for people.
    #[must_use]
    pub fn text(self, index: Index) -> String {
        match self {
            Self::Committed => {
                format!("both know index {index} committed, and hold different entries there")
            }
            Self::SameTerm => {
                format!(
                    "two different entries of one term stand at index {index}; a term has one leader"
                )
            }
            Self::Rejoined(again) => format!(
                "they differ at index {index} and agree again at {again}; what comes before an entry is the same wherever that entry is"
            ),
            Self::Incomplete => format!(
                "one knows index {index} committed, and a leader of a later term wrote another entry there"
            ),
        }
    }
}

/// What a comparison says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything that both hold is the same.
    Same,
    /// They differ.
    Differ,
    /// Nothing differs, but not all of what both hold could be compared, or they hold nothing in
    /// common.
    Unknown,
    /// They differ as two logs of one cluster never may.
    Violation,
}

impl Verdict {
    /// In one word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Differ => "differ",
            Self::Unknown => "unknown",
            Self::Violation => "violation",
        }
    }
}

/// Two logs, compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diff {
    /// First and last index that both hold (a base counts as held, by its term).
    pub common: Option<(Index, Index)>,
    /// Indexes of it that are the same.
    pub same: u64,
    /// Indexes of it that differ.
    pub differ: u64,
    /// The first of those.
    pub first: Option<Difference>,
    /// Indexes of it that could not be compared, ascending.
    pub uncompared: Vec<Index>,
    /// True if both belong to one cluster and recovery epoch: only then do the rules of Raft bind
    /// them.
    pub one_cluster: bool,
    /// What must never be, if it is.
    pub violation: Option<Violation>,
    /// The result.
    pub verdict: Verdict,
}

/// Reads what a log proves, and changes nothing.
///
/// # Errors
/// [`LogFault::Refused`] if a newer build wrote it, or what the disk says. Damage is no error.
pub fn evidence<D: Disk>(disk: &D) -> Result<Evidence<D>, LogFault> {
    let (found, (report, state)) = steady(disk, |found| judged(disk, found))?;
    let identity = identity(disk)?;
    let newest = found.segments.values().rev().find_map(|l| l.header.as_ref().ok());
    let (cluster, epoch) = match (&identity, newest) {
        (Some(identity), _) => (identity.cluster, identity.epoch),
        (None, Some(header)) => (header.owner.cluster, header.owner.epoch),
        (None, None) => Default::default(),
    };
    let snapshots = report.snapshots.iter().filter(|s| s.fault.is_none());
    let snapshot = snapshots.map(|s| s.last.index).max().unwrap_or_default();
    let extent = state.as_ref().map(|state| Extent {
        hard: state.hard,
        boot: state.boot,
        base: state.base,
        last: state.last,
        known: state.commit.max(state.base.index).max(snapshot),
    });
    let name = identity.map(|identity| identity.name);
    Ok(Evidence { found, state, side: Side { name, cluster, epoch, report, extent } })
}

impl<D: Disk> Evidence<D> {
    /// What the log says of itself.
    #[must_use]
    pub fn side(&self) -> &Side {
        &self.side
    }

    /// What it has at an index; `None` if it holds none.
    ///
    /// # Errors
    /// What the disk says.
    pub fn seen(&self, index: Index) -> Result<Option<Seen>, LogFault> {
        let Some(state) = &self.state else { return Ok(None) };
        if index == state.base.index {
            return Ok(Some(Seen::Base(state.base.term)));
        }
        let Some(at) = state.entry(index) else { return Ok(None) };
        Ok(Some(match state.holes.get(&index) {
            Some(true) => Seen::Lost { term: at.term, crc: at.crc },
            Some(false) => Seen::Unknown,
            None => {
                let entry = Box::new(entry_at(&self.found, index, at)?);
                let same = entry.identity().is_ok_and(|identity| identity.crc == at.crc);
                if entry.id != (LogId { term: at.term, index }) || !same {
                    // A live node has given the segment up, and uses its file again.
                    let why = "the file holds another segment by now; try again";
                    let detail = format!("read an entry: {why}");
                    return Err(LogFault::Unopened { detail });
                }
                let path = self.found.segments.get(&at.segment).map(|loaded| loaded.path.clone());
                let place = (path.unwrap_or_default(), at.offset);
                Seen::Entry { entry, crc: at.crc, place }
            }
        }))
    }
}

/// Compares two logs index by index, over all that both hold.
///
/// # Errors
/// What the disks say.
pub fn compare<A: Disk, B: Disk>(a: &Evidence<A>, b: &Evidence<B>) -> Result<Diff, LogFault> {
    let common = common(a.side.extent.as_ref(), b.side.extent.as_ref());
    let one_cluster = a.side.cluster == b.side.cluster
        && a.side.epoch == b.side.epoch
        && a.side.cluster != ClusterId::default();
    // One that belongs to no cluster yet, or cannot say to which, contradicts nobody.
    let none = ClusterId::default();
    let strangers = ![b.side.cluster, none].contains(&a.side.cluster) && b.side.cluster != none;
    let mut diff = Diff {
        common,
        same: 0,
        differ: 0,
        first: None,
        uncompared: Vec::new(),
        one_cluster,
        violation: None,
        verdict: Verdict::Unknown,
    };
    let mut again = None;
    let (from, to) = common.map_or((1, 0), |(from, to)| (from.0, to.0));
    for index in (from..=to).map(Index) {
        let (Some(left), Some(right)) = (a.seen(index)?, b.seen(index)?) else { continue };
        match differ(&left, &right) {
            None => diff.uncompared.push(index),
            Some(None) => {
                diff.same += 1;
                if diff.first.is_some() && again.is_none() {
                    again = Some(index);
                }
            }
            Some(Some(by)) => {
                diff.differ += 1;
                if diff.first.is_none() {
                    diff.first = Some(Difference { index, by, a: left, b: right });
                }
            }
        }
    }
    if let Some(first) = diff.first.as_ref().filter(|_| one_cluster) {
        diff.violation = violation(first, again, &a.side, &b.side);
    }
    let empty = |side: &Side| side.extent.is_some_and(|e| e.last == LogId::default());
    diff.verdict = match (&diff.first, diff.violation) {
        (_, Some(_)) => Verdict::Violation,
        (Some(_), None) => Verdict::Differ,
        (None, None) if strangers => Verdict::Differ,
        (None, None) if diff.common.is_some() && diff.uncompared.is_empty() => Verdict::Same,
        (None, None) if empty(&a.side) && empty(&b.side) => Verdict::Same,
        (None, None) => Verdict::Unknown,
    };
    Ok(diff)
}

/// The range that both hold, bases included.
fn common(a: Option<&Extent>, b: Option<&Extent>) -> Option<(Index, Index)> {
    let (a, b) = a.zip(b)?;
    let from = a.base.index.max(b.base.index).max(Index(1));
    let to = a.last.index.min(b.last.index);
    (from <= to).then_some((from, to))
}

/// By what they differ, if they do; `None` if nothing can be said.
fn differ(a: &Seen, b: &Seen) -> Option<Option<By>> {
    let (left, right) = a.term().zip(b.term())?;
    if left != right {
        return Some(Some(By::Term));
    }
    let (Some(left), Some(right)) = (a.crc(), b.crc()) else {
        // A base: one index has one entry of a term.
        return Some(None);
    };
    let (Seen::Entry { entry: x, .. }, Seen::Entry { entry: y, .. }) = (a, b) else {
        return Some((left != right).then_some(By::Checksum));
    };
    let by = match (&x.body, &y.body) {
        _ if a.kind() != b.kind() => Some(By::Kind),
        _ if x.time != y.time => Some(By::Time),
        (theirs, ours) if theirs != ours => Some(By::Payload),
        _ => None,
    };
    Some(by)
}

/// What the first difference breaks, of two logs of one cluster and epoch.
fn violation(first: &Difference, again: Option<Index>, a: &Side, b: &Side) -> Option<Violation> {
    let knows = |side: &Side| side.extent.is_some_and(|e| e.known >= first.index);
    if knows(a) && knows(b) {
        return Some(Violation::Committed);
    }
    if first.by != By::Term {
        return Some(Violation::SameTerm);
    }
    if let Some(again) = again {
        return Some(Violation::Rejoined(again));
    }
    // Whoever knows it committed learned so in a term no later than its own.
    let later = |knowing: &Side, other: &Seen| {
        let proved = knowing.extent.filter(|_| knowing.report.fault.is_none());
        let term = proved.filter(|e| e.known >= first.index).map(|e| e.hard.term);
        term.zip(other.term()).is_some_and(|(term, theirs)| theirs > term)
    };
    (later(a, &first.b) || later(b, &first.a)).then_some(Violation::Incomplete)
}

#[cfg(test)]
#[path = "diff_tests.rs"]
mod tests;
