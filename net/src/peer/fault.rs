//! What can go wrong on a peer connection, and how often to say so.

use holdfast_consensus::ClusterId;
use holdfast_consensus::codec::CodecError;
use holdfast_consensus::handshake::{HelloRefusal, PROTOCOL_VERSION};
use holdfast_consensus::wire::FrameError;
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use thiserror::Error;

/// Why a peer connection ended or was refused.
#[derive(Debug, Error)]
pub enum PeerFault {
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A frame cannot be accepted.
    #[error("{0}; the connection was closed")]
    Frame(#[from] FrameError),
    /// A handshake value does not decode.
    #[error("{0}; the connection was closed")]
    Codec(#[from] CodecError),
    /// A handshake frame that is longer than any handshake.
    #[error("handshake frame of {0} bytes; is the address a peer port of this version?")]
    LongHandshake(usize),
    /// The other side did not answer in time.
    #[error("no answer within {0} ms")]
    Timeout(u64),
    /// The other side sent something else than the protocol wants here.
    #[error("protocol error: expected {0}; the connection was closed")]
    Unexpected(&'static str),
    /// The token was not proved.
    #[error("the peer token differs: give every node the same peer_token_file (or none)")]
    Unproved,
    /// The other side speaks another protocol version.
    #[error(
        "the peer speaks protocol {theirs}, this build {PROTOCOL_VERSION}: upgrade the older one"
    )]
    Protocol {
        /// Its version.
        theirs: u16,
    },
    /// The handshake says that the two may not talk.
    #[error("{0}")]
    Refused(HelloRefusal),
    /// The other side says that the two may not talk; its sentence is about this node.
    #[error("the peer refuses this node: {0}")]
    RefusedByPeer(HelloRefusal),
    /// The address is another node's.
    #[error(
        "the node at {address} calls itself {found}, but initial_members says {wanted}: correct the address of {wanted}"
    )]
    WrongName {
        /// The address that was dialled.
        address: String,
        /// Who answered.
        found: String,
        /// Who was expected.
        wanted: String,
    },
    /// A message frame of another cluster, epoch or member than the handshake named.
    #[error(
        "frame of cluster {theirs} on a connection of cluster {ours}: the connection was closed"
    )]
    WrongCluster {
        /// In the frame.
        theirs: ClusterId,
        /// Ours.
        ours: ClusterId,
    },
    /// A message frame with ids that the handshake did not name.
    #[error("frame with a foreign {0}: the connection was closed")]
    WrongIds(&'static str),
    /// The peer closed the connection.
    #[error("closed by the peer")]
    Closed,
}

impl PeerFault {
    /// A stable lower-case word for `peer_rejected_total`, or `None` for the ordinary ends of a
    /// connection that reject nobody.
    #[must_use]
    pub fn reason(&self) -> Option<&'static str> {
        Some(match self {
            Self::Io(_) | Self::Closed | Self::Timeout(_) => return None,
            Self::Frame(FrameError::Version { .. }) => "frame_version",
            Self::Frame(_) | Self::Codec(_) | Self::LongHandshake(_) | Self::Unexpected(_) => {
                "frame"
            }
            Self::Unproved => "token",
            Self::Protocol { .. } => "protocol",
            Self::WrongName { .. } => "name",
            Self::WrongCluster { .. } => "cluster",
            Self::WrongIds(_) => "identity",
            Self::Refused(refusal) | Self::RefusedByPeer(refusal) => match refusal {
                HelloRefusal::Protocol { .. } => "protocol",
                HelloRefusal::Cluster { .. } => "cluster",
                HelloRefusal::Epoch { .. } => "epoch",
                HelloRefusal::Stranger { .. } => "stranger",
                HelloRefusal::Myself { .. } => "duplicate",
                HelloRefusal::Empty { .. } => "empty",
            },
        })
    }
}

/// Most subjects whose last complaint is remembered.
const SUBJECTS_MAX: usize = 256;

/// Remembers what was last said about each peer, so that a line is logged when something changes
/// and not once per attempt.
#[derive(Debug, Default)]
pub struct Said(Mutex<BTreeMap<String, String>>);

impl Said {
    /// True if `text` about `subject` is news.
    pub fn is_news(&self, subject: &str, text: &str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if said.get(subject).is_some_and(|old| old == text) {
            return false;
        }
        if said.len() >= SUBJECTS_MAX && !said.contains_key(subject) {
            // Somebody makes up subjects: forget them all rather than grow.
            said.clear();
        }
        said.insert(subject.to_owned(), text.to_owned());
        true
    }

    /// Forgets what was said about `subject`, so that the next complaint is news again.
    pub fn forget(&self, subject: &str) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(subject);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_complaint_is_news_once_until_it_changes_or_is_cleared() {
        let said = Said::default();
        assert!(said.is_news("n2", "refused"));
        assert!(!said.is_news("n2", "refused"));
        assert!(said.is_news("n2", "other"));
        assert!(said.is_news("n3", "other"));
        said.forget("n2");
        assert!(said.is_news("n2", "other"));
    }

    #[test]
    fn made_up_subjects_do_not_grow_the_memory() {
        let said = Said::default();
        for i in 0..10 * SUBJECTS_MAX {
            said.is_news(&i.to_string(), "x");
        }
        assert!(said.0.lock().expect("unpoisoned").len() <= SUBJECTS_MAX);
    }
}
