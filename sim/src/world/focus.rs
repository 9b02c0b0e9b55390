//! Faults that aim: they strike where a cluster is weakest instead of anywhere.
//!
//! # What is injected
//! - **A stale leader**: the leader stands still until another leads, and goes on with the calls
//!   that were made to it meanwhile.
//! - **A full disk** where it hurts: of the leader, of a majority, during a snapshot, during a vote
//!   (every disk but the leader's is full, and the leader stands still), at a restart. Space comes
//!   back after a while, or when faults end.
//! - **One lane** of a process is slow or stands still while the others go on; one job hangs.
//! - **A kill in the middle of a pause**, and **a loop of restarts**, as a supervisor makes of a
//!   process that dies soon after each start.
//!
//! # What is never injected
//! A disk that stays full for ever: the fault budget of a campaign leaves every cluster one that
//! recovers once faults end.
//!
//! # Why a cluster must survive it
//! A paused process is a slow one, and Raft assumes no bound on speed. A full disk refuses; what
//! was acknowledged before is already durable (R45, R46).

use super::noting::lasting;
use super::{Event, World};
use crate::faults::Fault;
use crate::profile::FaultKind;
use crate::trace::What;
use holdfast_consensus::Micros;
use holdfast_consensus::job::Lane;

impl World {
    /// Injects a fault of this file or of `links` and `clocks`; `false` if it is none of them.
    pub(super) fn aimed(&mut self, kind: FaultKind, node: usize, power: bool) -> bool {
        match kind {
            FaultKind::LossyLink => self.lossy_link(node),
            FaultKind::SlowLink => self.slow_link(node),
            FaultKind::Dam => self.dam(node),
            FaultKind::Replay => self.replay(node),
            FaultKind::ClockRate => self.clock_rate(node),
            FaultKind::ClockJump => self.clock_jump(node),
            FaultKind::StaleLeader => self.stale_leader(),
            FaultKind::FullLeader
            | FaultKind::FullMajority
            | FaultKind::FullVote
            | FaultKind::FullSnapshot => self.full_where(kind, node, power),
            _ if !self.nodes[node].is_running() => return false,
            FaultKind::StallLane | FaultKind::Hang | FaultKind::PauseLane => {
                self.lane_fault(kind, node);
            }
            FaultKind::KillPaused => self.kill_paused(node, power),
            FaultKind::RestartLoop => self.restart_loop(node, power),
            FaultKind::FullRestart => self.full_where(kind, node, power),
            _ => return false,
        }
        true
    }

    /// One lane is slow, one job takes very long, or one lane stands still.
    fn lane_fault(&mut self, kind: FaultKind, node: usize) {
        let lane = [Lane::Log, Lane::Apply][self.choices.pick("lane", 2)];
        let span = self.choices.wait("for", 500_000);
        let (until, life) = (self.now + span, self.nodes[node].life);
        match kind {
            FaultKind::StallLane => {
                self.faults.count(Fault::LaneStalled);
                self.nodes[node].lane_stalled = Some((lane, until));
                let text = format!("the {lane:?} lane is slow");
                self.note(Some(node), || lasting("stall-lane", &text, until));
            }
            FaultKind::Hang => {
                self.faults.count(Fault::Hung);
                self.nodes[node].hang = Some(span);
                let text = format!("the next job takes {span} us longer");
                self.note(Some(node), || What::fault("hang", text));
            }
            _ => {
                self.faults.count(Fault::LanePaused);
                self.nodes[node].stuck.insert(lane);
                self.queue.push(until, Event::Free { node, life, lane });
                let text = format!("the {lane:?} lane stands still");
                self.note(Some(node), || lasting("pause-lane", &text, until));
            }
        }
    }

    /// The process of a node stands still for a while.
    pub(super) fn pause_for(&mut self, node: usize, span: Micros) {
        self.faults.count(Fault::Paused);
        self.pause(node);
        let (life, pause) = (self.nodes[node].life, self.nodes[node].pause);
        self.queue.push(self.now + span, Event::Resume { node, life, pause });
    }

    /// The leader stands still for long enough that another one is elected.
    pub(super) fn stale_leader(&mut self) {
        let Some(leader) = self.leader() else { return };
        self.faults.count(Fault::StaleLeader);
        let span = self.choices.between("for", 350_000, 1_600_000);
        self.pause_for(leader, span);
    }

    /// A node is killed while it stands still.
    pub(super) fn kill_paused(&mut self, node: usize, power: bool) {
        let span = self.choices.wait("for", 200_000);
        self.pause_for(node, 4 * span);
        let life = self.nodes[node].life;
        self.queue.push(self.now + span, Event::Crash { node, life, power });
    }

    /// A node dies soon after each of its next starts.
    pub(super) fn restart_loop(&mut self, node: usize, power: bool) {
        self.faults.count(Fault::RestartLoop);
        self.nodes[node].loops = self.choices.between("starts", 2, 7);
        self.crash(node, power);
    }

    /// The disk of a node takes so many bytes more, for a while.
    pub(super) fn fill(&mut self, node: usize, most: u64, span: Micros) {
        self.faults.count(Fault::DiskFull);
        let left = self.choices.between("room", 0, most);
        let disk = &self.nodes[node].disk;
        disk.set_budget(Some(disk.used() + left));
        self.queue.push(self.now + span, Event::Space { node });
        self.note(Some(node), || {
            What::fault("disk-full", format!("the disk has room for {left} more bytes"))
        });
    }

    /// A disk is full at a bad moment.
    pub(super) fn full_where(&mut self, kind: FaultKind, node: usize, power: bool) {
        let all = self.nodes.len();
        let span = self.choices.wait("for", 1_200_000);
        let leader = self.leader();
        match (kind, leader) {
            (FaultKind::FullLeader, Some(leader)) => self.fill(leader, 60_000, span),
            (FaultKind::FullMajority, _) => {
                for next in 0..=all / 2 {
                    self.fill((node + next) % all, 60_000, span);
                }
            }
            (FaultKind::FullVote, Some(leader)) => {
                for other in (0..all).filter(|other| *other != leader) {
                    self.fill(other, 4_000, span);
                }
                let stands = self.choices.between("stands", 350_000, 1_200_000);
                self.pause_for(leader, stands);
            }
            (FaultKind::FullSnapshot, _) => {
                let busy = |n: &usize| {
                    self.nodes[*n].process().is_some_and(|process| {
                        process.lanes.keys().any(|lane| matches!(lane, Lane::Build | Lane::Receive))
                    })
                };
                if let Some(node) = (0..all).find(busy) {
                    self.fill(node, 12_000, span);
                }
            }
            (FaultKind::FullRestart, _) => {
                self.crash(node, power);
                self.fill(node, 20_000, span);
            }
            _ => {}
        }
    }
}
