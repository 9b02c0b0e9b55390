//! Entries, labels and configurations that the suites work with.

use crate::entries::Entries;
use crate::types::{
    Body, ClusterId, Entry, Index, LogId, MemberId, Membership, SnapshotMeta, Term,
};
use bytes::Bytes;

/// A configuration of voters named `n1`, `n2` and so on, with ids 1, 2, ...
#[must_use]
pub fn membership(voters: u64) -> Membership {
    Membership::of_voters((1..=voters).map(|n| (MemberId(n), format!("n{n}"))))
}

/// The log time of the entry at an index, in microseconds.
#[must_use]
pub(super) fn time_at(index: u64) -> u64 {
    1_000 * index
}

/// An entry with its sample time.
pub(super) fn entry(term: u64, index: u64, body: Body) -> Entry {
    Entry { id: LogId::new(term, index), time: time_at(index), body }
}

/// A command entry with a payload that depends on term and index.
pub(super) fn command(term: u64, index: u64, len: usize) -> Entry {
    let fill = (term.wrapping_mul(31).wrapping_add(index) % 251).to_le_bytes()[0];
    let mut payload = vec![fill; len];
    payload[..8].copy_from_slice(&index.to_le_bytes());
    entry(term, index, Body::Command(payload.into()))
}

/// Entries that certainly follow each other.
pub(super) fn run(entries: Vec<Entry>) -> Entries {
    Entries::new(entries).expect("sample entries are written in order")
}

/// A history for a state machine: a configuration of three voters at index 1, then commands.
#[must_use]
pub fn history(command: &dyn Fn(u64) -> Bytes, last: u64) -> Entries {
    let first = entry(1, 1, Body::Membership(membership(3).into()));
    let rest = (2..=last).map(|n| entry(1 + n / 16, n, Body::Command(command(n))));
    run(std::iter::once(first).chain(rest).collect())
}

/// A label for a snapshot at an entry, with a configuration of two voters.
#[must_use]
pub fn label(last: LogId) -> SnapshotMeta {
    SnapshotMeta {
        last,
        time: time_at(last.index.0),
        membership: membership(2),
        membership_index: Index(1),
        group: 0,
        cluster: ClusterId(7),
        epoch: 0,
        digest: u128::from(last.index.0) << 64 | u128::from(last.term.0),
        bytes: 0,
        newest_type: 3,
    }
}

/// The term of an entry in [`history`].
pub(super) fn term_in_history(index: u64) -> Term {
    Term(if index == 1 { 1 } else { 1 + index / 16 })
}
