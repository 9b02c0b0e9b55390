//! What may be claimed before something is destroyed, and what a state says to it.

use crate::records::{Assignment, CopyStamp, Link, Stamp, Tombstone, Topic};
use crate::view::Trust;
use holdfast_consensus::{ClusterId, Index};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Why something may be destroyed. The bytes travel in inquiries; the order is frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claim {
    /// This incarnation was deleted: for accepted records of a topic, and for the cursor of an
    /// attachment.
    Gone(Stamp),
    /// The topic of this copy was deleted, or the move that it was made for was given up.
    CopyGone(CopyStamp),
    /// The partition moved away from this copy for good (R33).
    MovedAway {
        /// The copy.
        copy: CopyStamp,
        /// Its length, in records.
        length: u64,
    },
    /// This attachment is in force, so that its cursor may replace the file of an older one (R36).
    Current {
        /// The attachment.
        attachment: Stamp,
        /// The attachment that the file names; `None` if there is no file.
        file: Option<Stamp>,
    },
}

impl Claim {
    /// True if the claim, once it holds, holds for ever: a permit for it cannot go stale.
    #[must_use]
    pub const fn is_monotone(&self) -> bool {
        matches!(self, Self::Gone(_) | Self::CopyGone(_))
    }

    /// The stamp of what it is about.
    #[must_use]
    pub const fn subject(&self) -> &Stamp {
        match self {
            Self::Gone(stamp) => stamp,
            Self::CopyGone(copy) | Self::MovedAway { copy, .. } => &copy.topic,
            Self::Current { attachment, .. } => attachment,
        }
    }

    /// The copy that would be destroyed, if it is about one.
    #[must_use]
    pub const fn copy(&self) -> Option<&CopyStamp> {
        match self {
            Self::CopyGone(copy) | Self::MovedAway { copy, .. } => Some(copy),
            Self::Gone(_) | Self::Current { .. } => None,
        }
    }

    /// Every stamp whose deletion would prove it.
    pub(crate) fn provers(&self) -> Vec<&Stamp> {
        match self {
            Self::Gone(stamp) => vec![stamp],
            Self::CopyGone(copy) => vec![&copy.topic, &copy.placed],
            Self::MovedAway { .. } | Self::Current { .. } => Vec::new(),
        }
    }

    /// True if this verdict grants it.
    #[must_use]
    pub const fn is_granted_by(&self, verdict: &Verdict) -> bool {
        match self {
            Self::Gone(_) | Self::CopyGone(_) => matches!(verdict, Verdict::Gone { .. }),
            Self::MovedAway { .. } => matches!(verdict, Verdict::Moved { .. }),
            Self::Current { .. } => matches!(verdict, Verdict::Live { .. }),
        }
    }
}

/// What a state says to a claim. Sent in replies; the order is frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// It was deleted.
    Gone {
        /// Index of the deleting entry.
        deleted_at: u64,
    },
    /// It lives, or something else lives under its name.
    Live {
        /// What lives.
        incarnation: u64,
    },
    /// The partition moved on.
    Moved {
        /// The placement in force.
        incarnation: u64,
        /// Length of the owner's copy as it reported it.
        length: u64,
    },
    /// The state proves nothing.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { deleted_at } => write!(f, "was deleted by entry i{deleted_at}"),
            Self::Live { incarnation } => write!(f, "lives (incarnation {incarnation})"),
            Self::Moved { incarnation, length } => {
                write!(f, "moved on (placement {incarnation}, {length} bytes)")
            }
            Self::Unknown => f.write_str("is not known"),
        }
    }
}

/// What one read transaction says about a claim: everything that a judgement may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Generation of the store.
    pub generation: u64,
    /// How far the store is trusted.
    pub trust: Trust,
    /// The cluster.
    pub cluster: ClusterId,
    /// The Raft group.
    pub group: u64,
    /// State epoch.
    pub state_epoch: u64,
    /// Last applied entry.
    pub applied: Index,
    /// Tombstones under the keys of what the claim names, whatever stamps they hold.
    pub tombstones: Vec<Tombstone>,
    /// The topic that lives under the name, if the claim is about one.
    pub topic: Option<Topic>,
    /// The attachment in force, if the claim is about one.
    pub link: Option<Link>,
    /// The placement in force, if the claim is about a move or a copy.
    pub assignment: Option<Assignment>,
}
