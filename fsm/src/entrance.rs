//! What must hold before a node opens its data directory for writing: everything that can be known
//! without writing is looked at first, so that a start that refuses has changed nothing.
//!
//! Guarantees: whatever is refused here leaves every byte but the lock file's as it was; and what
//! `explain-restart` foretells passes through the same questions, in the same order.
//!
//! Asked, under the directory's lock: can every file be used by this process; do the directories of
//! the partitions belong to this node; is the store this cluster's; and does it go with what the log
//! will have recovered ([`decide`]); and can anybody give back what is damaged ([`refuse_alone`]).
//! A log that is held is not compared with anything (R5).

use crate::explain::Stage;
use crate::plane::{DATA_DIRS, Plane};
use crate::reserve;
use crate::start::{Plan, Refused, StoreFacts, decide, facts};
use crate::store::{OpenError, STORE_DIR, STORE_FILE, StoreOptions};
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::replica::refuse_alone;
use holdfast_consensus::{ClusterId, Recovered};
use holdfast_log::disk::Disk;
use holdfast_log::{Admit, Home, HomeError, HomeOptions, Identity, IdentityState, remedy};
use std::io;

/// The directories beside the data plane's; `""` is the root.
const DIRS: [&str; 4] = ["", "log", "snap", STORE_DIR];

/// Opens a data directory as a node does: asks everything first, then opens the log. `store` gives the
/// settings of the store for a cluster and epoch.
///
/// # Errors
/// The part that refuses, and why. Nothing was changed, unless the disk failed while the log was
/// being opened.
pub fn open<D: Disk>(
    disk: D,
    options: &HomeOptions,
    store: fn(ClusterId, u64) -> StoreOptions,
) -> Result<Home<D>, (Stage, HomeError)> {
    let mut entrance = Entrance { store, facts: StoreFacts::Empty, refused_by: Stage::Home };
    let opened = Home::open_if(disk, options, Some(&mut entrance));
    opened.map_err(|error| (entrance.refused_by, error))
}

struct Entrance {
    store: fn(ClusterId, u64) -> StoreOptions,
    /// The store as it was found.
    facts: StoreFacts,
    refused_by: Stage,
}

impl Entrance {
    fn refuse<T>(&mut self, by: Stage, why: String) -> Result<T, String> {
        self.refused_by = by;
        Err(why)
    }
}

impl<D: Disk> Admit<D> for Entrance {
    fn files(&mut self, disk: &D) -> Result<(), String> {
        for dir in DIRS.into_iter().chain(DATA_DIRS) {
            usable_dir(disk, dir)?;
        }
        // What cannot be listed was refused above, or is not there; whatever else the disk says, the
        // log's own open meets it before it writes.
        for name in disk.list("log").unwrap_or_default() {
            // What is none of the log's is left alone, whoever it belongs to.
            let ours = name.starts_with(|c: char| c.is_ascii_digit())
                || name.starts_with("spare-")
                || name == "newest";
            if ours {
                usable_file(disk, &format!("log/{name}"))?;
            }
        }
        usable_file(disk, reserve::PATH)?;
        usable_file(disk, STORE_FILE)
    }

    fn member(&mut self, disk: &D, identity: &Identity) -> Result<(), String> {
        if identity.state != IdentityState::Formed {
            return Ok(());
        }
        if let Err(why) = Plane::check(disk, identity.cluster, &identity.name) {
            return self.refuse(Stage::Plane, why.to_string());
        }
        self.facts = match facts(disk, &(self.store)(identity.cluster, identity.epoch)) {
            Ok(facts) => facts,
            Err(OpenError::Disk(StoreFault::Poisoned { detail })) => {
                let why = format!(
                    "the store cannot be read: {detail}; nothing was changed; look after that file"
                );
                return self.refuse(Stage::Store, why);
            }
            Err(why) => return self.refuse(Stage::Store, why.to_string()),
        };
        match &self.facts {
            StoreFacts::Foreign(why) => {
                let why = Refused::Foreign(why.clone()).to_string();
                self.refuse(Stage::Store, why)
            }
            _ => Ok(()),
        }
    }

    fn log(&mut self, _: &D, identity: &Identity, log: &Recovered) -> Result<(), String> {
        if identity.state != IdentityState::Formed {
            return Ok(());
        }
        match decide(log, &self.facts) {
            Plan::Refuse(why) => self.refuse(Stage::Store, why.to_string()),
            _ => refuse_alone(log, identity.member)
                .or_else(|why| self.refuse(Stage::Replica, why.to_string())),
        }
    }
}

/// An error unless the path is a directory that can be used, or nothing.
fn usable_dir<D: Disk>(disk: &D, dir: &str) -> Result<(), String> {
    match disk.is_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        // A link may lead to a directory elsewhere.
        Ok(false) if disk.list(dir).is_err() => {
            return Err(format!(
                "`{dir}` is no directory, and the node needs one there: nothing was changed; move it out of the data \
                 directory"
            ));
        }
        Err(e) => return Err(unusable(&e)),
        Ok(_) => {}
    }
    permitted(disk, dir)
}

/// An error unless the path is a file that can be used, or nothing. What stands in a file's place would
/// else come to light where it is opened or made, after others were written, or while the node runs.
fn usable_file<D: Disk>(disk: &D, path: &str) -> Result<(), String> {
    let stranger = match disk.is_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(unusable(&e)),
        Ok(true) => "a directory",
        Ok(false) => match disk.permits(path) {
            // It is there, and what it leads to is not.
            Err(e) if e.kind() == io::ErrorKind::NotFound => "a link to nothing",
            Err(e) => return Err(unusable(&e)),
            Ok(()) => return Ok(()),
        },
    };
    Err(format!(
        "`{path}` is {stranger}, and the node needs a file there: nothing was changed; move it out of the data directory"
    ))
}

/// An error unless this process may use what stands there, or nothing does.
fn permitted<D: Disk>(disk: &D, path: &str) -> Result<(), String> {
    match disk.permits(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(unusable(&e)),
        _ => Ok(()),
    }
}

fn unusable(e: &io::Error) -> String {
    format!(
        "{e}: the node must be able to read and write it; nothing was changed; {}",
        remedy(e.kind())
    )
}
