//! What the node publishes of itself: written by the core loop, read by anybody at any time
//! without entering it.

use holdfast_consensus::replica::ReplicaStatus;
use std::sync::{Arc, PoisonError, RwLock};

/// Where the node is in its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Opening its files.
    Starting,
    /// Empty: waits to form a cluster, or for a cluster that lists it. The text says for whom.
    Waiting(String),
    /// The replica runs.
    Running,
    /// It stops in an orderly way.
    Stopping,
    /// The replica stopped; the text is the reason with its remedy.
    Stopped(String),
}

/// What the node last said of itself.
#[derive(Clone, Debug)]
pub struct Published {
    /// Where it is in its life.
    pub phase: Phase,
    /// The replica, once it runs.
    pub replica: Option<ReplicaStatus>,
    /// True once the replica has been ready since this start: it has then applied all that it
    /// ever acknowledged (R23), and serves local reads even while there is no quorum.
    pub caught_up: bool,
}

impl Published {
    /// True if local reads may be served.
    #[must_use]
    pub fn serves_reads(&self) -> bool {
        self.caught_up && self.phase == Phase::Running
    }

    /// The alarm of a full disk, in words with the remedy; `None` if there is space. It ends by
    /// itself.
    #[must_use]
    pub fn disk_full(&self) -> Option<String> {
        let why = self.replica.as_ref()?.no_space.as_ref()?;
        Some(format!("the disk is full: {why}; free some space, the node goes on by itself"))
    }

    /// `None` if the node may serve, else why not.
    #[must_use]
    pub fn not_ready(&self) -> Option<String> {
        match &self.phase {
            Phase::Starting => Some("the node is opening its files".to_owned()),
            Phase::Waiting(why) => Some(why.clone()),
            Phase::Stopping => Some("the node is stopping".to_owned()),
            Phase::Stopped(why) => Some(format!("the replica stopped: {why}")),
            Phase::Running => {
                // The replica itself names whom it waits for.
                self.replica.as_ref()?.not_ready.clone()
            }
        }
    }
}

/// The cell that holds it.
#[derive(Debug)]
pub(crate) struct State(RwLock<Arc<Published>>);

impl State {
    pub(crate) fn new() -> Self {
        let first = Published { phase: Phase::Starting, replica: None, caught_up: false };
        Self(RwLock::new(Arc::new(first)))
    }

    pub(crate) fn get(&self) -> Arc<Published> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Published)) {
        let mut next = (*self.get()).clone();
        change(&mut next);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }
}
