//! Time between a decision and its act (SCENARIOS N6, N11, N13): a worker that is slow, or stands
//! still with its process, carries out later what was decided or permitted before.
//!
//! What waits is carried out in order at the first pass after its time. A permit waits as the value
//! that it is: the data plane of the product checks it again when it is handed over at last.

use super::engine::{Broker, Sight};
use super::wants::{Act, Want};
use holdfast_consensus::Micros;
use holdfast_fsm::guard::Permit;
use std::collections::VecDeque;
use std::io;

/// What an act waits with.
#[derive(Debug)]
pub(super) enum Leave {
    /// The word that was enough without the guard.
    Word,
    /// A permit of the guard.
    Permit(Box<Permit>),
}

/// The hands of a broker, and what waits for them.
#[derive(Debug, Default)]
pub(super) struct Hands {
    /// How long they need for each act.
    slow: Micros,
    waiting: VecDeque<(Micros, Act, Leave)>,
}

impl Broker {
    /// From now on each act takes so long to come about, one after the other.
    pub fn slow_hands(&mut self, by: Micros) {
        self.hands.slow = by;
    }

    /// True if acts are decided and not carried out yet.
    #[must_use]
    pub fn hesitates(&self) -> bool {
        !self.hands.waiting.is_empty()
    }

    /// Puts an act off if the hands are slow; otherwise it is given back.
    pub(super) fn put_off(&mut self, act: &Act, leave: Leave, now: Micros) -> Option<Leave> {
        if self.hands.slow == 0 {
            return Some(leave);
        }
        let last = self.hands.waiting.back().map_or(now, |(due, ..)| *due);
        let due = last.max(now) + self.hands.slow;
        self.busy_until(act, due);
        self.hands.waiting.push_back((due, act.clone(), leave));
        None
    }

    /// Carries out what was put off until now.
    ///
    /// # Errors
    /// What the disk says.
    pub(super) fn catch_up(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        while let Some((due, act, leave)) = self.hands.waiting.pop_front() {
            if due > sight.now {
                self.hands.waiting.push_front((due, act, leave));
                return Ok(());
            }
            match leave {
                Leave::Word => {
                    self.wants.push(Want::Say(format!("does it: {}", act.describe())));
                    self.destroy(&act)?;
                }
                Leave::Permit(permit) => self.use_permit(&act, *permit, sight)?,
            }
        }
        Ok(())
    }
}
