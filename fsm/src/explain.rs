//! What a start on a directory would do, found out without doing it: the start itself, with all of
//! its decisions, runs over an [`Overlay`], and what it would have changed is read off that.
//!
//! Guarantees: not a byte of the directory changes, and no decision is made here. What is told is
//! what the start does at the state of the directory that was read. A process that runs on the
//! directory goes on meanwhile; then what is told is what a start would find if that process ended
//! now without a word, and if no unwritten page were lost with it.
//!
//! Left out: space (an overlay is never full), and everything after the start, such as what peers
//! send. The first entry of a cluster that is still being founded is written as a start would.

use crate::entrance;
use crate::metastore::Metastore;
use crate::plane::Plane;
use crate::records::VolumeId;
use crate::start::{Plan, Started, StoreFacts, facts, start};
use crate::store::StoreOptions;
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::replica::{Replica, ReplicaConfig, ReplicaStatus};
use holdfast_consensus::traits::LogStore;
use holdfast_consensus::{ClusterId, MemberId, Recovered};
use holdfast_log::disk::{Disk, DiskFile, Mode};
use holdfast_log::inspect::{self, Report};
use holdfast_log::overlay::{Changed, Overlay};
use holdfast_log::{HomeOptions, Identity, IdentityState, LogOptions};
use std::io;

/// With what the start would be configured.
#[derive(Clone, Debug)]
pub struct Configured {
    /// The node name; `None` for that of the directory.
    pub name: Option<String>,
    /// Length of a log segment in bytes; `None` for the length that the directory's files have.
    pub segment_bytes: Option<u64>,
    /// The settings of the store, for a cluster and epoch.
    pub store: fn(ClusterId, u64) -> StoreOptions,
}

/// Which part of a start refuses.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The data directory: its identity and its log.
    Home,
    /// The directories of the node's partitions.
    Plane,
    /// Log, snapshots and store together.
    Store,
    /// The replica that would run on them.
    Replica,
}

/// How the start would end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It would not start.
    Refused {
        /// Which part says so.
        by: Stage,
        /// Why, with the remedy.
        why: String,
    },
    /// It would wait to form or join a cluster.
    Waits,
    /// It would run.
    Runs {
        /// What it does with the store.
        plan: Plan,
        /// The log as the start opened it; its boot is the number of that start.
        recovered: Box<Recovered>,
        /// The replica before its first input.
        status: Box<ReplicaStatus>,
    },
}

/// What a start on a directory would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// Who the directory says that it belongs to, if it says so and that can be read.
    pub identity: Option<Identity>,
    /// What recovery proves of the log as it lies there; the fault if nothing could be judged.
    pub log: Result<Report, LogFault>,
    /// What is known of the store before it is opened; `None` if the start does not get that far.
    pub store: Option<StoreFacts>,
    /// How it would end.
    pub end: End,
    /// What it would change, by path, up to where it would run or refuse.
    pub changes: Vec<Changed>,
}

/// Finds out what a start on the directory would do, and changes nothing.
///
/// # Errors
/// What the disk says of the directory itself, or of a file that is compared at the end;
/// `PermissionDenied` if this user may not read all of it: another one's start would find more.
pub fn explain<D: Disk>(disk: &D, configured: &Configured) -> io::Result<Explained> {
    let scratch = Overlay::over(disk.clone())?;
    // What refuses to be read here refuses the start too, and is told by it.
    let identity = inspect::identity(&scratch).ok().flatten();
    let log = inspect::verify(&scratch);
    let mut store = None;
    let end = attempt(&scratch, identity.as_ref(), configured, &mut store);
    let end = end.unwrap_or_else(|(by, why)| End::Refused { by, why });
    let changes = scratch.changes()?;
    if let Some(what) = scratch.denied() {
        let why = format!(
            "{what}: it cannot be read by this user; ask as the user that the node runs as"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(Explained { identity, log, store, end, changes })
}

/// The start, in the order of a node's.
fn attempt<D: Disk>(
    disk: &Overlay<D>,
    identity: Option<&Identity>,
    configured: &Configured,
    store: &mut Option<StoreFacts>,
) -> Result<End, (Stage, String)> {
    let name = configured.name.clone().or_else(|| identity.map(|identity| identity.name.clone()));
    let segment_bytes = configured.segment_bytes.unwrap_or_else(|| segment_bytes(disk));
    let options = HomeOptions {
        name: name.unwrap_or_default(),
        // A node draws one; which does not matter here.
        fresh_member: MemberId(u64::MAX),
        log: LogOptions { segment_bytes },
    };
    let home = entrance::open(disk.clone(), &options, configured.store)
        .map_err(|(by, e)| (by, e.to_string()))?;
    if home.identity().state != IdentityState::Formed {
        return Ok(End::Waits);
    }
    let Identity { cluster, epoch, ref name, .. } = *home.identity();
    let name = name.clone();
    let options = (configured.store)(cluster, epoch);
    *store = facts(disk, &options).ok();
    let Started { lock: _lock, identity, mut log, store: mut machine, plan } =
        start(home, disk.clone(), options).map_err(|e| (Stage::Store, e.to_string()))?;
    let config = ReplicaConfig::new(identity.member);
    // The seed draws only when it would stand, the clock says only since when it waits.
    let replica = Replica::<_, Metastore<Overlay<D>>>::open(config, 0, &mut log, &mut machine, 0)
        .map_err(|why| (Stage::Replica, why.to_string()))?;
    // Whose it is was asked at the entrance.
    Plane::open(disk.clone(), cluster, &name, VolumeId(u128::MAX))
        .map_err(|e| (Stage::Plane, e.to_string()))?;
    let status = Box::new(replica.status(0));
    Ok(End::Runs { plan, recovered: Box::new(log.recovered()), status })
}

/// The length of a segment, as the files of the log have it: a spare is as long as was configured, a
/// segment may be shorter.
fn segment_bytes<D: Disk>(disk: &D) -> u64 {
    let names = disk.list("log").unwrap_or_default();
    let longest = |wanted: &dyn Fn(&str) -> bool| {
        let lengths = names.iter().filter(|name| wanted(name)).filter_map(|name| {
            let file = disk.open(&format!("log/{name}"), Mode::Read).ok()?;
            file.len().ok()
        });
        lengths.filter(|len| *len >= LogOptions::SEGMENT_MIN && len.is_multiple_of(4096)).max()
    };
    let spare = longest(&|name| name.starts_with("spare-") && !name.ends_with(".tmp"));
    let segment = || longest(&|name| name.starts_with(|c: char| c.is_ascii_digit()));
    spare.or_else(segment).unwrap_or(LogOptions::default().segment_bytes)
}
