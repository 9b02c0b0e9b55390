//! What one direction of a link suffers for a while.
//!
//! # What is injected
//! - **Loss in one direction**: most of what is sent that way is lost, the answers are not.
//! - **A slow link**: every byte takes its time, and messages wait for those before them, so that a
//!   snapshot or a long append holds up the heartbeats behind it.
//! - **A dam**: nothing arrives until it breaks, and then everything at once, in order.
//! - **A bridge**: two groups hear each other through one node only.
//! - **Replay**: messages of long ago arrive once more, from before changes of leaders, terms and
//!   cuts, many at once.
//!
//! # What is never injected
//! A replayed message that crosses a restart of either side: a connection dies with a process, the
//! newer handshake replaces the older connection (R3), and what was buffered in it is dropped. A
//! second copy of a forwarded call: the transport delivers a frame of a connection at most once and
//! only forwards rely on it (retries of a call are the client's, under its session). A changed
//! message.
//!
//! # Why a cluster must survive it
//! Raft assumes of a network only that messages arrive sometimes: every message carries its term
//! and what it answers (round, `prev`, asked term), so an old one is recognised as old.

use super::World;
use crate::faults::Fault;
use crate::trace::{Fate, What};
use holdfast_consensus::Micros;
use holdfast_consensus::message::Message;
use std::collections::VecDeque;

/// Old messages that are kept of one direction of a link.
const KEPT: usize = 48;
/// One in so many is kept, so that they reach far back.
const KEEP_EVERY: u64 = 5;

/// One direction of a link.
#[derive(Clone, Default)]
pub(super) struct Way {
    /// Thousandths of messages that are lost, and until when.
    lossy: (u64, Micros),
    /// Time that a kilobyte takes, and until when.
    slow: (u64, Micros),
    /// Nothing arrives before then.
    dammed: Micros,
    /// It carries earlier messages until then.
    busy: Micros,
    sent: u64,
    old: VecDeque<Old>,
}

/// A message that may come again.
#[derive(Clone)]
struct Old {
    lives: [u64; 2],
    message: Message,
}

impl Way {
    /// Chance that a message is lost now, in thousandths, where `usual` holds anyway.
    pub(super) fn loss(&self, now: Micros, usual: u64) -> u64 {
        if self.lossy.1 > now { self.lossy.0.max(usual) } else { usual }
    }

    /// When a message of this length arrives that would on a free link arrive at `at`.
    pub(super) fn carries(&mut self, now: Micros, at: Micros, bytes: usize) -> Micros {
        let mut at = at;
        if self.slow.1 > now {
            at = at.max(self.busy) + bytes as u64 * self.slow.0 / 1024;
            self.busy = at;
        }
        if self.dammed > now { at.max(self.dammed) } else { at }
    }

    fn remember(&mut self, lives: [u64; 2], message: &Message) {
        self.sent += 1;
        let once = matches!(message, Message::Forward { .. });
        if once || !self.sent.is_multiple_of(KEEP_EVERY) {
            return;
        }
        if self.old.len() == KEPT {
            self.old.pop_front();
        }
        self.old.push_back(Old { lives, message: message.clone() });
    }

    /// The faults are over.
    pub(super) fn free(&mut self) {
        *self = Self::default();
    }
}

impl World {
    /// Keeps a message that may come again, in runs that replay.
    pub(super) fn remember(&mut self, from: usize, to: usize, message: &Message) {
        if !self.network.remembers {
            return;
        }
        let lives = [self.nodes[from].life, self.nodes[to].life];
        self.network.way(from, to).remember(lives, message);
    }

    fn a_way(&mut self, from: usize) -> Option<(usize, usize)> {
        let all = self.nodes.len();
        (all > 1).then(|| (from, (from + 1 + self.choices.pick("other", all - 1)) % all))
    }

    /// Most of what goes one way is lost.
    pub(super) fn lossy_link(&mut self, from: usize) {
        let Some((from, to)) = self.a_way(from) else { return };
        self.faults.count(Fault::LossyLink);
        let chance = self.choices.between("loss", 300, 950);
        let until = self.now + self.choices.wait("for", 900_000);
        self.network.way(from, to).lossy = (chance, until);
        self.note(None, || {
            What::fault(
                "lossy-link",
                format!("{chance} of 1000 lost from n{} to n{}", from + 1, to + 1),
            )
        });
    }

    /// A link that takes its time for every byte, both ways.
    pub(super) fn slow_link(&mut self, from: usize) {
        let Some((from, to)) = self.a_way(from) else { return };
        self.faults.count(Fault::SlowLink);
        let pace = self.choices.between("pace", 200, 30_000);
        let until = self.now + self.choices.wait("for", 900_000);
        self.network.way(from, to).slow = (pace, until);
        self.network.way(to, from).slow = (pace, until);
        self.note(None, || {
            let text = format!("{pace} us for a kilobyte between n{} and n{}", from + 1, to + 1);
            What::fault("slow-link", text)
        });
    }

    /// Nothing arrives one way for a while, and then everything at once.
    pub(super) fn dam(&mut self, from: usize) {
        let Some((from, to)) = self.a_way(from) else { return };
        self.faults.count(Fault::Dammed);
        let until = self.now + self.choices.wait("for", 500_000);
        self.network.way(from, to).dammed = until;
        self.note(None, || {
            What::fault("dam", format!("nothing arrives from n{} at n{}", from + 1, to + 1))
        });
    }

    /// Two groups that hear each other through `node` only: the links to cut.
    pub(super) fn bridge(&mut self, node: usize) -> Vec<(usize, usize)> {
        let group = self.choices.bits("sides");
        let side = |n: usize| (group >> n) & 1;
        let others: Vec<usize> = (0..self.nodes.len()).filter(|n| *n != node).collect();
        let pairs = others.iter().flat_map(|a| others.iter().map(move |b| (*a, *b)));
        let links: Vec<_> = pairs.filter(|(a, b)| side(*a) != side(*b)).collect();
        self.faults.count_if(!links.is_empty(), Fault::Bridge);
        links
    }

    /// Old messages of one way arrive once more.
    pub(super) fn replay(&mut self, from: usize) {
        let Some((from, to)) = self.a_way(from) else { return };
        let lives = [self.nodes[from].life, self.nodes[to].life];
        if !self.network.is_connected(from, to) {
            return;
        }
        let old = &self.network.way(from, to).old;
        let mut good: Vec<Message> =
            old.iter().filter(|old| old.lives == lives).map(|old| old.message.clone()).collect();
        let count = self.choices.between("count", 1, 12);
        for _ in 0..count {
            if good.is_empty() {
                return;
            }
            let message = good.swap_remove(self.choices.pick("which", good.len()));
            let at = self.now + self.choices.between("after-all", 1, 20_000);
            self.faults.count(Fault::Replayed);
            self.arrive(at, from, to, Fate::Again, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_consensus::{Term, Ticket};

    #[test]
    fn a_slow_way_carries_one_after_the_other_and_a_dam_breaks_at_once() {
        let mut way = Way { slow: (1_000, 50), ..Way::default() };
        assert_eq!(way.carries(0, 10, 2048), 2_010);
        assert_eq!(way.carries(1, 10, 1024), 3_010, "it waits for the one before");
        assert_eq!(way.carries(60, 70, 1024), 70, "the link is fast again");
        let mut way = Way { dammed: 500, ..Way::default() };
        assert_eq!((way.carries(1, 10, 9), way.carries(2, 20, 9)), (500, 500));
        assert_eq!(way.carries(500, 510, 9), 510);
        let way = Way { lossy: (700, 30), ..Way::default() };
        assert_eq!((way.loss(10, 50), way.loss(30, 50)), (700, 50));
    }

    #[test]
    fn a_forwarded_call_is_never_kept_and_old_ones_make_room() {
        let mut way = Way::default();
        let vote = Message::VoteReply { term: Term(1), pre: false, asked: Term(1), granted: true };
        let forward = Message::Forward {
            ticket: Ticket(1),
            term: Term(1),
            command: bytes::Bytes::new(),
            within: 1,
        };
        for _ in 0..1000 {
            way.remember([0, 0], &forward);
        }
        assert!(way.old.is_empty());
        for _ in 0..1000 {
            way.remember([0, 0], &vote);
        }
        assert_eq!(way.old.len(), KEPT);
    }
}
