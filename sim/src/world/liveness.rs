//! Liveness in both modes. Half of the runs with faults and at least three nodes first heal a
//! random majority and break everything else for good: that majority must serve clients and agree.
//! Then, as in all other runs, everything is healed, and everybody must serve and agree.
//!
//! Broken for good: without power, standing still, cut off in one direction or both, or with a
//! full disk. A majority must do without them because Raft promises no less (5.1, 9.1).

use super::noting::relief;
use super::{Phase, World};
use crate::check::ground::Ground;
use crate::check::progress::SILENT_TIMEOUTS;
use crate::check::stuck::{self, Blame, Fact};
use crate::check::{Verdict, Violation};
use crate::choices::{Actor, Stream};
use crate::trace::What;
use holdfast_consensus::fault::StopReason;
use holdfast_consensus::{Index, MemberId};
use std::ops::RangeInclusive;

/// Operations that the majority has to bring to an end before it is asked to agree.
const EARNED: u64 = 12;

/// How a node is broken for good.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// Without power.
    Down,
    /// Cut off from the majority.
    CutOff,
    /// Heard by the majority, and hears nothing of it.
    Deaf,
    /// Hears the majority, and is not heard.
    Mute,
    /// Stands still.
    Paused,
    /// No byte is left on its disk.
    Full,
}

impl Broken {
    /// The word in traces.
    const fn word(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::CutOff => "cut-off",
            Self::Deaf => "deaf",
            Self::Mute => "mute",
            Self::Paused => "paused",
            Self::Full => "disk-full",
        }
    }
}

/// The first mode of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Liveness {
    /// By node, while the first mode lasts.
    broken: Vec<Option<Broken>>,
    /// Operations that had ended when it began.
    finished_at: u64,
    /// What was committed when the majority had served enough.
    goal: Option<Index>,
}

impl Liveness {
    pub(super) fn broken(&self, node: usize) -> Option<Broken> {
        self.broken.get(node).copied().flatten()
    }
}

/// What a log holds, as far as everybody agrees on it: up to its end, or what is committed.
fn keeps(ground: &Ground, committed: Index) -> Option<RangeInclusive<u64>> {
    let last = ground.last().index.min(committed);
    (last > ground.base()).then(|| ground.base().next().0..=last.0)
}

impl World {
    /// Faults end, for all or for a majority first.
    pub(super) fn begin_liveness(&mut self) -> Verdict {
        let all = self.nodes.len();
        self.choices.enter_at(Stream::Majority, Actor::World, 0);
        let chance = if self.setup.faults.is_empty() { 0 } else { 500 };
        let majority_first = self.choices.chance("first", chance);
        self.choices.leave();
        // Forming needs every listed member (R7): before the first commit a majority can do nothing.
        let formed = self.committed() > Index(0);
        if !majority_first || all < 3 || !formed {
            self.heal();
            return Ok(());
        }
        let mut ranks: Vec<(u64, usize)> = Vec::with_capacity(all);
        for node in 0..all {
            self.choices.enter_at(Stream::Majority, Actor::Node(node), 0);
            ranks.push((self.choices.between("rank", 0, 1000), node));
            self.choices.leave();
        }
        ranks.sort_unstable();
        let mut order: Vec<usize> = ranks.into_iter().map(|(_, node)| node).collect();
        let core = order.split_off(all - (all / 2 + 1));
        self.heal();
        self.phase = Phase::Core;
        self.liveness.broken = vec![None; all];
        self.liveness.finished_at = self.clients.finished();
        for node in order {
            self.break_for_good(node, &core)?;
        }
        self.progress.moved(self.now);
        Ok(())
    }

    fn break_for_good(&mut self, node: usize, core: &[usize]) -> Verdict {
        let kinds = [
            Broken::Down,
            Broken::CutOff,
            Broken::Deaf,
            Broken::Mute,
            Broken::Paused,
            Broken::Full,
        ];
        self.choices.enter_at(Stream::Majority, Actor::Node(node), 1);
        let kind = kinds[self.choices.pick("broken", kinds.len())];
        self.choices.leave();
        self.note(Some(node), || What::fault(kind.word(), "broken for good"));
        self.liveness.broken[node] = Some(kind);
        match kind {
            Broken::Down => {
                self.nodes[node].kept_down = true;
                if self.nodes[node].is_running() {
                    self.crash(node, true);
                }
            }
            Broken::Paused => self.pause(node),
            Broken::Full => {
                let disk = &self.nodes[node].disk;
                disk.set_budget(Some(disk.used()));
            }
            Broken::CutOff | Broken::Deaf | Broken::Mute => {
                for peer in core {
                    if kind != Broken::Mute {
                        self.network.cut(*peer, node);
                    }
                    if kind != Broken::Deaf {
                        self.network.cut(node, *peer);
                    }
                }
            }
        }
        Ok(())
    }

    /// The first mode: what the majority owes.
    pub(super) fn look_at_core(&mut self) -> Verdict {
        if self.liveness.goal.is_none() {
            self.nothing_asked();
        }
        if !self.demand(SILENT_TIMEOUTS)? {
            return Ok(());
        }
        let wanted = self.liveness.finished_at + EARNED;
        if self.liveness.goal.is_none()
            && (self.clients.finished() >= wanted || self.clients.nobody_wants())
        {
            self.liveness.goal = Some(self.committed());
        }
        if self.liveness.goal.is_some_and(|goal| self.core_agrees(goal)) {
            self.mend();
        }
        Ok(())
    }

    /// True if everybody in the majority follows one leader, and has applied what was committed.
    fn core_agrees(&self, goal: Index) -> bool {
        let mut leaders: Vec<MemberId> = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if self.liveness.broken(at).is_some() {
                continue;
            }
            let Some(process) = node.process() else { return false };
            let core = process.replica.core();
            let applied = process.view.applied().map_or(Index(0), |(last, _)| last.index);
            let Some(leader) = core.leader() else { return false };
            if core.commit() < goal || applied < goal {
                return false;
            }
            leaders.push(leader);
        }
        leaders.windows(2).all(|pair| pair[0] == pair[1])
    }

    /// Everything is mended: the second mode.
    fn mend(&mut self) {
        self.liveness.broken.clear();
        self.heal_links();
        for node in &mut self.nodes {
            node.kept_down = false;
        }
        self.heal();
    }

    /// The node that a client turns to: none that is held, which says that it is not ready, and in
    /// the first mode one of the majority.
    pub(super) fn served_by(&self, picked: usize) -> usize {
        let all = self.nodes.len();
        let healthy = (0..all).map(|n| (picked + n) % all);
        let serves = |n: &usize| self.liveness.broken(*n).is_none() && !self.nodes[*n].is_held();
        healthy.into_iter().find(serves).unwrap_or(picked)
    }

    /// Demands progress; `false` if there is none and faults alone explain it, which ends the run
    /// without a violation.
    pub(super) fn demand(&mut self, timeouts: u64) -> Result<bool, Violation> {
        let verdict = self.progress.check(self.now, self.setup.election_max(), timeouts, || {
            let blame = match stuck::blame(&self.facts()) {
                Blame::Faults(why) | Blame::Code(why) => why,
            };
            format!("{blame}; {}", self.who_waits())
        });
        let Err(violation) = verdict else { return Ok(true) };
        match stuck::blame(&self.facts()) {
            Blame::Code(_) => Err(violation),
            Blame::Faults(why) => {
                self.note(None, || why);
                self.summary.excused += 1;
                self.phase = Phase::Done;
                Ok(false)
            }
        }
    }

    /// Ground truth about every node.
    fn facts(&self) -> Vec<Fact> {
        let committed = self.suite.committed.last();
        let both = |a: usize, b: usize| !self.network.is_cut(a, b) && !self.network.is_cut(b, a);
        let fact = |(at, node): (usize, &crate::node::Node)| Fact {
            name: node.name.clone(),
            // A process that is down without being kept down is about to start.
            runs: !node.kept_down && !node.paused,
            held: node.is_held() || node.refused.is_some(),
            has_space: self.liveness.broken(at) != Some(Broken::Full),
            holds: node.ground.holds(committed),
            keeps: keeps(&node.ground, committed.index),
            damaged: node.ground.holes().iter().map(|index| index.0).collect(),
            reaches: (0..self.nodes.len()).map(|b| at == b || both(at, b)).collect(),
        };
        self.nodes.iter().enumerate().map(fact).collect()
    }

    /// Space comes back on a disk, unless it is full for good.
    pub(super) fn space(&mut self, node: usize) {
        if self.liveness.broken(node) != Some(Broken::Full) {
            self.nodes[node].disk.set_budget(None);
            self.note(Some(node), || relief("disk-full", "space comes back"));
        }
    }

    /// A replica stopped by itself: excused over damage. Nothing else that is injected may bring that
    /// about: a disk that is full is waited for, however long it takes (R45), and a log that fails
    /// is reopened.
    pub(super) fn stopped(&mut self, node: usize, why: &StopReason) -> Verdict {
        let n = &self.nodes[node];
        if n.damaged {
            // It knows too little to go on; its next start says what becomes of it.
            self.note(Some(node), || format!("stops over damage: {why}"));
            self.crash(node, false);
            return Ok(());
        }
        Err(Violation::new("stopped", format!("{} stops: {why}", n.name)))
    }
}
