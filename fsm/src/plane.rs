//! The data plane's directory: the one place through which copies of partitions, cursors and
//! accepted records are made and destroyed.
//!
//! Guarantees:
//! - Everything that destroys takes a [`Permit`] by value, and checks again, under the lock of the
//!   topic's name, that the disk holds what was permitted and that the state is still the one that
//!   proved it (R29). What is destroyed goes to the trash first, with a reason file.
//! - Two incarnations, and two placements of one partition, never share a path, on file systems
//!   that fold cases either (N14): the path is made of numbers, the name in it is a hint.
//! - A copy is made complete and durable with its stamp before its first record (R34). A missing
//!   or unreadable stamp is quarantine, and a read error is never taken for absence (N15).
//! - A crash anywhere leaves a copy whole at its place, or whole in the trash.
//!
//! ```text
//! data/volume                      cluster, node and volume that the plane belongs to
//! data/topics/PLACE/stamp          a copy of a partition, with its records and cursors beside it
//! data/trash/PLACE, PLACE.reason   a copy that was let go, and why
//! data/trash/note-N.reason         a cursor that was replaced, or records that were discarded
//! data/tmp/                        what is being made or removed; emptied at every open
//! ```
//!
//! Assumes: one process has the directory (the data directory's lock), and only this module
//! renames or removes anything in it but the broker's own files inside a live copy.

mod copies;
mod cursors;
mod discard;
mod layout;
mod seal;
mod seats;
mod trash;

pub use copies::{Found, Sweep};
pub use cursors::{Cursor, SeenCursor};
pub use discard::{DISCARD_MAX, Discarded};
pub(crate) use layout::DATA_DIRS;
pub use layout::{DATA_DIR, Place};
pub use seats::{Entered, Lease};
pub use trash::{Reason, Trashed};

use crate::guard::{Keep, Permit};
use crate::records::VolumeId;
use holdfast_consensus::{ClusterId, Micros};
use holdfast_log::disk::Disk;
use layout::{TMP_DIR, TOPICS_DIR, TRASH_DIR, VOLUME_FILE};
use seal::Sealed;
use seats::Seats;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;

/// Who a data plane belongs to: the content of its volume file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// The cluster.
    pub cluster: ClusterId,
    /// The configured node name (N21).
    pub node: String,
    /// The disk.
    pub volume: VolumeId,
}

impl Sealed for Volume {
    const MAGIC: [u8; 8] = *b"HFVOLUME";
    const WHAT: &'static str = "volume file";
}

/// Why the data plane could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlaneError {
    /// It belongs to somebody else, or says not to whom. Nothing was changed.
    #[error("{0}")]
    Foreign(String),
    /// Something else stands where the copy would go.
    #[error("{path} is not the copy that belongs there ({why}); look at it by hand")]
    Occupied {
        /// Where.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The copy lies in the trash: put it back ([`Plane::put_back`]).
    #[error("{0} lies in the trash; put it back")]
    InTrash(Place),
    /// There is no such copy.
    #[error("there is no copy {0}")]
    Missing(Place),
    /// The copy was let go: its writers are closed (N12).
    #[error("the copy {0} is closed for writing: it is being let go")]
    Closed(Place),
    /// A file operation failed.
    #[error("{0}")]
    Disk(String),
}

impl From<io::Error> for PlaneError {
    fn from(error: io::Error) -> Self {
        Self::Disk(error.to_string())
    }
}

/// The data plane of one node.
#[derive(Debug)]
pub struct Plane<D: Disk> {
    disk: D,
    volume: Volume,
    /// There was none before this open.
    new: bool,
    seats: Arc<Seats>,
    names: Mutex<BTreeMap<String, Arc<Mutex<()>>>>,
    /// When each entry of the trash was first seen in this open.
    seen: Mutex<BTreeMap<String, Micros>>,
    /// Numbers files in `tmp` and notes in the trash.
    next: Mutex<u64>,
}

impl<D: Disk> Plane<D> {
    /// Opens the data plane of `node`, making an empty one, on the volume `fresh`, if there is
    /// none. What an earlier process left half made, or had already let go, is cleared.
    ///
    /// # Errors
    /// [`PlaneError::Foreign`] if it belongs to another cluster or node, or holds copies without
    /// saying to whom they belong: nothing was changed. [`PlaneError::Disk`].
    pub fn open(
        disk: D,
        cluster: ClusterId,
        node: &str,
        fresh: VolumeId,
    ) -> Result<Self, PlaneError> {
        let found = Self::check(&disk, cluster, node)?;
        let new = found.is_none();
        let volume =
            found.unwrap_or_else(|| Volume { cluster, node: node.to_owned(), volume: fresh });
        for dir in DATA_DIRS {
            disk.make_dir(dir)?;
        }
        disk.sync_dir("")?;
        disk.sync_dir(DATA_DIR)?;
        seal::remove_all(&disk, TMP_DIR)?;
        let plane = Self {
            disk,
            volume,
            new,
            seats: Arc::default(),
            names: Mutex::default(),
            seen: Mutex::default(),
            next: Mutex::new(0),
        };
        let bytes = plane.volume.seal()?;
        if seal::read(&plane.disk, VOLUME_FILE)?.as_ref() != Some(&bytes) {
            plane.replace(DATA_DIR, VOLUME_FILE, &bytes)?;
        }
        plane.tidy_trash()?;
        Ok(plane)
    }

    /// Whose the data plane on a disk is: `node`'s, or nobody's yet. Nothing is changed.
    ///
    /// # Errors
    /// As [`Plane::open`].
    pub fn check(disk: &D, cluster: ClusterId, node: &str) -> Result<Option<Volume>, PlaneError> {
        let found = seal::read(disk, VOLUME_FILE).map_err(|e| {
            PlaneError::Disk(format!(
                "{e}: nothing was changed; {}",
                holdfast_log::remedy(e.kind())
            ))
        })?;
        match found {
            Some(bytes) => own_volume(&bytes, cluster, node).map(Some),
            None => empty(disk).map(|()| None),
        }
    }

    /// Who it belongs to.
    #[must_use]
    pub const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// True if this open made it, on a volume of which nobody has heard.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.new
    }

    /// Runs `act` while nobody else creates or destroys anything under this topic's name.
    fn locked<T>(&self, topic: &str, act: impl FnOnce() -> T) -> T {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|_, lock| Arc::strong_count(lock) > 1);
        let lock = Arc::clone(names.entry(topic.to_owned()).or_default());
        drop(names);
        let _held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        act()
    }

    fn number(&self) -> u64 {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next += 1;
        *next
    }

    /// Writes a file in `dir` so that a crash leaves the old content or the new.
    fn replace(&self, dir: &str, path: &str, bytes: &[u8]) -> io::Result<()> {
        let tmp = format!("{TMP_DIR}/{}", self.number());
        seal::write_new(&self.disk, &tmp, bytes)?;
        self.disk.rename(&tmp, path)?;
        self.disk.sync_dir(dir)?;
        self.disk.sync_dir(TMP_DIR)
    }
}

/// What the last resort costs: a volume id is never made up again for the copies of another.
const NEW_VOLUME: &str = "the node then gets a new volume id: what was moved is not used again, the partitions that \
     were placed on the old volume stay assigned to that one and have no copy here, and only topics that are created \
     later are placed on the new one";

/// The volume, if it is this node's.
fn own_volume(bytes: &[u8], cluster: ClusterId, node: &str) -> Result<Volume, PlaneError> {
    let volume = Volume::open(bytes).map_err(|why| {
        PlaneError::Foreign(format!(
            "{VOLUME_FILE} cannot be read ({why}): nothing was changed; put it back from a backup. As the last \
             resort move the directory {DATA_DIR} aside: {NEW_VOLUME}"
        ))
    })?;
    if volume.cluster == cluster && volume.node == node {
        return Ok(volume);
    }
    Err(PlaneError::Foreign(format!(
        "the directory {DATA_DIR} belongs to node `{}` of cluster {}, and this is node `{node}` of cluster {cluster}: \
         nothing was changed; mount the volume that belongs to this node",
        volume.node, volume.cluster,
    )))
}

/// Copies without a volume file belong to nobody knows whom.
fn empty<D: Disk>(disk: &D) -> Result<(), PlaneError> {
    for dir in [TOPICS_DIR, TRASH_DIR] {
        if !seal::names(disk, dir)?.is_empty() {
            return Err(PlaneError::Foreign(format!(
                "{dir} holds something, and {VOLUME_FILE} is missing: nothing was changed; put the file back from a \
                 backup. As the last resort move the directory {DATA_DIR} aside: {NEW_VOLUME}"
            )));
        }
    }
    Ok(())
}

/// A file operation that failed keeps the data.
fn disk(error: impl std::fmt::Display) -> Keep {
    Keep::Disk(error.to_string())
}

/// Takes the permit: whatever it was for, it is used up.
fn spent(permit: Permit) {
    drop(permit);
}
