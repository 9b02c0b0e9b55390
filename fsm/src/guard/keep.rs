//! Why something is kept: a typed reason with a sentence that a person can act on.

use crate::records::VolumeId;
use holdfast_consensus::{ClusterId, Index, Micros, Term};
use thiserror::Error;

/// Why data is kept.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Keep {
    /// See the sentence.
    #[error("this replica has stopped applying; fix what stopped it (status says why)")]
    Stopped,
    /// See the sentence.
    #[error("this node is shutting down; it goes on after the next start")]
    ShuttingDown,
    /// See the sentence.
    #[error("this member is held; it must be replaced or released first (status says why)")]
    Held,
    /// See the sentence.
    #[error("replicas disagree about the digest of the state; find out which one is wrong first")]
    Dispute,
    /// See the sentence.
    #[error("this node has no member or volume id; let it join a cluster first")]
    NoIdentity,
    /// See the sentence.
    #[error(
        "the store has not been walked whole since it was opened; it goes on when the walk has passed"
    )]
    Unwalked,
    /// See the sentence.
    #[error(
        "the store was set aside and rebuilt in this start; restart the node once it is caught up"
    )]
    Rebuilt,
    /// See the sentence.
    #[error("the state cannot be read ({0}); it goes on when the store is open again")]
    Unreadable(String),
    /// See the sentence.
    #[error(
        "it was made by cluster {found}, and this is {mine}: quarantined; move it to its own cluster or remove it by hand"
    )]
    OtherCluster {
        /// In the stamp.
        found: ClusterId,
        /// Here.
        mine: ClusterId,
    },
    /// See the sentence.
    #[error(
        "it was made or deleted in state epoch {found}, and this is {mine}: what the cluster was restored from may not know it; quarantined; check it by hand"
    )]
    OtherEpoch {
        /// In the stamp or tombstone.
        found: u64,
        /// Here.
        mine: u64,
    },
    /// See the sentence.
    #[error(
        "it was made on volume {found}, and this is {mine}: quarantined; mount the volume where it belongs"
    )]
    OtherVolume {
        /// In the stamp.
        found: VolumeId,
        /// Here.
        mine: VolumeId,
    },
    /// See the sentence.
    #[error("its stamp cannot be used ({0}): quarantined; look at the directory by hand")]
    BadStamp(String),
    /// See the sentence.
    #[error("it is live (incarnation {incarnation})")]
    Live {
        /// What lives.
        incarnation: u64,
    },
    /// See the sentence.
    #[error(
        "nothing here proves that incarnation {incarnation} was deleted (applied up to {applied}); ask the leader"
    )]
    Unknown {
        /// What is asked about.
        incarnation: u64,
        /// Applied here.
        applied: Index,
    },
    /// See the sentence.
    #[error("this needs the leader's word")]
    AskLeader,
    /// See the sentence.
    #[error("the partition has no owner here; somebody must be assigned first")]
    NoOwner,
    /// See the sentence.
    #[error("the placement in force ({placed}) is not newer than this copy's ({mine})")]
    NotNewer {
        /// In force.
        placed: u64,
        /// The copy's.
        mine: u64,
    },
    /// See the sentence.
    #[error("this node owns the partition")]
    OwnPartition,
    /// See the sentence.
    #[error(
        "the owner reported {reported} records, this copy has {mine}: it may hold the only ones; compare them by hand"
    )]
    Shorter {
        /// The owner's.
        reported: u64,
        /// This copy's.
        mine: u64,
    },
    /// See the sentence.
    #[error(
        "ownership was forced away at entry {at}: this copy may hold records that the owner never saw; quarantined; compare them by hand"
    )]
    Forced {
        /// The forced move.
        at: u64,
    },
    /// See the sentence.
    #[error("the file belongs to attachment {file}, newer than {mine}: this node is behind")]
    Behind {
        /// In the file.
        file: u64,
        /// Claimed.
        mine: u64,
    },
    /// See the sentence.
    #[error("attachment {incarnation} is not in force here")]
    NotAttached {
        /// Claimed.
        incarnation: u64,
    },
    /// See the sentence.
    #[error("no leader is known; it goes on when there is one")]
    NoLeader,
    /// See the sentence.
    #[error("the leader of {term} has not yet committed an entry of its own")]
    FreshLeader {
        /// Its term.
        term: Term,
    },
    /// See the sentence.
    #[error("the leader was last heard {age} microseconds ago, more than 5 seconds")]
    OldContact {
        /// How long ago.
        age: Micros,
    },
    /// See the sentence.
    #[error("this replica has applied {applied}, and the leader has committed {commit}")]
    NotCaughtUp {
        /// Here.
        applied: Index,
        /// There.
        commit: Index,
    },
    /// See the sentence.
    #[error("the leader gave no answer ({0}); asked again at the next pass")]
    NoAnswer(String),
    /// See the sentence.
    #[error("the reply is not one to this question; asked again at the next pass")]
    StrangeReply,
    /// See the sentence.
    #[error("the leader cannot prove it either")]
    LeaderUnknown,
    /// See the sentence.
    #[error("the leader says that it is live (incarnation {incarnation})")]
    LeaderLive {
        /// What lives.
        incarnation: u64,
    },
    /// See the sentence.
    #[error("the leader changed since it answered; asked again at the next pass")]
    LeaderChanged,
    /// See the sentence.
    #[error("the answer is from {index}, and this replica has applied {applied}")]
    BehindAnswer {
        /// Here.
        applied: Index,
        /// Index of the answer.
        index: Index,
    },
    /// See the sentence.
    #[error("the store was replaced or reopened meanwhile (generation {was}, now {is})")]
    StoreReplaced {
        /// When it began.
        was: u64,
        /// Now.
        is: u64,
    },
    /// See the sentence.
    #[error("the leader's answer and the own state differ; compare the digests of the replicas")]
    Disagreement,
    /// See the sentence.
    #[error("the permit is for something else")]
    WrongPermit,
    /// See the sentence.
    #[error("the stamp on the disk is not the permitted one any more")]
    StampChanged,
    /// See the sentence.
    #[error("it is being written; its writers are closed, and it goes at the next pass")]
    InUse,
    /// See the sentence.
    #[error("the file changed since it was read; read it again")]
    Changed,
    /// See the sentence.
    #[error("it has been in the trash for {age} microseconds, and stays for {delay}")]
    TooYoung {
        /// How long it has been seen there.
        age: Micros,
        /// How long it stays.
        delay: Micros,
    },
    /// See the sentence.
    #[error("something else stands where it would go")]
    Occupied,
    /// See the sentence.
    #[error("a file operation failed ({0}); tried again at the next pass")]
    Disk(String),
}

impl Keep {
    /// Every word of [`Keep::code`], so that each can be counted from zero on.
    pub const CODES: [&'static str; 41] = [
        "stopped",
        "shutting-down",
        "held",
        "dispute",
        "no-identity",
        "unwalked",
        "rebuilt",
        "unreadable",
        "other-cluster",
        "other-epoch",
        "other-volume",
        "bad-stamp",
        "live",
        "unknown",
        "ask-leader",
        "no-owner",
        "not-newer",
        "own-partition",
        "shorter",
        "forced",
        "behind",
        "not-attached",
        "no-leader",
        "fresh-leader",
        "old-contact",
        "not-caught-up",
        "no-answer",
        "strange-reply",
        "leader-unknown",
        "leader-live",
        "leader-changed",
        "behind-answer",
        "store-replaced",
        "disagreement",
        "wrong-permit",
        "stamp-changed",
        "in-use",
        "changed",
        "too-young",
        "occupied",
        "disk",
    ];

    /// A stable lower-case word, for metrics and the book's table.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::ShuttingDown => "shutting-down",
            Self::Held => "held",
            Self::Dispute => "dispute",
            Self::NoIdentity => "no-identity",
            Self::Unwalked => "unwalked",
            Self::Rebuilt => "rebuilt",
            Self::Unreadable(_) => "unreadable",
            Self::OtherCluster { .. } => "other-cluster",
            Self::OtherEpoch { .. } => "other-epoch",
            Self::OtherVolume { .. } => "other-volume",
            Self::BadStamp(_) => "bad-stamp",
            Self::Live { .. } => "live",
            Self::Unknown { .. } => "unknown",
            Self::AskLeader => "ask-leader",
            Self::NoOwner => "no-owner",
            Self::NotNewer { .. } => "not-newer",
            Self::OwnPartition => "own-partition",
            Self::Shorter { .. } => "shorter",
            Self::Forced { .. } => "forced",
            Self::Behind { .. } => "behind",
            Self::NotAttached { .. } => "not-attached",
            Self::NoLeader => "no-leader",
            Self::FreshLeader { .. } => "fresh-leader",
            Self::OldContact { .. } => "old-contact",
            Self::NotCaughtUp { .. } => "not-caught-up",
            Self::NoAnswer(_) => "no-answer",
            Self::StrangeReply => "strange-reply",
            Self::LeaderUnknown => "leader-unknown",
            Self::LeaderLive { .. } => "leader-live",
            Self::LeaderChanged => "leader-changed",
            Self::BehindAnswer { .. } => "behind-answer",
            Self::StoreReplaced { .. } => "store-replaced",
            Self::Disagreement => "disagreement",
            Self::WrongPermit => "wrong-permit",
            Self::StampChanged => "stamp-changed",
            Self::InUse => "in-use",
            Self::Changed => "changed",
            Self::TooYoung { .. } => "too-young",
            Self::Occupied => "occupied",
            Self::Disk(_) => "disk",
        }
    }

    /// True if the second line may help.
    #[must_use]
    pub const fn needs_leader(&self) -> bool {
        matches!(self, Self::AskLeader | Self::Unknown { .. })
    }

    /// True if no answer of this cluster will ever let it go: a person must look.
    #[must_use]
    pub const fn is_quarantine(&self) -> bool {
        matches!(
            self,
            Self::OtherCluster { .. }
                | Self::OtherEpoch { .. }
                | Self::OtherVolume { .. }
                | Self::BadStamp(_)
                | Self::Forced { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_once() {
        let source = include_str!("keep.rs");
        let words = source.lines().filter_map(|line| {
            let (variant, word) = line.trim().split_once(" => \"")?;
            variant.starts_with("Self::").then(|| word.trim_end_matches("\","))
        });
        assert_eq!(words.collect::<Vec<_>>(), Keep::CODES);
        assert!(Keep::CODES.contains(&Keep::InUse.code()));
    }
}
