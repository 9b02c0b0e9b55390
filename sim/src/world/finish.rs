//! The end of a run: heal, finish, converge, restart from the disks, converge again, compare.

use super::{Event, LOOK_EVERY, Phase, World};
use crate::check::durability::{self, Held};
use crate::check::progress::{CONVERGE_TIMEOUTS, SILENT_TIMEOUTS};
use crate::check::{Verdict, Violation};
use crate::choices::{Actor, Stream};
use holdfast_consensus::Micros;
use holdfast_fsm::view::LIST_MAX;

impl World {
    /// Looks whether the run can go to its next phase.
    pub(super) fn look(&mut self) -> Verdict {
        self.queue.push(self.now + LOOK_EVERY, Event::Look);
        match self.phase {
            Phase::Active => {
                if self.ends_faults() {
                    return self.begin_liveness();
                }
                Ok(())
            }
            Phase::Core => self.look_at_core(),
            Phase::Healed => {
                self.nothing_asked();
                if self.demand(SILENT_TIMEOUTS)? && self.clients.done() {
                    self.phase = Phase::Converging;
                    self.progress.moved(self.now);
                    self.summary.slowest[0] = self.in_timeouts(self.progress.longest());
                    self.progress.forget();
                }
                Ok(())
            }
            Phase::Converging => {
                if !self.converged()? {
                    return self.demand(CONVERGE_TIMEOUTS).map(drop);
                }
                self.phase = Phase::Restarted;
                self.progress.moved(self.now);
                for node in 0..self.nodes.len() {
                    if self.nodes[node].is_running() {
                        self.crash(node, self.setup.last_crash_is_power);
                    }
                }
                self.read_disks()
            }
            Phase::Restarted => {
                if !self.converged()? {
                    return self.demand(CONVERGE_TIMEOUTS).map(drop);
                }
                self.progress.moved(self.now);
                self.summary.slowest[1] = self.in_timeouts(self.progress.longest());
                self.read_disks()?;
                self.compare_all()?;
                self.suite.finish()?;
                self.phase = Phase::Done;
                Ok(())
            }
            Phase::Done => Ok(()),
        }
    }

    /// While no client waits for anything, nothing has to move.
    pub(super) fn nothing_asked(&mut self) {
        if self.clients.nobody_waits() {
            self.progress.moved(self.now);
        }
    }

    /// A span in thousandths of the longest election timeout.
    fn in_timeouts(&self, span: Micros) -> u64 {
        span * 1000 / self.setup.election_max()
    }

    /// True if it is time to heal. A tape decides it where it says so; else faults end once the
    /// clients have most of what they want and a tape has no more of them.
    fn ends_faults(&mut self) -> bool {
        let look = self.now / LOOK_EVERY;
        let early = self.now < self.setup.active_min
            || self.foresees_faults()
            || self.choices.foresees(Stream::Heal, Actor::World, look + 1);
        let due = (self.clients.nearly_done() && !early) || self.now > self.setup.active_max;
        self.choices.enter_at(Stream::Heal, Actor::World, look);
        let due = self.choices.observe("now", due) || (due && self.choices.is_tape());
        self.choices.leave();
        due
    }

    /// One line about every node and every client that is not done.
    pub(super) fn who_waits(&self) -> String {
        let mut lines = vec![format!("committed {}", self.suite.committed.last())];
        for (n, node) in self.nodes.iter().enumerate() {
            let what = match (&node.state, node.process()) {
                (_, Some(process)) => {
                    let s = process.replica.status(node.clock.show(self.now));
                    let lanes: Vec<_> = process.lanes.values().map(|j| j.kind()).collect();
                    let links: Vec<_> = (0..self.nodes.len())
                        .filter(|m| self.network.is_connected(n, *m))
                        .collect();
                    format!(
                        "{} in {}, last {}, durable {}, commit {}, applied {}, not ready: {:?}, jobs {lanes:?}, links {links:?}",
                        s.role.as_str(),
                        s.hard.term,
                        s.last,
                        s.durable,
                        s.commit,
                        s.applied.last,
                        s.not_ready
                    )
                }
                (crate::node::State::Forming(_), None) => "waits for a cluster".to_owned(),
                _ => "down".to_owned(),
            };
            lines.push(format!("{}: {what}", node.name));
        }
        lines.push(self.clients.who_waits());
        lines.join("; ")
    }

    /// True once every replica has applied everything that is committed and everybody agrees on it.
    fn converged(&mut self) -> Result<bool, Violation> {
        let committed = self.committed();
        for node in &self.nodes {
            if node.is_held() || node.refused.is_some() {
                continue;
            }
            let Some(process) = node.process() else { return Ok(false) };
            let core = process.replica.core();
            if core.commit() != committed || core.last().index != committed {
                return Ok(false);
            }
            let Ok((last, digest)) = process.view.applied() else { return Ok(false) };
            if last.index != committed {
                return Ok(false);
            }
            self.suite.digests.on_applied(&node.name, last, digest)?;
        }
        Ok(true)
    }

    fn compare_all(&self) -> Verdict {
        for node in self.nodes.iter().filter(|node| !node.is_held()) {
            let Some(process) = node.process() else { continue };
            let failed =
                |e: String| Violation::new(durability::PROPERTY, format!("{}: {e}", node.name));
            let mut held = Held::default();
            let rows =
                process.view.kv_scan(b"", None, LIST_MAX).map_err(|e| failed(e.to_string()))?;
            held.kv.extend(rows.value.into_iter().map(|(key, row)| (key, row.value)));
            let topics = process.view.topics(None, LIST_MAX).map_err(|e| failed(e.to_string()))?;
            let named = topics.value.into_iter().map(|t| (t.stamp.name, t.stamp.incarnation));
            held.topics.extend(named);
            durability::check(&node.name, &held, &self.suite.model)?;
            process.view.verify_digest().map_err(|e| failed(e.to_string()))?;
        }
        Ok(())
    }
}
