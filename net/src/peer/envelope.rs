//! The handshake between two peers.
//!
//! ```text
//! dialer                                   listener
//!   Open      protocol, nonce       ->
//!                                   <-     Challenge   nonce
//!   Prove     proof over nonces     ->
//!                                   <-     Hello       proof over nonces and hello, hello
//!   Hello     proof, hello, lane    ->
//!                                   <-     Verdict     admitted, waiting or refused
//! ```
//!
//! The dialler proves the token before it learns anything, and the listener proves it before the
//! dialler says who it is: whoever does not know the token learns a protocol version and a nonce.

use super::auth::{Nonce, Proof};
use holdfast_consensus::handshake::HelloRefusal;
use holdfast_consensus::message::SendLane;
use serde::{Deserialize, Serialize};

/// Largest body of a handshake frame in bytes.
pub const HANDSHAKE_MAX: usize = 64 << 10;

/// One step of the handshake.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Envelope {
    /// The dialler begins.
    Open {
        /// Protocol version of the dialler.
        protocol: u16,
        /// Its nonce.
        nonce: Nonce,
    },
    /// The listener answers.
    Challenge {
        /// Its nonce.
        nonce: Nonce,
    },
    /// The dialler proves the token.
    Prove {
        /// Over both nonces and no body.
        proof: Proof,
    },
    /// Either side presents itself.
    Hello {
        /// Over both nonces and `hello`.
        proof: Proof,
        /// An encoded [`Hello`](holdfast_consensus::handshake::Hello).
        hello: Vec<u8>,
        /// What the connection is for; the listener repeats nothing and sends `Urgent`.
        lane: WireLane,
    },
    /// The listener's decision; after `Admitted`, messages flow from dialler to listener.
    Verdict(Verdict),
}

/// The lane of a connection as it crosses the wire.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WireLane {
    /// Votes, heartbeats, replies.
    Urgent,
    /// Entries, forwards, snapshots.
    Bulk,
}

impl From<SendLane> for WireLane {
    fn from(lane: SendLane) -> Self {
        match lane {
            SendLane::Urgent => Self::Urgent,
            SendLane::Bulk => Self::Bulk,
        }
    }
}

/// What the listener decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Messages may flow.
    Admitted,
    /// One of the two has no cluster yet: the connection stays open as a sign of life (R7).
    Waiting,
    /// The two may not talk.
    Refused(HelloRefusal),
    /// The dialler speaks another protocol; sent before anything is proved.
    Protocol {
        /// The listener's version.
        ours: u16,
    },
    /// The dialler did not prove the token.
    Unproved,
}
