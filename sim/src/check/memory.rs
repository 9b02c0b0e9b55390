//! Bounded memory: whatever a replica holds for others stays within what its configuration allows
//! (DESIGN 4.9: everything in flight is bounded in bytes; BUGS B32, B33). Weights are the
//! replica's own measure, limits are computed here from its settings.

use super::{Verdict, Violation};
use holdfast_consensus::replica::{ReplicaConfig, Weights};

/// Name of the property.
pub const PROPERTY: &str = "bounded-memory";

/// Most weight of one run of entries: an append, or one command more.
const fn run_max(config: &ReplicaConfig) -> usize {
    config.core.append_bytes + config.core.command_bytes + SLACK
}

/// Bytes that an entry weighs beside its command, generously.
const SLACK: usize = 512;

/// Judges what a replica holds.
///
/// # Errors
/// The first thing that is too large.
pub fn check(who: &str, weights: &Weights, config: &ReplicaConfig) -> Verdict {
    let core = &config.core;
    // Only what is durable and committed may be evicted, a whole run at a time.
    let cached_max = core.cache_bytes.max(weights.unsettled + run_max(config));
    let limits = [
        ("cached entries", weights.cached, cached_max),
        ("uncommitted entries", weights.uncommitted, core.uncommitted_bytes + run_max(config)),
        ("bytes in flight to a peer", weights.flight_bytes, core.window_bytes + run_max(config)),
        ("appends in flight to a peer", weights.flight_messages, core.window_messages),
        ("bytes of waiting calls", weights.waiting, config.waiting_bytes),
        ("reads that wait for a round", weights.reads, core.reads),
    ];
    match limits.iter().find(|(_, is, most)| is > most) {
        None => Ok(()),
        Some((what, is, most)) => Err(Violation::new(
            PROPERTY,
            format!("{who} holds {is} {what}, its configuration allows {most}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_consensus::MemberId;

    #[test]
    fn each_weight_that_is_too_large_is_seen() {
        let config = ReplicaConfig::new(MemberId(1));
        let fine = Weights { cached: 16 << 20, unsettled: 0, ..Weights::default() };
        assert_eq!(check("n1", &fine, &config), Ok(()));
        let huge = 1 << 30;
        let cases = [
            Weights { cached: huge, ..fine },
            Weights { uncommitted: huge, ..fine },
            Weights { flight_bytes: huge, ..fine },
            Weights { flight_messages: 65, ..fine },
            Weights { waiting: huge, ..fine },
            Weights { reads: huge, ..fine },
        ];
        for weights in cases {
            assert!(check("n1", &weights, &config).is_err(), "{weights:?}");
        }
        let busy = Weights { cached: huge, unsettled: huge, ..fine };
        assert_eq!(check("n1", &busy, &config), Ok(()), "what must be kept is kept");
    }
}
