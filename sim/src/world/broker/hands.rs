//! What a program does to the brokers of its world: words that come late, hands that are slow, and
//! work at a moment of its choice.

use crate::broker::ledger::Place;
use crate::broker::records::Record;
use crate::broker::wants::{Note, Task};
use crate::check::Verdict;
use crate::choices::Actor;
use crate::world::Event;
use crate::world::script::Script;
use holdfast_consensus::Micros;

impl Script {
    /// Notes of brokers from one node to another take so much longer from now on.
    pub fn slow_notes(&mut self, from: usize, to: usize, by: Micros) {
        let by = self.amount(Actor::Link(from, to), "slow-notes", "by", by);
        if let Some(brokers) = &mut self.world.brokers {
            brokers.slow.insert((from, to), by);
        }
    }

    /// A node tells the broker of another that a topic of this name was deleted; it arrives so much
    /// later.
    pub fn tell_purge(&mut self, from: usize, to: usize, topic: &str, after: Micros) {
        if !self.acts(Actor::Link(from, to), "purge") {
            return;
        }
        let life = self.world.nodes[to].life;
        let note = Note::Purge(topic.to_owned());
        let event = Event::BrokerNote { nodes: [from, to], life, note };
        self.world.queue.push(self.world.now + after, event);
    }

    /// The owner of a partition begins a write, which [`Script::end_write`] ends.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn begin_write(&mut self, node: usize, place: &Place) -> Verdict {
        if !self.acts(Actor::Node(node), "begin-write") {
            return Ok(());
        }
        self.world.with_broker(node, |broker, sight| broker.begin_write(place, sight)).map(|_| ())
    }

    /// The write ends with so many records, all of them acknowledged.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn end_write(&mut self, node: usize, records: u64) -> Verdict {
        let records = self.amount(Actor::Node(node), "end-write", "records", records);
        let time = self.world.now;
        let Some(brokers) = &mut self.world.brokers else { return Ok(()) };
        let first = brokers.next_record + 1;
        brokers.next_record += records;
        let all: Vec<Record> = (first..first + records).map(|id| Record { id, time }).collect();
        self.world.with_broker(node, |broker, _| broker.end_write(&all)).map(|_| ())
    }

    /// From now on each act of the broker of a node comes about so long after it was decided, one
    /// after the other; its next process is quick again.
    pub fn slow_hands(&mut self, node: usize, by: Micros) {
        let by = self.amount(Actor::Node(node), "slow-hands", "by", by);
        if let Some(broker) = self.world.brokers.as_mut().and_then(|b| b.all[node].as_mut()) {
            broker.slow_hands(by);
        }
    }

    /// The sweep of a node has its turn now, whatever else waits.
    ///
    /// # Errors
    /// The property that did not hold.
    pub fn sweep_now(&mut self, node: usize) -> Verdict {
        if !self.acts(Actor::Node(node), "sweep") {
            return Ok(());
        }
        self.world.with_broker(node, |broker, sight| broker.pass(Task::Sweep, sight)).map(|_| ())
    }
}
