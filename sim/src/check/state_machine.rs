//! State-machine safety: replicas that have applied the same entries hold the same state (Raft
//! figure 3): equal digest at equal applied index, in every life of every replica.

use super::{Verdict, Violation};
use holdfast_consensus::LogId;
use std::collections::BTreeMap;

/// Name of the property.
pub const PROPERTY: &str = "state-machine-safety";

/// Digests by applied entry.
#[derive(Debug, Default)]
pub struct Digests {
    at: BTreeMap<u64, (LogId, u128, String)>,
}

impl Digests {
    /// A replica has applied everything up to `through` and has this digest.
    ///
    /// # Errors
    /// If another replica, or this one earlier, had another digest there or another entry.
    pub fn on_applied(&mut self, who: &str, through: LogId, digest: u128) -> Verdict {
        let known =
            self.at.entry(through.index.0).or_insert_with(|| (through, digest, who.to_owned()));
        if known.0 == through && known.1 == digest {
            return Ok(());
        }
        Err(Violation::new(
            PROPERTY,
            format!(
                "at {through} {who} has digest {digest:032x}; {} had {:032x} at {}",
                known.2, known.1, known.0
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_states_at_one_index_are_seen() {
        let mut digests = Digests::default();
        assert_eq!(digests.on_applied("a", LogId::new(1, 5), 7), Ok(()));
        assert_eq!(digests.on_applied("b", LogId::new(1, 5), 7), Ok(()));
        assert_eq!(digests.on_applied("b", LogId::new(1, 6), 8), Ok(()));
        assert!(digests.on_applied("c", LogId::new(1, 5), 8).is_err(), "another digest");
        assert!(digests.on_applied("c", LogId::new(2, 6), 8).is_err(), "another entry");
    }
}
