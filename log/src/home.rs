//! A data directory: its lock, its identity, its log.
//!
//! Layout: `lock`, `identity`, `formed` (exists once the member belongs to a cluster), `log/`,
//! `snap/`; the state machine keeps its store beside them.

use crate::disk::{Disk, Mode};
use crate::fault::remedy;
use crate::identity::{BadIdentity, Identity, IdentityState};
use crate::log::{Log, LogOptions};
use crate::rebuild::look;
use crate::scan::{REMEDY, inventory};
use crate::segment::Owner;
use crate::state::State;
use holdfast_consensus::fault::{LogFault, NEVER_OLDER, NO_REPLACEMENT};
use holdfast_consensus::io::Persist;
use holdfast_consensus::traits::LogStore;
use holdfast_consensus::{
    Body, ClusterId, Entries, Entry, HardState, LogId, MemberId, Membership, Recovered, Seq, Term,
};
use std::io;
use thiserror::Error;

const LOCK: &str = "lock";
const FORMED: &str = "formed";

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

/// Who is asked, while the directory is locked and before a byte of it changes, whether a node may
/// start on it: what lies beside the log has a say too. An error is why not, with the remedy.
pub trait Admit<D: Disk> {
    /// Whether everything in the directory can be used at all.
    ///
    /// # Errors
    /// Why not.
    fn files(&mut self, disk: &D) -> Result<(), String>;
    /// Whether what lies in the directory of this member belongs to it.
    ///
    /// # Errors
    /// Why not.
    fn member(&mut self, disk: &D, identity: &Identity) -> Result<(), String>;
    /// Whether what lies beside the log goes with what the log will have recovered. Not asked if the
    /// log is held: nothing is changed then.
    ///
    /// # Errors
    /// Why not.
    fn log(&mut self, disk: &D, identity: &Identity, log: &Recovered) -> Result<(), String>;
}

/// An open data directory.
pub struct Home<D: Disk> {
    disk: D,
    lock: Box<dyn Send + Sync>,
    identity: Identity,
    log: Log<D>,
}

impl<D: Disk> Home<D> {
    /// Locks the directory, proves its identity and opens its log. The member id is durable in a
    /// segment header before this returns (R7). A founding that was cut short is completed.
    ///
    /// # Errors
    /// [`HomeError`]; a refusal leaves every byte but the lock file's as it was.
    pub fn open(disk: D, options: &HomeOptions) -> Result<Self, HomeError> {
        Self::open_if(disk, options, None)
    }

    /// As [`Home::open`], but `admit` is asked first.
    ///
    /// # Errors
    /// As [`Home::open`]; what `admit` has against it is [`HomeError::Refused`].
    pub fn open_if(
        disk: D,
        options: &HomeOptions,
        mut admit: Option<&mut dyn Admit<D>>,
    ) -> Result<Self, HomeError> {
        assert!(options.fresh_member != MemberId(0), "a member id is never zero");
        let lock = disk.lock(LOCK).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => HomeError::Locked { path: LOCK.into() },
            kind => HomeError::Disk(format!(
                "lock the data directory: {e}; nothing was changed; {}",
                remedy(kind)
            )),
        })?;
        if let Some(admit) = admit.as_deref_mut() {
            admit.files(&disk).map_err(HomeError::Refused)?;
        }
        let identity = Identity::read(&disk)?;
        if let Some(identity) = &identity
            && identity.name != options.name
        {
            return Err(HomeError::Refused(format!(
                "the data directory belongs to node `{}`, this node is configured as `{}`: nothing was changed; give \
                 each node its own data directory, or set the name back",
                identity.name, options.name,
            )));
        }
        let in_log = member_in_log(&disk, identity.is_none())?;
        check_same_member(identity.as_ref(), in_log)?;
        if let (Some(admit), Some(identity)) = (admit.as_deref_mut(), &identity) {
            admit.member(&disk, identity).map_err(HomeError::Refused)?;
        }
        let member = in_log.unwrap_or(options.fresh_member);
        let (cluster, epoch) =
            identity.as_ref().map_or_else(Default::default, |i| (i.cluster, i.epoch));
        let owner = Owner { member, group: 0, cluster, epoch };
        let log = match (admit, &identity) {
            (Some(admit), Some(identity)) => {
                let mut ask = |log: &Recovered| admit.log(&disk, identity, log);
                Log::open_if(disk.clone(), owner, options.log.clone(), Some(&mut ask))
            }
            _ => Log::open(disk.clone(), owner, options.log.clone()),
        }?;
        let identity = match identity {
            Some(identity) => identity,
            None => first_identity(&disk, member, &options.name)?,
        };
        let mut home = Self { disk, lock, identity, log };
        // A held member changes nothing (R5). One that belongs to no cluster yet has nothing to
        // give to anybody either.
        match home.log.recovered().held {
            Some(why) if !home.is_formed() => return Err(HomeError::Log(LogFault::Held { why })),
            Some(_) => {}
            None => home.go_on()?,
        }
        Ok(home)
    }

    /// Completes what an earlier process began.
    fn go_on(&mut self) -> Result<(), HomeError> {
        match self.identity.state.clone() {
            IdentityState::Empty => Ok(()),
            IdentityState::Founding { membership } => self.finish_founding(membership),
            IdentityState::Formed => self.mark_formed(),
        }
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
    /// [`HomeError`]; the next open completes what had become durable.
    pub fn found(
        &mut self,
        cluster: ClusterId,
        epoch: u64,
        membership: Membership,
    ) -> Result<(), HomeError> {
        self.must_be_empty()?;
        if !membership.is_voter(self.identity.member) || !membership.is_well_formed() {
            return Err(HomeError::Refused(format!(
                "the first configuration does not name member {} as a voter",
                self.identity.member
            )));
        }
        let state = IdentityState::Founding { membership: membership.clone() };
        self.become_member(cluster, epoch, state)?;
        self.finish_founding(membership)
    }

    fn finish_founding(&mut self, membership: Membership) -> Result<(), HomeError> {
        let recovered = self.log.recovered();
        let body = Body::Membership(membership.into());
        let entry = Entry { id: LogId::new(1, 1), time: 0, body };
        if !recovered.holes.is_empty() {
            // Nobody else has it yet, and the identity file repeats it.
            self.log.repair(std::slice::from_ref(&entry))?;
        }
        if recovered.last == LogId::default() {
            let append = Entries::new(vec![entry])
                .ok_or_else(|| HomeError::Refused("the first entry is malformed".into()))?;
            // A founding that was cut short may have left its term behind.
            let term = recovered.hard.term.max(Term(1));
            let hard = Some(HardState { term, voted_for: recovered.hard.voted_for });
            self.log.persist(&[Persist { seq: Seq(0), truncate_from: None, append, hard }])?;
        }
        let Identity { cluster, epoch, .. } = self.identity;
        self.become_member(cluster, epoch, IdentityState::Formed)?;
        self.mark_formed()
    }

    /// Joins the cluster of a founder whose configuration lists this member.
    ///
    /// # Errors
    /// [`HomeError`].
    pub fn adopt(&mut self, cluster: ClusterId, epoch: u64) -> Result<(), HomeError> {
        self.must_be_empty()?;
        self.become_member(cluster, epoch, IdentityState::Formed)?;
        self.mark_formed()
    }

    fn must_be_empty(&self) -> Result<(), HomeError> {
        if self.identity.state == IdentityState::Empty {
            return Ok(());
        }
        Err(HomeError::Refused(format!(
            "the data directory of node `{}` belongs to cluster {} already",
            self.identity.name, self.identity.cluster
        )))
    }

    fn become_member(
        &mut self,
        cluster: ClusterId,
        epoch: u64,
        state: IdentityState,
    ) -> Result<(), HomeError> {
        let identity = Identity { cluster, epoch, state, ..self.identity.clone() };
        identity.write(&self.disk)?;
        self.log.set_cluster(cluster, epoch);
        self.identity = identity;
        Ok(())
    }

    /// Makes the marker file that other programs look for.
    fn mark_formed(&self) -> Result<(), HomeError> {
        match self.disk.open(FORMED, Mode::CreateNew) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made
                .and_then(|_| self.disk.sync_dir(""))
                .map_err(|e| HomeError::Disk(format!("mark the directory as formed: {e}"))),
        }
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

/// The member in the segment headers, if there is a log; if it is to be `empty` it must not hold
/// anything. Nothing is changed.
fn member_in_log<D: Disk>(disk: &D, empty: bool) -> Result<Option<MemberId>, HomeError> {
    let found = inventory(disk, Mode::Read)?;
    let newest = found.segments.values().rev().find_map(|l| l.header.as_ref().ok());
    match (newest, found.segments.first_key_value()) {
        (Some(header), _) => {
            let member = header.owner.member;
            if empty {
                check_nothing_logged(member, look(&found)?)?;
            }
            Ok(Some(member))
        }
        (None, None) => Ok(None),
        (None, Some((_, loaded))) => Err(HomeError::Refused(format!(
            "no segment header of the log verifies (first: {}): {REMEDY}",
            loaded.path
        ))),
    }
}

/// R1: the member id lives in the log and dies with it; no other file brings it back.
fn check_same_member(
    identity: Option<&Identity>,
    in_log: Option<MemberId>,
) -> Result<(), HomeError> {
    let Some(identity) = identity else { return Ok(()) };
    let put_back =
        "nothing was changed; put back the data directory as it was when the node last ran";
    match in_log {
        Some(member) if member == identity.member => Ok(()),
        Some(member) => Err(HomeError::Refused(format!(
            "the identity file names member {}, the log belongs to member {member}: parts of two directories are \
             mixed; {put_back}, {NEVER_OLDER}. {NO_REPLACEMENT}",
            identity.member
        ))),
        None => Err(HomeError::Refused(format!(
            "the log of member {} (node `{}`) is gone although its identity file is there: it must not vote again \
             under that id; {put_back}, {NEVER_OLDER}. {NO_REPLACEMENT}",
            identity.member, identity.name
        ))),
    }
}

/// The identity is written after the log: without one the log must be empty.
fn check_nothing_logged(
    member: MemberId,
    (state, held): (State, Option<String>),
) -> Result<(), HomeError> {
    if let Some(why) = held {
        return Err(HomeError::Log(LogFault::Held { why }));
    }
    if state.last != LogId::default() || state.hard != HardState::default() {
        return Err(HomeError::Refused(format!(
            "the log of member {member} holds entries up to {} but the identity file is gone: nothing was changed; put the file \
             back from a copy of this very directory. {NO_REPLACEMENT}",
            state.last
        )));
    }
    Ok(())
}

fn first_identity<D: Disk>(disk: &D, member: MemberId, name: &str) -> Result<Identity, HomeError> {
    let identity = Identity {
        member,
        name: name.to_owned(),
        cluster: ClusterId::default(),
        epoch: 0,
        state: IdentityState::Empty,
        place: None,
    };
    identity.write(disk)?;
    Ok(identity)
}

impl From<BadIdentity> for HomeError {
    fn from(bad: BadIdentity) -> Self {
        match bad {
            BadIdentity::Disk(e) => {
                Self::Disk(format!("the identity file cannot be used: {e}; {}", remedy(e.kind())))
            }
            BadIdentity::Refused(why) => Self::Refused(why),
        }
    }
}

#[cfg(test)]
#[path = "home_tests.rs"]
mod tests;
