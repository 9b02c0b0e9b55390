//! Durability on disk images: recovery, run on the very bytes that a power loss leaves, proves
//! every committed entry that the member's log had confirmed, and a majority of such images holds
//! everything that is committed (BUGS, "oracles": at least one durable copy on a quorum, after each
//! disk event). Nothing of a process's memory is looked at, and nothing of the disk is changed.

use super::commit_safety::Committed;
use super::ground::Ground;
use super::{Verdict, Violation};
use crate::shadow::Shadow;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::{HardState, Index, LogId, MemberId, Membership};
use holdfast_log::{MemDisk, inspect};
use std::collections::BTreeSet;

/// Name of the property.
pub const PROPERTY: &str = "disk-images";

/// What recovery proves from a disk.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// The log.
    pub log: Shadow,
    /// Its hard state.
    pub hard: HardState,
    /// Entries that are damaged.
    pub holes: BTreeSet<Index>,
    /// It proves too little (R5).
    pub held: bool,
}

impl Image {
    /// Reads what is synced on a disk, as the start after a power loss would at worst find it.
    ///
    /// # Errors
    /// If recovery would refuse it.
    pub fn of(who: &str, disk: &MemDisk) -> Result<Self, Violation> {
        Self::found(disk).map_err(|e| {
            Violation::new(PROPERTY, format!("what is synced on {who} cannot be recovered: {e}"))
        })
    }

    /// As [`Image::of`], of a disk that somebody damaged: where nothing can be read, nothing is
    /// proved.
    ///
    /// # Errors
    /// If recovery fails for another reason.
    pub fn of_damaged(who: &str, disk: &MemDisk) -> Result<Self, Violation> {
        match Self::found(disk) {
            Err(LogFault::Held { .. } | LogFault::Refused(_)) => {
                Ok(Self { held: true, ..Self::default() })
            }
            Ok(image) => Ok(image),
            Err(_) => Self::of(who, disk),
        }
    }

    fn found(disk: &MemDisk) -> Result<Self, LogFault> {
        let recovered = inspect::proved(&disk.synced(&["log/", "snap/"]))?;
        Ok(Self {
            log: Shadow::of(&recovered),
            hard: recovered.hard,
            holes: recovered.holes.iter().map(|hole| hole.index).collect(),
            held: recovered.held.is_some(),
        })
    }

    fn holds(&self, id: LogId) -> bool {
        let intact = !self.held && !self.holes.contains(&id.index);
        intact && (id.index < self.log.base().index || self.log.at(id.index) == Some(id))
    }
}

/// The image of a member whose synced bytes somebody damaged: what is not whole is a hole, or the
/// member is held; never is anything forgotten (R9, R14, R15).
///
/// # Errors
/// If a committed entry is neither there nor a hole, or hard state or last entry are not proved.
pub fn check_damaged(who: &str, image: &Image, ground: &Ground, committed: &Committed) -> Verdict {
    if image.held {
        return Ok(());
    }
    let reach = ground.last().index.min(committed.last().index);
    let whole = |id: &LogId| !image.holes.contains(&id.index);
    if let Some(id) = committed.at(reach).filter(whole) {
        let holds = image.holds(id);
        if ground.holds(id) && !holds {
            return lost(format!(
                "{who} had synced {id}, which is committed; its disk has no hole there"
            ));
        }
    }
    proved_end(who, image, ground)
}

/// The image of a member against what its log had confirmed.
///
/// # Errors
/// If a committed entry or the hard state is missing in it.
pub fn check_member(who: &str, image: &Image, ground: &Ground, committed: &Committed) -> Verdict {
    let reach = ground.last().index.min(committed.last().index);
    if let Some(id) = committed.at(reach).filter(|id| ground.holds(*id) && !image.holds(*id)) {
        return lost(format!(
            "{who} had synced {id}, which is committed; its disk proves a log from {} to {}",
            image.log.base(),
            image.log.last()
        ));
    }
    proved_end(who, image, ground)
}

fn proved_end(who: &str, image: &Image, ground: &Ground) -> Verdict {
    if image.hard.term < ground.hard().term || image.log.last() < ground.last() {
        return lost(format!(
            "{who} had synced {:?} and a log up to {}; its disk proves {:?} and {}",
            ground.hard(),
            ground.last(),
            image.hard,
            image.log.last()
        ));
    }
    Ok(())
}

/// The images of all members, of which some were damaged on purpose.
///
/// # Errors
/// If nobody holds the last committed entry any more.
pub fn check_anybody(images: &[(MemberId, Image)], committed: &Committed) -> Verdict {
    let last = committed.last();
    if last == LogId::default() || images.iter().any(|(_, image)| image.holds(last)) {
        return Ok(());
    }
    lost(format!("{last} is committed, and no disk holds it undamaged"))
}

/// The images of all members against what is committed.
///
/// # Errors
/// If fewer than a majority of a voter set hold all of it.
pub fn check_quorum(
    membership: &Membership,
    images: &[(MemberId, Image)],
    committed: &Committed,
) -> Verdict {
    let last = committed.last();
    if last == LogId::default() {
        return Ok(());
    }
    for half in [&membership.voters, &membership.outgoing] {
        let holders =
            images.iter().filter(|(m, image)| half.contains(m) && image.holds(last)).count();
        if !half.is_empty() && holders * 2 <= half.len() {
            return lost(format!("{last} is committed; {holders} of {} disks hold it", half.len()));
        }
    }
    Ok(())
}

fn lost(what: String) -> Verdict {
    Err(Violation::new(PROPERTY, what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::ground::tests::batch;
    use crate::check::log_matching::History;
    use holdfast_consensus::io::Persist;
    use holdfast_consensus::traits::LogStore;
    use holdfast_consensus::{ClusterId, Seq};
    use holdfast_log::{Log, LogOptions, Owner};

    fn log(disk: &MemDisk) -> Log<MemDisk> {
        let owner = Owner { member: MemberId(7), group: 0, cluster: ClusterId(1), epoch: 1 };
        let options = LogOptions { segment_bytes: LogOptions::SEGMENT_MIN };
        Log::open(disk.clone(), owner, options).expect("opens")
    }

    fn committed(batches: &[Persist]) -> Committed {
        let (mut history, mut committed) = (History::default(), Committed::default());
        let mut prev = LogId::default();
        for entry in batches.iter().flat_map(|b| b.append.iter()) {
            history.on_entry("a", prev, entry).expect("new");
            prev = entry.id;
        }
        committed.on_commit("a", prev, &history).expect("fine");
        committed
    }

    #[test]
    fn a_synced_entry_that_is_not_on_the_disk_is_seen() {
        let disk = MemDisk::new();
        let mut log = log(&disk);
        let first = Persist { seq: Seq(1), ..batch(None, &[(1, 1), (1, 2)], 1) };
        let more = Persist { seq: Seq(2), ..batch(None, &[(1, 3)], 2) };
        log.persist(std::slice::from_ref(&first)).expect("writes");
        let image = Image::of("n1", &disk).expect("recovers");
        assert_eq!((image.log.last(), image.hard.term.0), (LogId::new(1, 2), 1));
        let mut ground = Ground::default();
        ground.writes(std::slice::from_ref(&first));
        ground.written();
        let both = committed(&[first, more.clone()]);
        assert_eq!(check_member("n1", &image, &ground, &both), Ok(()));
        // Believed synced, never written.
        ground.writes(&[more]);
        ground.written();
        assert!(check_member("n1", &image, &ground, &both).is_err());
        assert!(check_member("n1", &image, &ground, &Committed::default()).is_err(), "a promise");
    }

    #[test]
    fn a_majority_of_disks_without_a_committed_entry_is_seen() {
        let membership = Membership::of_voters((1..=3).map(|n| (MemberId(n), format!("n{n}"))));
        let disk = MemDisk::new();
        let entries = batch(None, &[(1, 1)], 1);
        log(&disk).persist(std::slice::from_ref(&entries)).expect("writes");
        let full = Image::of("n1", &disk).expect("recovers");
        let committed = committed(&[entries]);
        let check = |holders: usize| {
            let image = |n: u64| if n <= holders as u64 { full.clone() } else { Image::default() };
            let images: Vec<_> = (1..=3).map(|n| (MemberId(n), image(n))).collect();
            check_quorum(&membership, &images, &committed)
        };
        assert_eq!(check(2), Ok(()));
        assert!(check(1).is_err());
    }
}
