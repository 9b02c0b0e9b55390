//! What goes into the broker and what comes out.

use super::accepted::Accepted;
use super::layout::Copy;
use super::ledger::Place;
use super::meta::Link;
use super::records::Record;
use crate::trace::Decision;
use holdfast_consensus::Micros;
use holdfast_consensus::job::Call;
use holdfast_fsm::guard::{Claim, Keep};
use holdfast_fsm::plane::SeenCursor;

/// Background work, done in passes.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// Makes directories of partitions that the node owns, starts and stops cursors.
    Reconcile,
    /// Moves accepted records to their partitions.
    Dispatch,
    /// Feeds fan-out children.
    Feed,
    /// Looks for directories of topics that are gone.
    Sweep,
}

/// Every task with the pause between two passes.
pub const TASKS: [(Task, Micros); 4] = [
    (Task::Reconcile, 250_000),
    (Task::Dispatch, 100_000),
    (Task::Feed, 50_000),
    (Task::Sweep, 1_000_000),
];

/// What brokers tell each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// An accepted record for a partition of the receiver.
    Commit(Accepted),
    /// It is in the partition's log.
    Committed(u64),
    /// The receiver knows no such topic.
    NoSuchTopic(u64),
    /// A topic of this name was deleted: brokers broadcast that, and no incarnation with it.
    Purge(String),
    /// A question by name, as brokers asked before there was a guard.
    Question {
        /// Names the question at the asker.
        ask: u64,
        /// About what.
        about: About,
    },
    /// Its answer.
    Answer {
        /// The question.
        ask: u64,
        /// True if it is as asked, so that the act may go on.
        so: bool,
    },
}

/// What is asked by name: the act may go on if it is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// Whether no topic of this name exists.
    Topic(String),
    /// Whether a partition has another owner than this node.
    Elsewhere {
        /// The topic.
        topic: String,
        /// The partition.
        partition: u32,
        /// The node.
        node: String,
    },
    /// Whether this attachment is the one that the child has.
    Current {
        /// The child.
        child: String,
        /// The attachment.
        attachment: u64,
    },
    /// Whether the child has another attachment than this, or none.
    Ended {
        /// The child.
        child: String,
        /// The attachment.
        attachment: u64,
    },
}

/// What a cursor's file held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// There was none.
    Nothing,
    /// An offset file as brokers kept it.
    Offset(Vec<u8>),
    /// A cursor of the data plane.
    Cursor(SeenCursor),
    /// It could not be read: that is no absence.
    Unreadable(Keep),
}

/// An act that destroys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Remove the copy of a partition.
    Remove(Copy),
    /// Remove the copy of a partition of a live topic that has another owner.
    Reclaim {
        /// The copy.
        copy: Copy,
        /// The node that would remove it.
        node: String,
    },
    /// Give a cursor a position, whatever its file says.
    Anchor {
        /// The link.
        link: Box<Link>,
        /// The copy of the parent.
        copy: Copy,
        /// What the file held when it was looked at.
        seen: Box<Seen>,
    },
    /// Remove the file of a cursor.
    Clean {
        /// The link that it belonged to.
        link: Box<Link>,
        /// The copy of the parent.
        copy: Copy,
    },
    /// Drop an accepted record.
    Discard(Accepted),
    /// Remove an entry of the trash for good. Brokers without the guard have no trash.
    Reap {
        /// Its name in the trash.
        name: String,
        /// What was claimed when it went there.
        claim: Box<Claim>,
        /// True for a note, that is for the content of what was replaced or discarded.
        note: bool,
    },
}

impl Act {
    /// In words.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Remove(copy) => format!("remove the copy of {}", copy.place),
            Self::Reclaim { copy, .. } => {
                format!("reclaim the copy of {}, which has another owner", copy.place)
            }
            Self::Anchor { link, copy, .. } => format!(
                "anchor the cursor of {} in {} under attachment {}",
                link.child.name, copy.place, link.stamp.incarnation
            ),
            Self::Clean { link, copy } => format!(
                "remove the cursor of {} in {}, attachment {}",
                link.child.name, copy.place, link.stamp.incarnation
            ),
            Self::Discard(accepted) => format!(
                "discard an accepted record for {} (incarnation {})",
                accepted.topic, accepted.incarnation
            ),
            Self::Reap { name, .. } => format!("remove {name} from the trash for good"),
        }
    }

    /// What names it while it is being decided.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Remove(copy) => format!("remove {}", copy.dir),
            Self::Reclaim { copy, .. } => format!("reclaim {}", copy.dir),
            Self::Anchor { link, copy, .. } => format!("anchor {} {}", link.child.name, copy.dir),
            Self::Clean { link, copy } => {
                format!("clean {} {} {}", link.child.name, copy.dir, link.stamp.incarnation)
            }
            Self::Discard(accepted) => format!("discard {}", accepted.sequence),
            Self::Reap { name, .. } => format!("reap {name}"),
        }
    }

    /// The question by name that decides it.
    #[must_use]
    pub fn about(&self) -> About {
        match self {
            Self::Remove(copy) => About::Topic(copy.place.topic.clone()),
            Self::Discard(accepted) => About::Topic(accepted.topic.clone()),
            Self::Reclaim { copy, node } => About::Elsewhere {
                topic: copy.place.topic.clone(),
                partition: copy.place.partition,
                node: node.clone(),
            },
            Self::Anchor { link, .. } => About::Current {
                child: link.child.name.clone(),
                attachment: link.stamp.incarnation,
            },
            Self::Clean { link, .. } => {
                About::Ended { child: link.child.name.clone(), attachment: link.stamp.incarnation }
            }
            Self::Reap { claim, .. } => About::Topic(claim.subject().name.clone()),
        }
    }
}

/// What the broker wants done, in order.
#[derive(Debug)]
pub enum Want {
    /// Ask the replica of the node; the outcome comes back under this number.
    Call {
        /// Names it.
        ask: u64,
        /// The call.
        call: Call,
    },
    /// Tell another broker.
    Tell {
        /// The node.
        to: String,
        /// What.
        note: Note,
    },
    /// A record was acknowledged to its producer.
    Acknowledged {
        /// Its partition.
        place: Place,
        /// The record.
        record: Record,
        /// How.
        how: &'static str,
    },
    /// A record was appended to the log of a partition.
    Appended {
        /// The partition.
        place: Place,
        /// The record.
        record: Record,
    },
    /// A decision about an act that destroys.
    Decided(Decision, String),
    /// A line of the story.
    Say(String),
}
