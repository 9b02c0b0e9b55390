//! Accepted records whose topic was deleted: the verdict is durable before the caller may advance
//! its checkpoint over them (SCENARIOS 3, N29).

use super::trash::Reason;
use super::{Plane, spent};
use crate::guard::{Claim, Keep, Permit};
use crate::records::{ResourceKind, Stamp};
use crate::view::View;
use holdfast_log::disk::Disk;

/// Most bytes of records in one verdict.
pub const DISCARD_MAX: usize = 16 << 20;

/// Leave to advance the checkpoint over these records: only a durable verdict gives it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the records stay until the checkpoint is advanced over them"]
pub struct Discarded {
    topic: Stamp,
    count: u64,
}

impl Discarded {
    /// The incarnation that the records were accepted for.
    #[must_use]
    pub const fn topic(&self) -> &Stamp {
        &self.topic
    }

    /// How many records.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }
}

impl<D: Disk> Plane<D> {
    /// Writes down, durably, that `count` records accepted for the permitted incarnation are
    /// discarded, with their bytes (R32). The records must be of that incarnation: of another one,
    /// under the same name, the permit says nothing (N1).
    ///
    /// # Errors
    /// [`Keep`]: nothing may be discarded.
    pub fn discard(
        &self,
        permit: Permit,
        view: &View,
        accepted_for: &Stamp,
        count: u64,
        records: &[u8],
    ) -> Result<Discarded, Keep> {
        if records.len() > DISCARD_MAX {
            return Err(Keep::Disk(format!(
                "{} bytes of records in one verdict, at most {DISCARD_MAX}",
                records.len()
            )));
        }
        let topic = accepted(&permit, accepted_for)?;
        self.locked(&topic.name, || {
            permit.still_stands(view)?;
            self.note(&Reason::of(&permit, count, records.to_vec()))
        })?;
        spent(permit);
        Ok(Discarded { topic, count })
    }
}

/// The permit is about the very incarnation that the records were accepted for.
fn accepted(permit: &Permit, accepted_for: &Stamp) -> Result<Stamp, Keep> {
    match permit.claim() {
        Claim::Gone(topic) if topic == accepted_for && topic.kind == ResourceKind::Topic => {
            Ok(topic.clone())
        }
        _ => Err(Keep::WrongPermit),
    }
}
