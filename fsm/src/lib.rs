//! The replicated metadata store of Holdfast: a deterministic state machine on redb.
//!
//! Guarantees: an entry's effects, its index, the session table and the state digest become
//! visible and durable together or not at all; entries already held are skipped when the log hands
//! them again; the same entries give the same records, answers, digest and snapshot bytes on every
//! replica. Assumes: one owner calls [`Metastore`]; the log hands entries in order; the disk keeps
//! what a successful sync covered.
//!
//! | module | what it does |
//! |---|---|
//! | [`command`], [`answer`], [`rules`] | what clients ask, what they are told, what the limits are |
//! | [`records`], [`header`], [`digest`] | what is stored, and how it is summed up |
//! | [`metastore`] | applies entries, checkpoints, pins images, adopts restored states |
//! | [`view`] | local reads |
//! | [`guard`] | permits: the only leave to destroy anything because of metadata |
//! | [`plane`] | the data plane's directory: copies, cursors and discards, all through permits |
//! | [`snapshot`] | the stream that carries a whole state |
//! | [`mod@start`] | what to do with what a directory holds |
//! | [`mod@explain`] | what a start would do, without doing it |
#![forbid(unsafe_code)]

pub mod answer;
mod apply;
mod backend;
pub mod command;
mod contain;
pub mod digest;
mod distrust;
pub mod entrance;
pub mod explain;
pub mod guard;
pub mod header;
mod image;
pub mod metastore;
pub mod plane;
pub mod records;
mod reserve;
mod restore;
mod rows;
pub mod rules;
mod session;
pub mod snapshot;
pub mod start;
pub mod store;
pub mod view;

pub use answer::{Answer, Current};
pub use command::{Command, CreateTopic, DeleteTopic, PutMember, SessionRef};
pub use contain::panic_is_contained;
pub use distrust::{DISTRUST_FILE, distrust};
pub use image::Image;
pub use metastore::Metastore;
pub use plane::{Plane, PlaneError};
pub use restore::Restore;
pub use rules::Rule;
pub use session::{SESSION_TTL, SESSIONS_MAX};
pub use start::{Plan, StartError, Started, start};
pub use store::{OpenError, StoreOptions};
pub use view::{At, DigestWalk, Held, ReadError, Trust, View, WalkStep};
