//! Progress: once everything is healed, the cluster serves its clients and its replicas converge,
//! within a bounded number of election timeouts (Raft 5.6). A run that is stuck says who waits for
//! what.

use super::{Verdict, Violation};
use holdfast_consensus::Micros;

/// Name of the property.
pub const PROPERTY: &str = "progress";
/// Election timeouts (the longest one) without any acknowledgement that are too many.
pub const SILENT_TIMEOUTS: u64 = 60;
/// Election timeouts that converging may take once the clients are done.
pub const CONVERGE_TIMEOUTS: u64 = 100;

/// Watches the time since the last progress, while everything is healed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    since: Option<Micros>,
    longest: Micros,
}

impl Progress {
    /// Everything is healed from now on, or something moved.
    pub fn moved(&mut self, now: Micros) {
        self.longest = self.longest.max(self.since.map_or(0, |since| now.saturating_sub(since)));
        self.since = Some(now);
    }

    /// The longest time between two movements since the last [`Progress::forget`].
    #[must_use]
    pub const fn longest(&self) -> Micros {
        self.longest
    }

    /// From now on the longest time is measured anew.
    pub fn forget(&mut self) {
        self.longest = 0;
    }

    /// A fault was injected: nothing is demanded.
    pub fn excused(&mut self) {
        self.since = None;
    }

    /// Checks that not too much time has passed.
    ///
    /// # Errors
    /// If more than `timeouts` election timeouts have passed since the last movement.
    pub fn check(
        &self,
        now: Micros,
        timeout: Micros,
        timeouts: u64,
        who_waits: impl FnOnce() -> String,
    ) -> Verdict {
        let Some(since) = self.since else { return Ok(()) };
        if now.saturating_sub(since) <= timeout * timeouts {
            return Ok(());
        }
        Err(Violation::new(
            PROPERTY,
            format!(
                "nothing moved for {timeouts} election timeouts after healing; {}",
                who_waits()
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standing_still_after_healing_is_seen_and_excused_before() {
        let mut progress = Progress::default();
        let check = |p: &Progress, now| p.check(now, 10, 5, || "n1".into());
        assert_eq!(check(&progress, 1_000_000), Ok(()));
        progress.moved(100);
        assert_eq!(check(&progress, 150), Ok(()));
        assert!(check(&progress, 151).is_err());
        progress.moved(140);
        assert_eq!(progress.longest(), 40);
        progress.forget();
        assert_eq!(progress.longest(), 0);
        progress.excused();
        assert_eq!(check(&progress, 151), Ok(()));
    }
}
