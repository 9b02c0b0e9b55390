//! Clocks.
//!
//! # What is injected
//! Every machine has a clock of its own that starts anywhere (anew after a loss of power) and runs
//! a little fast or slow. While it runs, its rate may change, and it may jump **forward**, as a
//! clock that counts suspend does when a machine wakes up: a suspended machine is a paused process
//! whose clock has moved on, and a jump without a pause is one that slept between two steps.
//!
//! # What is never injected
//! A clock that goes back, and one that stands still while others go on (a frozen guest clock):
//! the product reads a monotonic clock that counts suspend, and the frozen one is outside its
//! assumption (R39). A rate beyond what the run has drawn, but by a script: no safety rests on rates.
//!
//! # Why a cluster must survive it
//! Safety rests on no clock at all: leases are off by default, an election that comes early costs
//! a term, and log time advances by no more than the leader's own clock does (R26).

use super::World;
use super::script::Script;
use crate::choices::Actor;
use crate::faults::Fault;
use crate::trace::What;

impl World {
    /// A clock runs at another rate from now on.
    pub(super) fn clock_rate(&mut self, node: usize) {
        let widest = self.setup.drift;
        if widest == 0 {
            return;
        }
        self.faults.count(Fault::ClockRate);
        let drawn = self.choices.between("drift", 0, 2 * widest + 1);
        let drift = i64::try_from(drawn).unwrap_or(0) - i64::try_from(widest).unwrap_or(0);
        self.nodes[node].clock.set_rate(self.now, drift);
        self.note(Some(node), || What::fault("clock-rate", format!("{drift} millionths fast")));
        self.plan_wake(node);
    }

    /// A clock jumps forward: mostly by less than a second, now and then by many.
    pub(super) fn clock_jump(&mut self, node: usize) {
        self.faults.count(Fault::ClockJump);
        let far = self.choices.chance("far", 200);
        let mean = if far { 4_000_000 } else { 150_000 };
        let by = self.choices.wait("by", mean);
        self.nodes[node].clock.jump(by);
        self.note(Some(node), || What::fault("clock-jump", format!("{by} us forward")));
        self.plan_wake(node);
    }
}

/// The rate of a clock that is right.
pub const TRUE_RATE: u64 = 1_000_000;

impl Script {
    /// The clock of a node shows so many microseconds for each second from now on.
    pub fn clock_at(&mut self, node: usize, rate: u64) {
        let rate = self.amount(Actor::Node(node), "clock", "rate", rate);
        if rate == 0 {
            return;
        }
        let signed = |rate| i64::try_from(rate).unwrap_or(i64::MAX);
        let drift = signed(rate).saturating_sub(signed(TRUE_RATE));
        let world = &mut self.world;
        world.nodes[node].clock.set_rate(world.now, drift);
        world.note(Some(node), || What::fault("clock-rate", format!("{drift} millionths fast")));
        world.plan_wake(node);
    }
}
