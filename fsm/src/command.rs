//! Commands, their envelope, and their answers. Numbers, payloads and the order of variants are
//! frozen: entries written today are applied by every later build.
//!
//! An entry's command is `type: u16`, `flags: u8`, then `client: u64, sequence: u64` if flag bit 0
//! is set, then `request: u128` if flag bit 1 is set, then the payload in the one bincode configuration of the project. All integers are
//! little-endian. The other flag bits are zero for the types of today, for ever: a build that needs
//! more of them takes new type numbers, so that an older one stops at the entry instead of reading
//! it in its own way. A known type with another flag is undecodable, which is a result.

mod plane;

use crate::rules::{self, Rule};
use bytes::{BufMut, Bytes, BytesMut};
use holdfast_consensus::MemberId;
use holdfast_consensus::codec::{self, CodecError};
pub use plane::{
    AbortMove, AssignPartition, AttachChild, CompleteMove, DetachChild, PartitionRef, SetTarget,
};
use serde::{Deserialize, Serialize};

/// Numbers of the entry types. Below 1000 they are those of the feature list; from 1000 on they
/// are Holdfast's own.
pub mod kind {
    /// Create a topic.
    pub const CREATE_TOPIC: u16 = 1;
    /// Delete a topic.
    pub const DELETE_TOPIC: u16 = 3;
    /// Give a partition its first owner.
    pub const ASSIGN_PARTITION: u16 = 5;
    /// A member joins, or renews its record.
    pub const PUT_MEMBER: u16 = 6;
    /// Attach a child topic to its parent.
    pub const ATTACH_CHILD: u16 = 13;
    /// Detach a child topic.
    pub const DETACH_CHILD: u16 = 14;
    /// Begin to move a partition.
    pub const SET_TARGET: u16 = 15;
    /// Complete the move of a partition.
    pub const COMPLETE_MOVE: u16 = 16;
    /// Give up the move of a partition.
    pub const ABORT_MOVE: u16 = 17;
    /// Register a client session.
    pub const REGISTER_SESSION: u16 = 1000;
    /// Close a client session.
    pub const CLOSE_SESSION: u16 = 1001;
    /// Put a key.
    pub const KV_PUT: u16 = 1010;
    /// Compare and set a key.
    pub const KV_CAS: u16 = 1011;
    /// Delete a key.
    pub const KV_DELETE: u16 = 1012;

    /// Every type that this build applies, in order.
    pub const KNOWN: [u16; 14] = [
        CREATE_TOPIC,
        DELETE_TOPIC,
        ASSIGN_PARTITION,
        PUT_MEMBER,
        ATTACH_CHILD,
        DETACH_CHILD,
        SET_TARGET,
        COMPLETE_MOVE,
        ABORT_MOVE,
        REGISTER_SESSION,
        CLOSE_SESSION,
        KV_PUT,
        KV_CAS,
        KV_DELETE,
    ];
    /// The newest type that this build applies. A store or snapshot whose mark is above it was
    /// written by a newer build and is refused.
    pub const NEWEST: u16 = KV_DELETE;
}

const FLAG_SESSION: u8 = 1;
/// A request id follows (behind the session, if there is one).
const FLAG_REQUEST: u8 = 2;

/// Names one command of one client session, so that a retry is answered with the first result.
/// A session has one command under way at a time; sequence numbers start at 1 and rise.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionRef {
    /// The session: the number that its registration was answered with.
    pub client: u64,
    /// The command's number within the session.
    pub sequence: u64,
}

/// Payload of [`Command::CreateTopic`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTopic {
    /// Name ([`rules::topic_name`]).
    pub name: String,
    /// Number of partitions ([`rules::partitions`]).
    pub partitions: u32,
    /// How long records are kept, in milliseconds; `None` keeps them for ever.
    pub retention_ms: Option<u64>,
    /// Wall time at the proposer, in milliseconds since 1970.
    pub created_at_ms: u64,
}

/// Payload of [`Command::DeleteTopic`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteTopic {
    /// Name.
    pub name: String,
    /// Delete only this incarnation; `None` deletes whichever lives.
    pub incarnation: Option<u64>,
}

/// Payload of [`Command::PutMember`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutMember {
    /// The member.
    pub member: MemberId,
    /// Its configured node name.
    pub name: String,
    /// Base address of its HTTP API.
    pub http: String,
    /// Its build.
    pub build: String,
    /// The newest entry type that it applies.
    pub newest_type: u16,
}

/// A change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Create a topic (type 1).
    CreateTopic(CreateTopic),
    /// Delete a topic, leaving a tombstone (type 3).
    DeleteTopic(DeleteTopic),
    /// Add a member or replace its record (type 6).
    PutMember(PutMember),
    /// Register a client session (type 1000).
    RegisterSession,
    /// Close a client session (type 1001).
    CloseSession {
        /// The session.
        client: u64,
    },
    /// Put a key (type 1010).
    KvPut {
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Put a key if it holds the expected value (type 1011).
    KvCas {
        /// The key.
        key: Bytes,
        /// What it must hold; `None` if it must be absent.
        expected: Option<Bytes>,
        /// The value.
        value: Bytes,
    },
    /// Delete a key (type 1012).
    KvDelete {
        /// The key.
        key: Bytes,
    },
    /// Give a partition its first owner (type 5).
    AssignPartition(AssignPartition),
    /// Attach a child topic to its parent (type 13).
    AttachChild(AttachChild),
    /// Detach a child topic, leaving a tombstone (type 14).
    DetachChild(DetachChild),
    /// Begin to move a partition (type 15).
    SetTarget(SetTarget),
    /// Complete the move of a partition (type 16).
    CompleteMove(CompleteMove),
    /// Give up the move of a partition, leaving a tombstone (type 17).
    AbortMove(AbortMove),
}

impl Command {
    /// The entry type.
    #[must_use]
    pub const fn kind(&self) -> u16 {
        match self {
            Self::CreateTopic(_) => kind::CREATE_TOPIC,
            Self::DeleteTopic(_) => kind::DELETE_TOPIC,
            Self::PutMember(_) => kind::PUT_MEMBER,
            Self::RegisterSession => kind::REGISTER_SESSION,
            Self::CloseSession { .. } => kind::CLOSE_SESSION,
            Self::KvPut { .. } => kind::KV_PUT,
            Self::KvCas { .. } => kind::KV_CAS,
            Self::KvDelete { .. } => kind::KV_DELETE,
            Self::AssignPartition(_) => kind::ASSIGN_PARTITION,
            Self::AttachChild(_) => kind::ATTACH_CHILD,
            Self::DetachChild(_) => kind::DETACH_CHILD,
            Self::SetTarget(_) => kind::SET_TARGET,
            Self::CompleteMove(_) => kind::COMPLETE_MOVE,
            Self::AbortMove(_) => kind::ABORT_MOVE,
        }
    }

    /// Checks the limits, for the API before it proposes. `apply` checks them again.
    ///
    /// # Errors
    /// The [`Rule`] that is broken.
    pub fn validate(&self) -> Result<(), Rule> {
        match self {
            Self::CreateTopic(c) => {
                rules::topic_name(&c.name)?;
                rules::partitions(c.partitions)?;
                rules::retention(c.retention_ms)
            }
            Self::DeleteTopic(c) => rules::topic_name(&c.name),
            Self::PutMember(c) => c.validate(),
            Self::RegisterSession | Self::CloseSession { .. } => Ok(()),
            Self::KvPut { key, value } => {
                rules::kv_key(key)?;
                rules::kv_value(value)
            }
            Self::KvCas { key, expected, value } => {
                rules::kv_key(key)?;
                rules::kv_value(value)?;
                expected.as_deref().map_or(Ok(()), rules::kv_value)
            }
            Self::KvDelete { key } => rules::kv_key(key),
            Self::AssignPartition(c) => c.validate(),
            Self::AttachChild(c) => c.validate(),
            Self::DetachChild(c) => rules::topic_name(&c.child),
            Self::SetTarget(c) => c.validate(),
            Self::CompleteMove(c) => c.of.validate(),
            Self::AbortMove(c) => c.of.validate(),
        }
    }

    /// The bytes of an entry's command: envelope and payload.
    ///
    /// # Errors
    /// [`CodecError::Unencodable`] if a field exceeds every limit.
    pub fn encode(&self, session: Option<SessionRef>) -> Result<Bytes, CodecError> {
        self.encode_with(session, None)
    }

    /// As [`Command::encode`], stamped with a request id that occurs nowhere else, so that the
    /// bytes may be handed to
    /// [`Call::ProposeUnique`](holdfast_consensus::job::Call::ProposeUnique). The state machine
    /// does not look at the id.
    ///
    /// # Errors
    /// As [`Command::encode`].
    pub fn encode_unique(
        &self,
        session: Option<SessionRef>,
        request: u128,
    ) -> Result<Bytes, CodecError> {
        self.encode_with(session, Some(request))
    }

    fn encode_with(
        &self,
        session: Option<SessionRef>,
        request: Option<u128>,
    ) -> Result<Bytes, CodecError> {
        const WHAT: &str = "command";
        let payload = match self {
            Self::CreateTopic(c) => codec::encode(WHAT, c)?,
            Self::DeleteTopic(c) => codec::encode(WHAT, c)?,
            Self::PutMember(c) => codec::encode(WHAT, c)?,
            Self::RegisterSession => Vec::new(),
            Self::CloseSession { client } => codec::encode(WHAT, client)?,
            Self::KvPut { key, value } => codec::encode(WHAT, &(key, value))?,
            Self::KvCas { key, expected, value } => codec::encode(WHAT, &(key, expected, value))?,
            Self::KvDelete { key } => codec::encode(WHAT, key)?,
            Self::AssignPartition(c) => codec::encode(WHAT, c)?,
            Self::AttachChild(c) => codec::encode(WHAT, c)?,
            Self::DetachChild(c) => codec::encode(WHAT, c)?,
            Self::SetTarget(c) => codec::encode(WHAT, c)?,
            Self::CompleteMove(c) => codec::encode(WHAT, c)?,
            Self::AbortMove(c) => codec::encode(WHAT, c)?,
        };
        let mut out = BytesMut::with_capacity(35 + payload.len());
        out.put_u16_le(self.kind());
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.put_u8(flag(session.is_some(), FLAG_SESSION) | flag(request.is_some(), FLAG_REQUEST));
        if let Some(session) = session {
            out.put_u64_le(session.client);
            out.put_u64_le(session.sequence);
        }
        if let Some(request) = request {
            out.put_u128_le(request);
        }
        out.put_slice(&payload);
        Ok(out.freeze())
    }
}

impl PutMember {
    fn validate(&self) -> Result<(), Rule> {
        let fits = self.member != MemberId::default()
            && (1..=rules::MEMBER_NAME_MAX).contains(&self.name.len())
            && self.http.len() <= rules::MEMBER_TEXT_MAX
            && self.build.len() <= rules::MEMBER_TEXT_MAX;
        fits.then_some(()).ok_or(Rule::Member)
    }
}

/// The envelope of a command, its payload still encoded.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The entry type; one of [`kind::KNOWN`].
    pub kind: u16,
    /// The session that the command belongs to, if any.
    pub session: Option<SessionRef>,
    /// The request id that makes the bytes unique, if any.
    pub request: Option<u128>,
    payload: &'a [u8],
}

/// Why an envelope could not be opened.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EnvelopeFault {
    /// A type that this build does not know: a newer build wrote it. Stop, never skip.
    Unknown {
        /// The type.
        kind: u16,
    },
    /// Too short, or with a strange flag: no build wrote it. A result, the same on every replica.
    Malformed,
}

impl<'a> Envelope<'a> {
    /// Opens the envelope.
    ///
    /// # Errors
    /// [`EnvelopeFault`].
    pub fn open(bytes: &'a [u8]) -> Result<Self, EnvelopeFault> {
        let (kind, rest) = bytes.split_first_chunk::<2>().ok_or(EnvelopeFault::Malformed)?;
        let kind = u16::from_le_bytes(*kind);
        if kind::KNOWN.binary_search(&kind).is_err() {
            return Err(EnvelopeFault::Unknown { kind });
        }
        let (flags, mut payload) = rest.split_first().ok_or(EnvelopeFault::Malformed)?;
        if flags & !(FLAG_SESSION | FLAG_REQUEST) != 0 {
            return Err(EnvelopeFault::Malformed);
        }
        let mut session = None;
        if flags & FLAG_SESSION != 0 {
            let client = u64::from_le_bytes(take(&mut payload)?);
            let sequence = u64::from_le_bytes(take(&mut payload)?);
            session = Some(SessionRef { client, sequence });
        }
        let mut request = None;
        if flags & FLAG_REQUEST != 0 {
            request = Some(u128::from_le_bytes(take(&mut payload)?));
        }
        Ok(Self { kind, session, request, payload })
    }

    /// Decodes the payload.
    ///
    /// # Errors
    /// [`CodecError`]; the same on every replica, hence a result.
    pub fn command(&self) -> Result<Command, CodecError> {
        const WHAT: &str = "command";
        let payload = self.payload;
        Ok(match self.kind {
            kind::CREATE_TOPIC => Command::CreateTopic(codec::decode(WHAT, payload)?),
            kind::DELETE_TOPIC => Command::DeleteTopic(codec::decode(WHAT, payload)?),
            kind::PUT_MEMBER => Command::PutMember(codec::decode(WHAT, payload)?),
            kind::REGISTER_SESSION => {
                codec::decode::<()>(WHAT, payload)?;
                Command::RegisterSession
            }
            kind::CLOSE_SESSION => Command::CloseSession { client: codec::decode(WHAT, payload)? },
            kind::KV_PUT => {
                let (key, value) = codec::decode(WHAT, payload)?;
                Command::KvPut { key, value }
            }
            kind::KV_CAS => {
                let (key, expected, value) = codec::decode(WHAT, payload)?;
                Command::KvCas { key, expected, value }
            }
            kind::KV_DELETE => Command::KvDelete { key: codec::decode(WHAT, payload)? },
            kind::ASSIGN_PARTITION => Command::AssignPartition(codec::decode(WHAT, payload)?),
            kind::ATTACH_CHILD => Command::AttachChild(codec::decode(WHAT, payload)?),
            kind::DETACH_CHILD => Command::DetachChild(codec::decode(WHAT, payload)?),
            kind::SET_TARGET => Command::SetTarget(codec::decode(WHAT, payload)?),
            kind::COMPLETE_MOVE => Command::CompleteMove(codec::decode(WHAT, payload)?),
            kind::ABORT_MOVE => Command::AbortMove(codec::decode(WHAT, payload)?),
            other => unreachable!("type {other} passed the check of the envelope"),
        })
    }
}

/// Takes a fixed number of bytes off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], EnvelopeFault> {
    let (head, rest) = bytes.split_first_chunk::<N>().ok_or(EnvelopeFault::Malformed)?;
    *bytes = rest;
    Ok(*head)
}

/// Decodes a whole command, for forensics and tests.
///
/// # Errors
/// The envelope's fault in words, or the codec's.
pub fn decode(bytes: &[u8]) -> Result<(Option<SessionRef>, Command), CodecError> {
    const WHAT: &str = "command";
    let envelope = Envelope::open(bytes).map_err(|fault| CodecError::Malformed {
        what: WHAT,
        why: match fault {
            EnvelopeFault::Unknown { kind } => format!("type {kind} is unknown"),
            EnvelopeFault::Malformed => {
                "the envelope is cut short or has a strange flag".to_owned()
            }
        },
    })?;
    Ok((envelope.session, envelope.command()?))
}
