//! Connections: hellos, admission, and the forming of the cluster (R7), as the real transport does
//! it.

use super::{Event, World};
use crate::check::{Verdict, Violation};
use crate::choices::{Actor, Stream};
use crate::node::{self, State};
use crate::trace::What;
use holdfast_consensus::ClusterId;
use holdfast_consensus::bootstrap::Step;
use holdfast_consensus::handshake::{Hello, admit};

impl World {
    /// Plans the first attempts of a fresh process to reach its peers.
    pub(super) fn dial_all(&mut self, node: usize) {
        for peer in 0..self.nodes.len() {
            if peer != node && self.nodes[peer].is_running() {
                self.dial(node, peer, 5_000);
            }
        }
    }

    fn dial(&mut self, a: usize, b: usize, within: u64) {
        let lives = [self.nodes[a].life, self.nodes[b].life];
        self.choices.enter(Stream::Dial, Actor::Link(a, b), "");
        let at = self.now + self.choices.between("after", within / 4, within);
        self.choices.leave();
        self.queue.push(at, Event::Connect { nodes: [a, b], lives });
    }

    pub(super) fn connect(&mut self, [a, b]: [usize; 2], lives: [u64; 2]) -> Verdict {
        let current = self.lives(a, lives[0]) && self.lives(b, lives[1]);
        if !current || self.network.is_connected(a, b) {
            return Ok(());
        }
        let blocked = self.network.is_cut(a, b) || self.network.is_cut(b, a);
        let paused = self.nodes[a].paused || self.nodes[b].paused;
        let hellos = (self.nodes[a].hello(), self.nodes[b].hello());
        let (false, false, (Some(of_a), Some(of_b))) = (blocked, paused, hellos) else {
            self.dial(a, b, 200_000);
            return Ok(());
        };
        if admit(&of_a, &of_b).is_ok() && admit(&of_b, &of_a).is_ok() {
            self.network.set_connected(a, b, true);
            self.note(Some(a), || What::life("connects", format!("connected to {}", of_b.name)));
            return Ok(());
        }
        self.hear_hello(a, &of_b)?;
        self.hear_hello(b, &of_a)?;
        self.dial(a, b, 100_000);
        Ok(())
    }

    fn hear_hello(&mut self, node: usize, peer: &Hello) -> Verdict {
        let step = match &mut self.nodes[node].state {
            State::Forming(waiting) => waiting.1.hello(peer),
            State::Down | State::Up(_) => return Ok(()),
        };
        self.form(node, step)
    }

    /// A member that waits does what its forming says.
    pub(super) fn form(&mut self, node: usize, step: Step) -> Verdict {
        if matches!(step, Step::Wait { .. } | Step::Stranger(_)) {
            return Ok(());
        }
        self.choices.enter(Stream::Boot, Actor::Node(node), "forming");
        let verdict = self.formed(node, step);
        self.choices.leave();
        verdict
    }

    fn formed(&mut self, node: usize, step: Step) -> Verdict {
        let name = self.nodes[node].name.clone();
        let state = std::mem::replace(&mut self.nodes[node].state, State::Down);
        let State::Forming(waiting) = state else {
            self.nodes[node].state = state;
            return Ok(());
        };
        let (mut home, _) = *waiting;
        let formed = match step {
            Step::Wait { .. } | Step::Stranger(_) => Ok(()),
            Step::Refuse(why) => return Err(Violation::new("forming", format!("{name}: {why}"))),
            Step::Found { membership } => {
                let high = u128::from(self.choices.bits("cluster"));
                let low = u128::from(self.choices.bits("cluster"));
                let cluster = ClusterId((high << 64) | low | 1);
                self.note(Some(node), || What::life("founds", format!("founds {cluster}")));
                home.found(cluster, 1, membership)
            }
            Step::Adopt { cluster, epoch } => {
                self.note(Some(node), || What::life("adopts", format!("adopts {cluster}")));
                home.adopt(cluster, epoch)
            }
        };
        let seed = self.choices.bits("seed");
        let started = formed
            .map_err(|e| e.to_string())
            .and_then(|()| node::run(&self.nodes[node], home, &self.setup, seed, self.now));
        match started {
            Ok(process) => self.up(node, process),
            Err(why) => self.start_failed(node, &why),
        }
    }
}
