//! The two messages of the repair of damaged entries (R15). Both lists are bounded before anything
//! is allocated for them, and an entry names itself: what is damaged is not contiguous.

use super::{BodyHead, FrameError, body_from, body_head};
use crate::damage::Hole;
use crate::message::REPAIR_WANTS_MAX;
use crate::types::{Entry, LogId, Micros};
use bytes::Bytes;
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::marker::PhantomData;

/// An entry that was given back, without its payload.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct GivenHead {
    id: LogId,
    time: Micros,
    body: BodyHead,
}

/// Reads a list and stops at [`REPAIR_WANTS_MAX`].
pub(super) fn bounded<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    struct Bounded<T>(PhantomData<T>);

    impl<'de, T: DeserializeOwned> Visitor<'de> for Bounded<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {REPAIR_WANTS_MAX} entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            if let Some(claimed) = seq.size_hint().filter(|n| *n > REPAIR_WANTS_MAX) {
                return Err(A::Error::invalid_length(claimed, &self));
            }
            let mut all = Vec::new();
            while let Some(one) = seq.next_element()? {
                if all.len() == REPAIR_WANTS_MAX {
                    return Err(A::Error::invalid_length(REPAIR_WANTS_MAX + 1, &self));
                }
                all.push(one);
            }
            Ok(all)
        }
    }

    from.deserialize_seq(Bounded(PhantomData))
}

/// Refuses wants that no member would send: too many, or out of order.
pub(super) fn checked(wants: Vec<Hole>) -> Result<Vec<Hole>, FrameError> {
    let ascending = wants.is_sorted_by(|a, b| a.index < b.index);
    if !ascending || wants.is_empty() || wants.len() > REPAIR_WANTS_MAX {
        return Err(FrameError::Malformed("wanted entries out of order, none, or too many"));
    }
    Ok(wants)
}

/// The heads of entries that are given back.
pub(super) fn heads(entries: &[Entry]) -> Result<Vec<GivenHead>, FrameError> {
    check_order(entries.iter().map(|e| e.id))?;
    let head = |entry: &Entry| {
        Ok(GivenHead { id: entry.id, time: entry.time, body: body_head(&entry.body)? })
    };
    entries.iter().map(head).collect()
}

/// The entries behind their heads; commands are cut off the front of `rest`.
pub(super) fn entries(heads: Vec<GivenHead>, rest: &mut Bytes) -> Result<Vec<Entry>, FrameError> {
    check_order(heads.iter().map(|head| head.id))?;
    let entry = |head: GivenHead| {
        Ok(Entry { id: head.id, time: head.time, body: body_from(head.body, rest)? })
    };
    heads.into_iter().map(entry).collect()
}

fn check_order(ids: impl ExactSizeIterator<Item = LogId>) -> Result<(), FrameError> {
    let count = ids.len();
    let mut before = LogId::default();
    for id in ids {
        if id.index <= before.index || id.term < before.term {
            return Err(FrameError::Malformed("entries that are given back out of order"));
        }
        before = id;
    }
    if count > REPAIR_WANTS_MAX {
        return Err(FrameError::Malformed("too many entries given back"));
    }
    Ok(())
}
