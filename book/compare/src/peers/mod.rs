//! The logs that are compared, behind one small interface.

mod fjall;
mod holdfast;
mod okaywal;
mod raft_engine;
mod raw;
mod redb;

use crate::batch::Batch;
use crate::error::CompareError;
use clap::ValueEnum;
use holdfast_log::{MappedDisk, RealDisk};
use std::path::Path;

pub(crate) use holdfast::Holdfast;
pub(crate) use raft_engine::RaftEngine;

/// A log under measurement.
pub(crate) trait Peer {
    /// Appends a batch. When this returns, every entry of it is on the disk, with one sync.
    ///
    /// # Errors
    /// [`CompareError::Peer`].
    fn append(&mut self, batch: &Batch) -> Result<(), CompareError>;
}

/// A log whose entries can be read back in order.
pub(crate) trait Replay {
    /// Reads entries `1..=last` in order and returns the sum of their payloads' bytes.
    ///
    /// # Errors
    /// [`CompareError::Peer`], also if an entry is missing.
    fn read_all(&mut self, last: u64) -> Result<u64, CompareError>;
}

/// Which log.
#[derive(Copy, Clone, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// The log of Holdfast.
    Holdfast,
    /// The log of Holdfast on a disk that is stored into through a map; only if it is asked for.
    HoldfastMapped,
    /// Write and fdatasync of the bare payload.
    Raw,
    /// raft-engine, the log of TiKV.
    RaftEngine,
    /// okaywal, a write-ahead log.
    Okaywal,
    /// redb, an embedded store.
    Redb,
    /// fjall, an embedded store.
    Fjall,
}

impl Kind {
    /// All of them, the bare disk first: it is what the others are divided by.
    pub(crate) const ALL: [Self; 7] = [
        Self::Raw,
        Self::Holdfast,
        Self::HoldfastMapped,
        Self::RaftEngine,
        Self::Okaywal,
        Self::Redb,
        Self::Fjall,
    ];

    /// True if it takes part without being asked for.
    pub(crate) fn is_usual(self) -> bool {
        self != Self::HoldfastMapped
    }

    /// The name in tables and rows.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Holdfast => "holdfast",
            Self::HoldfastMapped => "holdfast-mapped",
            Self::Raw => "raw",
            Self::RaftEngine => "raft-engine",
            Self::Okaywal => "okaywal",
            Self::Redb => "redb",
            Self::Fjall => "fjall",
        }
    }

    /// Opens a log of this kind in an empty directory, which is made.
    ///
    /// # Errors
    /// [`CompareError`].
    pub(crate) fn create(self, dir: &Path) -> Result<Box<dyn Peer>, CompareError> {
        std::fs::create_dir_all(dir).map_err(|e| CompareError::disk("make", dir, &e))?;
        Ok(match self {
            Self::Holdfast => Box::new(Holdfast::open(RealDisk::create(dir), true)?),
            Self::HoldfastMapped => Box::new(Holdfast::open(MappedDisk::create(dir), true)?),
            Self::Raw => Box::new(raw::Raw::create(dir)?),
            Self::RaftEngine => Box::new(RaftEngine::open(dir)?),
            Self::Okaywal => Box::new(okaywal::Okaywal::open(dir)?),
            Self::Redb => Box::new(redb::Redb::open(dir)?),
            Self::Fjall => Box::new(fjall::Fjall::open(dir)?),
        })
    }

    /// Opens the log in a directory that holds one, without giving up any entry of it, and returns
    /// the index of its last entry.
    ///
    /// # Errors
    /// [`CompareError`]; a kind that keeps no entries to come back to is a usage error.
    pub(crate) fn reopen(self, dir: &Path) -> Result<(Box<dyn Peer>, u64), CompareError> {
        match self {
            Self::Holdfast => {
                let log = Holdfast::open(RealDisk::create(dir), false)?;
                let last = log.last();
                Ok((Box::new(log), last))
            }
            Self::RaftEngine => {
                let log = RaftEngine::open(dir)?;
                let last = log.last();
                Ok((Box::new(log), last))
            }
            Self::Redb => {
                let log = redb::Redb::open(dir)?;
                let last = log.last()?;
                Ok((Box::new(log), last))
            }
            Self::Fjall => {
                let log = fjall::Fjall::open(dir)?;
                let last = log.last()?;
                Ok((Box::new(log), last))
            }
            Self::Raw | Self::Okaywal | Self::HoldfastMapped => {
                Err(CompareError::Usage(format!("{} keeps nothing to open again", self.name())))
            }
        }
    }
}
