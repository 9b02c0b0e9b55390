//! The event queue: virtual time jumps from event to event; equal times keep their order.

use holdfast_consensus::Micros;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

struct Slot<E> {
    at: Micros,
    order: u64,
    event: E,
}

impl<E> PartialEq for Slot<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<E> Eq for Slot<E> {}

impl<E> PartialOrd for Slot<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Slot<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// Events in the order of their times.
pub struct Queue<E> {
    heap: BinaryHeap<Slot<E>>,
    order: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), order: 0 }
    }
}

impl<E> Queue<E> {
    /// Adds an event.
    pub fn push(&mut self, at: Micros, event: E) {
        self.order += 1;
        self.heap.push(Slot { at, order: self.order, event });
    }

    /// The time of the next event.
    #[must_use]
    pub fn next_at(&self) -> Option<Micros> {
        self.heap.peek().map(|slot| slot.at)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(Micros, E)> {
        self.heap.pop().map(|slot| (slot.at, slot.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_by_age() {
        let mut queue = Queue::default();
        for (at, event) in [(5, "c"), (1, "a"), (5, "d"), (2, "b")] {
            queue.push(at, event);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(_, e)| e).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
    }
}
