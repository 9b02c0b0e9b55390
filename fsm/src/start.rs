//! Starting on what a directory holds: one decision, the same in both worlds.
//!
//! Log, snapshots and store can each be missing, old or damaged. [`decide`] looks at what was
//! proved of each and says what to do, in one exhaustive function without side effects; [`start`]
//! carries it out. A refusal leaves every byte of the store as it was.
//!
//! | log | store | then |
//! |---|---|---|
//! | holds nothing | holds nothing | fresh |
//! | any | another cluster's, or a newer build's | refuse |
//! | held: it proves too little (R5, R14) | any other | look: nothing is written, the store is read if it can be |
//! | ends before the store's last entry | trusted | refuse: the log was lost (R1) |
//! | holds another entry there | trusted | refuse: they do not belong together |
//! | conflicts with a snapshot that the store is ahead of | trusted | refuse: one is a stranger's |
//! | conflicts with a snapshot, or ends before it | behind it | restore it: its install was cut short |
//! | goes on behind the store's last entry | trusted | replay from there; the snapshot is not needed |
//! | begins later, a snapshot covers the gap | trusted or missing | restore the snapshot, then replay |
//! | begins later, no snapshot covers the gap | trusted or missing | refuse |
//! | begins at 1, or a snapshot covers its begin | not trusted | set the store aside and rebuild it |
//! | begins later, no snapshot | not trusted | refuse |

use crate::metastore::Metastore;
use crate::store::{OpenError, STORE_DIR, STORE_FILE, StoreOptions, disk_fault};
use holdfast_consensus::fault::{NEVER_OLDER, NO_REPLACEMENT, StoreFault};
use holdfast_consensus::traits::LogStore;
use holdfast_consensus::{Index, LogId, Recovered, Term};
use holdfast_log::disk::Disk;
use holdfast_log::{Home, Identity, Log};
use thiserror::Error;

/// What is known of the store before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreFacts {
    /// There is none, or one that has applied nothing.
    Empty,
    /// It can be trusted and has applied up to here.
    Holds(LogId),
    /// It contradicts itself: what it says of itself proves nothing.
    Untrusted(String),
    /// It must not be used or replaced by this node: the text names the thing and the remedy.
    Foreign(String),
}

/// What a start does with the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing was ever here.
    Fresh,
    /// The log feeds the store from this index on.
    Replay {
        /// The first entry that the store does not hold.
        from: Index,
    },
    /// The store is restored from this snapshot before the log feeds it.
    Install {
        /// Last entry of the snapshot.
        snapshot: LogId,
    },
    /// The store is renamed, and an empty one rebuilt from snapshot and log.
    SetAside {
        /// Why it cannot be trusted.
        why: String,
    },
    /// The log is held: no byte of the directory changes, and nothing that the log does not prove
    /// is compared with the store (R5).
    Look {
        /// Why the log is held.
        held: String,
    },
    /// The node does not start.
    Refuse(Refused),
}

/// Why a start is refused. The store was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// Evidence of a lost log (R1).
    #[error(
        "the store has applied {store}, but the log ends at {log}: the log was lost or replaced by an older one, and this member may have voted or acknowledged what it no longer knows; it must not come back under its old identity. The store was not changed. Put back the log that fed this store, {}. {}",
        NEVER_OLDER,
        NO_REPLACEMENT
    )]
    StoreAhead {
        /// Last entry applied.
        store: LogId,
        /// Last entry of the log.
        log: LogId,
    },
    /// Log and store come from different histories.
    #[error(
        "the store has applied {store}, but the log holds an entry of {log} there: log and store do not belong together. The store was not changed. Put back the directory that belongs to this node, {}. {}",
        NEVER_OLDER,
        NO_REPLACEMENT
    )]
    Diverged {
        /// Last entry applied.
        store: LogId,
        /// Term of the log's entry at that index.
        log: Term,
    },
    /// Store and snapshot come from different histories.
    #[error(
        "the store has applied {store}, and the log agrees, but the published snapshot says {snapshot}: one of them is from another history. The store was not changed. Remove the file that does not belong to this node, or put the directory back as it was, {}. {}",
        NEVER_OLDER,
        NO_REPLACEMENT
    )]
    SnapshotDiverged {
        /// Last entry applied.
        store: LogId,
        /// Last entry of the snapshot.
        snapshot: LogId,
    },
    /// Entries between store and log are nowhere.
    #[error(
        "the store has applied up to {store}, the log begins at {first}, and no snapshot covers what lies between. The store was not changed. Put the newest snapshot file back. {}",
        NO_REPLACEMENT
    )]
    Gap {
        /// Last entry applied; zero if none.
        store: Index,
        /// First entry of the log.
        first: Index,
    },
    /// The store is damaged, and nothing is here to rebuild it from.
    #[error(
        "{why}; the log begins at {first} and no snapshot covers what lies before, so that the store cannot be rebuilt here. The store was not changed. Put the newest snapshot file back. {}",
        NO_REPLACEMENT
    )]
    Unrepairable {
        /// What is wrong with the store.
        why: String,
        /// First entry of the log.
        first: Index,
    },
    /// The store is another cluster's or a newer build's.
    #[error("{0}")]
    Foreign(String),
}

/// Decides what a start does, from what was proved. Pure and total.
#[must_use]
pub fn decide(log: &Recovered, store: &StoreFacts) -> Plan {
    let snapshot = log.snapshot.as_ref().map(|meta| meta.last);
    // A snapshot at or above the base carries everything that the log does not.
    let cover = snapshot.filter(|last| last.index >= log.base.index);
    let holds = match (store, &log.held) {
        (StoreFacts::Foreign(why), _) => return Plan::Refuse(Refused::Foreign(why.clone())),
        // What is proved of a held log speaks neither for nor against a store (R5).
        (_, Some(why)) => return Plan::Look { held: why.clone() },
        (StoreFacts::Untrusted(why), None) => {
            let (why, first) = (why.clone(), log.first);
            return match log.base.index == Index(0) || cover.is_some() {
                true => Plan::SetAside { why },
                false => Plan::Refuse(Refused::Unrepairable { why, first }),
            };
        }
        (StoreFacts::Empty, None) => LogId::default(),
        (StoreFacts::Holds(last), None) => *last,
    };
    if holds.index > log.last.index {
        return Plan::Refuse(Refused::StoreAhead { store: holds, log: log.last });
    }
    // A published snapshot whose entry the log does not hold is an install that was cut short
    // (R25): the log is put on it again, and the store restored from it.
    let cut_short = |last: &LogId| last.index > log.base.index && !log.may_hold(*last);
    if let Some(snapshot) = cover.filter(cut_short) {
        if snapshot.index <= holds.index {
            return Plan::Refuse(Refused::SnapshotDiverged { store: holds, snapshot });
        }
        return Plan::Install { snapshot };
    }
    if holds.index < log.base.index {
        let gap = Refused::Gap { store: holds.index, first: log.first };
        return cover.map_or(Plan::Refuse(gap), |snapshot| Plan::Install { snapshot });
    }
    match log.term_at(holds.index) {
        _ if holds.index == Index(0) && log.last.index == Index(0) => Plan::Fresh,
        term if holds.index > Index(0) && !log.may_hold(holds) => {
            Plan::Refuse(Refused::Diverged { store: holds, log: term.unwrap_or_default() })
        }
        _ => Plan::Replay { from: holds.index.next() },
    }
}

/// A replica's parts, ready for the driver.
pub struct Started<D: Disk> {
    /// The lock of the directory: keep it for the life of the process.
    pub lock: Box<dyn Send + Sync>,
    /// Who the directory belongs to.
    pub identity: Identity,
    /// The log.
    pub log: Log<D>,
    /// The store.
    pub store: Metastore<D>,
    /// What was decided: for the log of events. [`Plan::Install`] is carried out by the driver.
    pub plan: Plan,
}

/// Why a replica was not started.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StartError {
    /// The directory belongs to no cluster yet: form or join one first.
    #[error("the data directory belongs to no cluster yet")]
    NotFormed,
    /// The evidence forbids it; every byte of the store is as it was.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The store could not be read or opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Opens the store of an open home as [`decide`] says. `options` must name the cluster and epoch
/// of the home's identity.
///
/// # Errors
/// [`StartError`].
pub fn start<D: Disk>(
    home: Home<D>,
    disk: D,
    options: StoreOptions,
) -> Result<Started<D>, StartError> {
    if !home.is_formed() {
        return Err(StartError::NotFormed);
    }
    let (lock, identity, log) = home.into_parts();
    let facts = facts(&disk, &options)?;
    let plan = decide(&log.recovered(), &facts);
    match &plan {
        Plan::Refuse(why) => return Err(why.clone().into()),
        Plan::Look { .. } => {
            let store = Metastore::look(disk, options)?;
            return Ok(Started { lock, identity, log, store, plan });
        }
        Plan::SetAside { .. } => set_aside(&disk).map_err(OpenError::from)?,
        Plan::Fresh | Plan::Replay { .. } | Plan::Install { .. } => {}
    }
    let mut store = Metastore::open(disk, options)?;
    if matches!(plan, Plan::SetAside { .. }) {
        store.took_over();
    }
    Ok(Started { lock, identity, log, store, plan })
}

/// Looks at the store without writing a byte.
///
/// # Errors
/// [`OpenError::Disk`] if it cannot be read.
pub fn facts<D: Disk>(disk: &D, options: &StoreOptions) -> Result<StoreFacts, OpenError> {
    Ok(match Metastore::inspect(disk, options) {
        Ok(Some(header)) if !header.is_empty() => StoreFacts::Holds(header.last),
        Ok(_) => StoreFacts::Empty,
        Err(error @ OpenError::Untrusted(_)) => StoreFacts::Untrusted(error.to_string()),
        Err(error @ OpenError::Disk(_)) => return Err(error),
        Err(error) => StoreFacts::Foreign(error.to_string()),
    })
}

/// Renames the store to the first free `stale-N.redb`: never a removal, so that it can be looked
/// at.
fn set_aside<D: Disk>(disk: &D) -> Result<(), StoreFault> {
    let names = disk.list(STORE_DIR).map_err(|e| disk_fault("list the store", &e))?;
    let free = (1u32..)
        .map(|n| format!("stale-{n}.redb"))
        .find(|name| !names.contains(name))
        .expect("a directory holds fewer than 2^32 names");
    disk.rename(STORE_FILE, &format!("{STORE_DIR}/{free}"))
        .map_err(|e| disk_fault("set the store aside", &e))?;
    disk.sync_dir(STORE_DIR).map_err(|e| disk_fault("sync the directory of the store", &e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_consensus::SnapshotMeta;

    /// A log of entries `base+1..=last`, all of term 2 (the base of term 1).
    fn log(base: u64, last: u64, snapshot: Option<LogId>) -> Recovered {
        let base = if base == 0 { LogId::default() } else { LogId::new(1, base) };
        let first = base.index.next();
        let last = if last == base.index.0 { base } else { LogId::new(2, last) };
        let terms = if last == base { Vec::new() } else { vec![LogId::new(2, first.0)] };
        let snapshot = snapshot.map(|last| SnapshotMeta { last, ..SnapshotMeta::default() });
        Recovered { first, base, last, terms, snapshot, ..Recovered::default() }
    }

    fn holds(index: u64) -> StoreFacts {
        StoreFacts::Holds(LogId::new(2, index))
    }

    fn refused(plan: Plan) -> Refused {
        match plan {
            Plan::Refuse(why) => why,
            other => panic!("{other:?} is no refusal"),
        }
    }

    #[test]
    fn nothing_anywhere_is_a_fresh_node() {
        assert_eq!(decide(&log(0, 0, None), &StoreFacts::Empty), Plan::Fresh);
    }

    #[test]
    fn a_lost_store_is_rebuilt_from_a_whole_log() {
        let plan = decide(&log(0, 9, None), &StoreFacts::Empty);
        assert_eq!(plan, Plan::Replay { from: Index(1) });
    }

    #[test]
    fn a_store_within_its_log_goes_on_and_needs_no_snapshot() {
        for snapshot in [None, Some(LogId::new(2, 4)), Some(LogId::new(2, 9))] {
            let plan = decide(&log(0, 9, snapshot), &holds(6));
            assert_eq!(plan, Plan::Replay { from: Index(7) }, "{snapshot:?}");
        }
        assert_eq!(decide(&log(0, 9, None), &holds(9)), Plan::Replay { from: Index(10) });
        let at_base = StoreFacts::Holds(LogId::new(1, 5));
        let plan = decide(&log(5, 9, Some(LogId::new(1, 5))), &at_base);
        assert_eq!(plan, Plan::Replay { from: Index(6) });
    }

    #[test]
    fn a_store_behind_its_compacted_log_is_restored_from_the_snapshot() {
        for store in [StoreFacts::Empty, StoreFacts::Holds(LogId::new(1, 3))] {
            let snapshot = LogId::new(1, 5);
            let plan = decide(&log(5, 9, Some(snapshot)), &store);
            assert_eq!(plan, Plan::Install { snapshot });
            let snapshot = LogId::new(2, 8);
            let plan = decide(&log(5, 9, Some(snapshot)), &store);
            assert_eq!(plan, Plan::Install { snapshot });
        }
    }

    #[test]
    fn a_published_snapshot_above_the_log_is_an_install_that_was_cut_short() {
        let snapshot = LogId::new(3, 20);
        let plan = decide(&log(0, 9, Some(snapshot)), &holds(6));
        assert_eq!(plan, Plan::Install { snapshot });
        let conflicting = LogId::new(3, 8);
        let plan = decide(&log(0, 9, Some(conflicting)), &holds(6));
        assert_eq!(plan, Plan::Install { snapshot: conflicting }, "a conflicting suffix");
    }

    #[test]
    fn a_snapshot_that_contradicts_what_the_store_has_applied_is_refused() {
        let (store, snapshot) = (LogId::new(2, 6), LogId::new(3, 5));
        let why = refused(decide(&log(0, 9, Some(snapshot)), &holds(6)));
        assert_eq!(why, Refused::SnapshotDiverged { store, snapshot });
    }

    #[test]
    fn a_store_ahead_of_its_log_is_evidence_of_a_lost_log() {
        for snapshot in [None, Some(LogId::new(2, 4)), Some(LogId::new(3, 20))] {
            let why = refused(decide(&log(0, 9, snapshot), &holds(10)));
            let (store, log) = (LogId::new(2, 10), LogId::new(2, 9));
            assert_eq!(why, Refused::StoreAhead { store, log });
            let text = why.to_string();
            assert!(text.contains("t2.i10") && text.contains("t2.i9"), "both ends: {text}");
            assert!(text.contains("Put back the log") && !text.contains("new member"), "{text}");
        }
        let why = refused(decide(&log(0, 0, None), &holds(1)));
        assert!(matches!(why, Refused::StoreAhead { .. }), "the log is gone");
    }

    #[test]
    fn a_store_with_another_entry_than_its_log_is_refused() {
        let store = LogId::new(1, 6);
        let why = refused(decide(&log(0, 9, None), &StoreFacts::Holds(store)));
        assert_eq!(why, Refused::Diverged { store, log: Term(2) });
    }

    #[test]
    fn a_held_log_is_compared_with_no_store_but_a_strangers() {
        let held = Recovered { held: Some("row P8".to_owned()), ..log(0, 9, None) };
        let untrusted = StoreFacts::Untrusted("torn".to_owned());
        // What is proved of the log may end anywhere: it speaks neither for nor against the store.
        for store in [StoreFacts::Empty, holds(4), holds(40), untrusted] {
            assert_eq!(decide(&held, &store), Plan::Look { held: "row P8".to_owned() });
        }
        let foreign = StoreFacts::Foreign("of another cluster".to_owned());
        assert!(matches!(refused(decide(&held, &foreign)), Refused::Foreign(_)));
    }

    #[test]
    fn a_gap_between_store_and_log_without_a_snapshot_is_refused() {
        for snapshot in [None, Some(LogId::new(1, 4))] {
            let why = refused(decide(&log(5, 9, snapshot), &StoreFacts::Empty));
            assert_eq!(why, Refused::Gap { store: Index(0), first: Index(6) });
        }
    }

    #[test]
    fn an_untrusted_store_is_set_aside_if_it_can_be_rebuilt_and_refused_if_not() {
        let untrusted = StoreFacts::Untrusted("rot".to_owned());
        let aside = Plan::SetAside { why: "rot".to_owned() };
        assert_eq!(decide(&log(0, 9, None), &untrusted), aside);
        assert_eq!(decide(&log(5, 9, Some(LogId::new(2, 7))), &untrusted), aside);
        let why = refused(decide(&log(5, 9, None), &untrusted));
        assert_eq!(why, Refused::Unrepairable { why: "rot".to_owned(), first: Index(6) });
    }

    #[test]
    fn a_store_of_another_cluster_is_refused_whatever_the_log_says() {
        let foreign = StoreFacts::Foreign("not mine".to_owned());
        for log in [log(0, 0, None), log(0, 9, None), log(5, 9, Some(LogId::new(2, 9)))] {
            assert_eq!(refused(decide(&log, &foreign)), Refused::Foreign("not mine".to_owned()));
        }
    }

    #[test]
    fn setting_a_store_aside_renames_it_to_a_name_of_its_own() {
        let files = [(STORE_FILE, 1u8), ("store/stale-1.redb", 2)];
        let files = files.map(|(path, byte)| (path.to_owned(), vec![byte]));
        let disk = holdfast_log::MemDisk::from_files(files.into());
        let options = StoreOptions::small(holdfast_consensus::ClusterId(1), 1);
        let found = facts(&disk, &options).unwrap();
        assert!(matches!(found, StoreFacts::Untrusted(_)), "{found:?}");
        set_aside(&disk).unwrap();
        let files = disk.files();
        let names: Vec<_> = files.iter().map(|(path, bytes)| (path.as_str(), bytes[0])).collect();
        assert_eq!(names, [("store/stale-1.redb", 2), ("store/stale-2.redb", 1)]);
        assert_eq!(facts(&disk, &options).unwrap(), StoreFacts::Empty);
        let store = Metastore::open(disk.clone(), options).unwrap();
        assert!(store.header().is_empty());
        assert_eq!(disk.files().len(), 3, "what was set aside stays");
    }

    /// Every small combination: whatever is not refused can be carried out.
    #[test]
    fn every_plan_that_is_not_refused_has_what_it_needs() {
        let mut seen = [0usize; 5];
        for (base, last, at, snap) in combinations() {
            let snapshot = snap.map(|(term, index)| LogId::new(term, index));
            let log = log(base, last, snapshot);
            let store = if at == 0 { StoreFacts::Empty } else { holds(at) };
            let plan = decide(&log, &store);
            let case = format!("base {base} last {last} store {at} snapshot {snapshot:?}");
            match &plan {
                Plan::Fresh => assert_eq!((base, last, at), (0, 0, 0), "{case}"),
                Plan::Replay { from } => {
                    assert_eq!(from.0, at + 1, "{case}");
                    assert!(*from >= log.first && at <= last, "the log holds it: {case}");
                }
                Plan::Install { snapshot: used } => {
                    assert_eq!(Some(*used), snapshot, "{case}");
                    assert!(used.index.0 >= base && at <= last, "{case}");
                    assert!(used.index.0 > at, "an install brings something new: {case}");
                }
                Plan::SetAside { .. } => panic!("a trusted store is never set aside: {case}"),
                Plan::Refuse(Refused::StoreAhead { .. }) => assert!(at > last, "{case}"),
                Plan::Refuse(Refused::SnapshotDiverged { snapshot: found, .. }) => {
                    assert!(found.index.0 <= at && at <= last, "{case}");
                }
                Plan::Refuse(_) => assert!(at <= base, "{case}"),
                Plan::Look { .. } => panic!("only a held log is looked at alone: {case}"),
            }
            seen[match plan {
                Plan::Fresh => 0,
                Plan::Replay { .. } => 1,
                Plan::Install { .. } => 2,
                Plan::SetAside { .. } | Plan::Look { .. } => 3,
                Plan::Refuse(_) => 4,
            }] += 1;
        }
        assert!(seen[0] > 0 && seen[1] > 0 && seen[2] > 0 && seen[4] > 0, "{seen:?}");
    }

    type Case = (u64, u64, u64, Option<(u64, u64)>);

    fn combinations() -> Vec<Case> {
        let mut all = Vec::new();
        for base in 0..4 {
            for last in base..6 {
                for at in 0..7 {
                    all.push((base, last, at, None));
                    for index in 1..8 {
                        all.extend([1, 2, 3].map(|term| (base, last, at, Some((term, index)))));
                    }
                }
            }
        }
        all
    }
}
