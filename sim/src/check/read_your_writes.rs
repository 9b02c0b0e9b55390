//! Read your writes: once a write was answered through a node after that node had applied it, that
//! process shows it, and every later state, at every read (DESIGN 9: any node takes a write and
//! forwards it, and the answer waits until the local replica has applied it). The promise ends with
//! the process: a restarted one may be behind.

use super::{Verdict, Violation};
use holdfast_consensus::{Index, LogId};

/// Name of the property.
pub const PROPERTY: &str = "read-your-writes";

/// What one process has answered.
#[derive(Copy, Clone, Debug, Default)]
pub struct Answered {
    highest: LogId,
}

impl Answered {
    /// A write at this place was answered.
    pub fn on_answer(&mut self, at: LogId) {
        if at.index > self.highest.index {
            self.highest = at;
        }
    }

    /// Somebody reads on this node, whose state is at `applied`.
    ///
    /// # Errors
    /// If that is older than what was answered.
    pub fn on_read(&self, who: &str, applied: Index) -> Verdict {
        if applied >= self.highest.index {
            return Ok(());
        }
        Err(Violation::new(
            PROPERTY,
            format!(
                "{who} answered a write at {} and then shows the state at {applied}",
                self.highest
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_before_an_answered_write_is_seen() {
        let mut answered = Answered::default();
        assert_eq!(answered.on_read("n1", Index(0)), Ok(()));
        answered.on_answer(LogId::new(2, 8));
        answered.on_answer(LogId::new(1, 5));
        assert_eq!(answered.on_read("n1", Index(8)), Ok(()));
        assert!(answered.on_read("n1", Index(7)).is_err());
    }
}
