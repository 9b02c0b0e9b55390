//! When a disk counts as stalled (R41): a write is outstanding for longer than the disk usually
//! takes, and than an election would. Judged against what this disk does, so that disks that are
//! slow everywhere depose nobody.

use super::shared::Shared;
use crate::types::Micros;
use std::collections::VecDeque;

/// Writes that the moving percentile looks back on.
const KEPT: usize = 128;
/// Writes between two looks, once there are enough.
const EVERY: usize = 16;
/// How many times longer than its 99th percentile a write may take.
const TIMES: Micros = 4;

/// How long the newest writes took, from being handed out to being durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct WriteTimes {
    newest: VecDeque<Micros>,
    since: usize,
    p99: Micros,
}

impl WriteTimes {
    /// A write took so long.
    pub(crate) fn note(&mut self, took: Micros) {
        if self.newest.len() == KEPT {
            self.newest.pop_front();
        }
        self.newest.push_back(took);
        self.since += 1;
        if self.since >= EVERY || self.newest.len() <= EVERY {
            self.since = 0;
            self.p99 = p99(self.newest.iter().copied().collect());
        }
    }

    /// The 99th percentile, in microseconds; zero before the first write.
    pub(crate) const fn p99(&self) -> Micros {
        self.p99
    }
}

fn p99(mut times: Vec<Micros>) -> Micros {
    let at = (times.len() * 99).div_ceil(100).saturating_sub(1);
    if times.is_empty() { 0 } else { *times.select_nth_unstable(at).1 }
}

impl Shared {
    /// How long a write may be outstanding: an election timeout, or four times what writes here
    /// take at worst, but never longer than the configured bound.
    pub(crate) fn stall_after(&self) -> Micros {
        let usual = self.disk.times().p99().saturating_mul(TIMES);
        self.config.election_max.max(usual).min(self.config.write_stall)
    }

    /// True if a write has been outstanding for so long that a leader has to step down.
    pub(crate) fn write_stalled(&self) -> bool {
        self.disk.oldest().is_some_and(|at| self.now.saturating_sub(at) >= self.stall_after())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentile_leaves_out_the_worst_of_a_hundred() {
        assert_eq!(p99(Vec::new()), 0);
        assert_eq!(p99(vec![7]), 7);
        assert_eq!(p99((1..=100).collect()), 99);
        assert_eq!(p99((1..=128).rev().collect()), 127);
    }

    #[test]
    fn the_percentile_moves_with_the_newest_writes() {
        let mut times = WriteTimes::default();
        for _ in 0..200 {
            times.note(100);
        }
        times.note(9_000);
        assert_eq!(times.p99(), 100, "one slow write changes nothing");
        for _ in 0..32 {
            times.note(5_000);
        }
        assert_eq!(times.p99(), 5_000);
        for _ in 0..300 {
            times.note(200);
        }
        assert_eq!(times.p99(), 200);
        assert_eq!(times.newest.len(), KEPT);
    }
}
