//! A peer as the leader sees it, and what to send it next (Raft 5.3; windows and states after
//! dissertation 10.2).

use super::shared::Shared;
use crate::entries::Entries;
use crate::io::Effect;
use crate::message::{Conflict, Message, SendLane};
use crate::types::{FetchId, Index, LogId, MemberId, Micros, TransferId};
use std::collections::VecDeque;

/// How a peer is fed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Feed {
    /// Where its log agrees is unknown: one message at a time. `sent` is false while that message
    /// has still to leave; heartbeats repeat the question without entries.
    Probe { sent: bool },
    /// Its log agrees: appends are pipelined within the windows.
    Replicate,
    /// It needs entries that were compacted: a snapshot is on its way.
    Snapshot { transfer: TransferId, last: LogId },
}

/// One peer.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// Highest entry known durable there and equal to ours. Invariant: never falls, at most our
    /// last index.
    pub(crate) matched: LogId,
    /// Next index to send. Invariant: `matched.index < next <= last.index + 1`.
    pub(crate) next: Index,
    pub(crate) feed: Feed,
    /// Appends in flight: last index and weight. Empty unless replicating.
    flight: VecDeque<(Index, usize)>,
    /// Invariant: the sum of the weights in `flight`.
    flight_bytes: usize,
    /// When `matched` last moved, or the flight began.
    moved_at: Micros,
    /// When it last answered this leader.
    pub(crate) answered_at: Option<Micros>,
    /// Highest round it answered.
    pub(crate) answered_round: u64,
    /// Rejections of earlier rounds are stale: the search went on since (B19).
    floor: u64,
    /// Highest commit index that it could learn from what was sent.
    told: Index,
    /// The one outstanding read of older entries.
    fetch: Option<FetchId>,
    /// After a failed fetch or transfer: not again before this.
    retry_at: Micros,
    /// It can take no more segments (R45).
    pub(crate) low: bool,
}

/// What sending needs besides the peer.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    pub(crate) shared: &'a mut Shared,
    /// The last round used; every append takes a new one.
    pub(crate) round: &'a mut u64,
    /// The leader has committed an entry of its own term.
    pub(crate) own_term: bool,
}

impl Progress {
    /// A peer of a new leader: probed from the leader's end (Raft figure 2).
    pub(crate) fn new(next: Index) -> Self {
        Self {
            matched: LogId::default(),
            next,
            feed: Feed::Probe { sent: false },
            flight: VecDeque::new(),
            flight_bytes: 0,
            moved_at: 0,
            answered_at: None,
            answered_round: 0,
            floor: 0,
            told: Index(0),
            fetch: None,
            retry_at: 0,
            low: false,
        }
    }

    pub(crate) fn flight(&self) -> (usize, usize) {
        (self.flight.len(), self.flight_bytes)
    }

    /// What decides which answers still count and what need not be sent again, for the fingerprint.
    pub(crate) const fn search_state(&self) -> (u64, Index, Option<FetchId>, bool) {
        (self.floor, self.told, self.fetch, self.low)
    }

    /// What contradicts this peer's own invariants, given the leader's last entry.
    pub(crate) fn violation(&self, last: LogId) -> Option<String> {
        let bytes: usize = self.flight.iter().map(|(_, weight)| weight).sum();
        let lawful = self.matched.index <= last.index
            && self.matched.index < self.next
            && self.next <= last.index.next()
            && bytes == self.flight_bytes
            && (self.flight.is_empty() || self.feed == Feed::Replicate);
        (!lawful).then(|| format!("last {last}, {self:?}"))
    }

    /// Sends whatever may go now.
    pub(crate) fn pump(&mut self, to: MemberId, cx: &mut Sending<'_>) {
        loop {
            let go_on = match self.feed {
                Feed::Snapshot { .. } | Feed::Probe { sent: true } => false,
                Feed::Probe { sent: false } => {
                    self.probe(to, cx);
                    false
                }
                Feed::Replicate => self.replicate(to, cx),
            };
            if !go_on {
                break;
            }
        }
        // A commit index that the peer could use is news: tell it at once if nothing else went.
        // While probing, only questions about `next` may leave, because their answer ends it.
        let probing = matches!(self.feed, Feed::Probe { .. });
        if !probing && self.told < cx.shared.commit().min(self.matched.index) {
            let prev = self.matched;
            self.send(to, prev, Entries::empty(), cx);
        }
    }

    fn probe(&mut self, to: MemberId, cx: &mut Sending<'_>) {
        let log = &cx.shared.log;
        let Some(prev) = log.id_at(self.next.prev()) else { return self.ship(to, cx) };
        let entries = if self.next >= log.cached_from() {
            log.cached(self.next, log.last().index, cx.shared.config.append_bytes)
        } else {
            Entries::empty()
        };
        self.feed = Feed::Probe { sent: true };
        self.send(to, prev, entries, cx);
    }

    /// Sends one append; false if there is nothing to send or no room.
    fn replicate(&mut self, to: MemberId, cx: &mut Sending<'_>) -> bool {
        let config = &cx.shared.config;
        let log = &cx.shared.log;
        let room = config.window_bytes.saturating_sub(self.flight_bytes);
        let full = self.flight.len() >= config.window_messages || room == 0;
        if self.next > log.last().index || full {
            return false;
        }
        let Some(prev) = log.id_at(self.next.prev()) else {
            self.ship(to, cx);
            return false;
        };
        if self.next < log.cached_from() {
            self.ask_fetch(to, log.cached_from().prev(), cx.shared);
            return false;
        }
        let entries = log.cached(self.next, log.last().index, config.append_bytes.min(room));
        self.send_entries(to, prev, entries, cx);
        true
    }

    fn send_entries(&mut self, to: MemberId, prev: LogId, entries: Entries, cx: &mut Sending<'_>) {
        let Some(last) = entries.last() else { return };
        if self.flight.is_empty() {
            self.moved_at = cx.shared.now;
        }
        let weight = entries.weight();
        self.flight.push_back((last.index, weight));
        self.flight_bytes += weight;
        self.next = last.index.next();
        self.send(to, prev, entries, cx);
    }

    /// Every append leaves here: the commit index is not capped by what the peer holds (R35).
    fn send(&mut self, to: MemberId, prev: LogId, entries: Entries, cx: &mut Sending<'_>) {
        *cx.round += 1;
        let lane = if entries.is_empty() { SendLane::Urgent } else { SendLane::Bulk };
        let end = entries.last().unwrap_or(prev).index;
        let commit = cx.shared.commit();
        self.told = self.told.max(commit.min(end));
        let message = Message::Append {
            term: cx.shared.term(),
            round: *cx.round,
            prev,
            commit,
            commit_own_term: cx.own_term,
            entries,
        };
        cx.shared.fx.push(Effect::Send { to, message, lane });
    }

    /// A heartbeat. While probing, and when a flight makes no headway, it asks about the entry
    /// before `next`, so that lost messages are noticed; else about what surely matches, because
    /// it may overtake entries on their slower lane.
    pub(crate) fn heartbeat(&mut self, to: MemberId, cx: &mut Sending<'_>) {
        let now = cx.shared.now;
        let stalled = !self.flight.is_empty()
            && now.saturating_sub(self.moved_at) >= cx.shared.config.election_min;
        let asks = match self.feed {
            Feed::Probe { .. } => true,
            Feed::Replicate => stalled,
            Feed::Snapshot { .. } => false,
        };
        if stalled {
            // Ask once per election timeout: entries may merely be slow to become durable there.
            self.moved_at = now;
        }
        let doubtful = if asks { cx.shared.log.id_at(self.next.prev()) } else { None };
        if stalled && doubtful.is_none() {
            // What is in flight may be lost, and its end was compacted meanwhile: start over, so
            // that a snapshot is offered instead of waiting for ever behind a full window.
            self.search(*cx.round);
        }
        let prev = doubtful.unwrap_or(self.matched);
        self.send(to, prev, Entries::empty(), cx);
    }

    /// Reads older entries from the log, one request at a time.
    fn ask_fetch(&mut self, peer: MemberId, to: Index, shared: &mut Shared) {
        if self.fetch.is_some() || shared.now < self.retry_at {
            return;
        }
        shared.fetches = shared.fetches.next();
        let fetch = shared.fetches;
        self.fetch = Some(fetch);
        let max_bytes = shared.config.append_bytes;
        shared.fx.push(Effect::Fetch { fetch, peer, from: self.next, to, max_bytes });
    }

    /// Takes a fetch's result if it is this peer's; true if it was.
    pub(crate) fn on_fetched(
        &mut self,
        to: MemberId,
        fetch: FetchId,
        entries: Option<&Entries>,
        cx: &mut Sending<'_>,
    ) -> bool {
        if self.fetch != Some(fetch) {
            return false;
        }
        self.fetch = None;
        let Some(entries) = entries else {
            self.retry_at = cx.shared.now + cx.shared.config.heartbeat;
            return true;
        };
        let log = &cx.shared.log;
        // What came back must be exactly what this log says stands there.
        let ours = entries.iter().all(|e| log.term_at(e.id.index) == Some(e.id.term));
        let wanted = entries.first().is_some_and(|first| first.index == self.next);
        let prev = log.id_at(self.next.prev());
        match (self.feed, prev) {
            (Feed::Replicate, Some(prev)) if ours && wanted => {
                self.send_entries(to, prev, entries.clone(), cx);
            }
            _ => cx.shared.mark("fetched-too-late"),
        }
        true
    }

    /// Offers the newest snapshot, even if the leader's log is entirely compacted (B58).
    fn ship(&mut self, to: MemberId, cx: &mut Sending<'_>) {
        let shared = &mut *cx.shared;
        if shared.now < self.retry_at {
            return;
        }
        let base = shared.log.base().index;
        let Some(meta) = shared.log.snapshot().filter(|m| m.last.index >= base).cloned() else {
            self.retry_at = shared.now + shared.config.heartbeat;
            shared.mark("no-snapshot-to-offer");
            return;
        };
        shared.transfers = shared.transfers.next();
        let transfer = shared.transfers;
        self.forget_flight();
        self.feed = Feed::Snapshot { transfer, last: meta.last };
        shared.fx.push(Effect::Ship { transfer, to, term: shared.term(), meta });
    }

    /// The peer has damaged entries that this log has compacted (R15): only a snapshot helps.
    pub(crate) fn offer_below(&mut self, to: MemberId, cx: &mut Sending<'_>) {
        if !matches!(self.feed, Feed::Snapshot { .. }) {
            self.ship(to, cx);
        }
    }

    /// A transfer ended; true if it was this peer's.
    pub(crate) fn on_transfer_ended(
        &mut self,
        transfer: TransferId,
        ok: bool,
        round: u64,
        shared: &Shared,
    ) -> bool {
        let Feed::Snapshot { transfer: mine, last } = self.feed else { return false };
        if mine != transfer {
            return false;
        }
        if ok {
            self.next = last.index.max(self.matched.index).next();
        } else {
            self.retry_at = shared.now + shared.config.heartbeat;
        }
        self.search(round);
        true
    }

    /// Looks for agreement again from `next`; answers to rounds up to `round` are stale.
    fn search(&mut self, round: u64) {
        self.forget_flight();
        self.fetch = None;
        self.floor = round + 1;
        self.feed = Feed::Probe { sent: false };
    }

    fn forget_flight(&mut self) {
        self.flight.clear();
        self.flight_bytes = 0;
    }

    /// Any answer of this term.
    pub(crate) fn on_answer(&mut self, round: u64, low: bool, now: Micros) {
        self.answered_at = Some(now);
        self.answered_round = self.answered_round.max(round);
        self.low = low;
    }

    /// The peer durably holds `id`, which is an entry of our log. Returns a transfer to stop.
    pub(crate) fn on_match(
        &mut self,
        id: LogId,
        round: u64,
        shared: &Shared,
    ) -> Option<TransferId> {
        let mut stop = None;
        if id.index > self.matched.index {
            self.matched = id;
            self.moved_at = shared.now;
            while self.flight.front().is_some_and(|(last, _)| *last <= id.index) {
                self.flight_bytes -= self.flight.pop_front().map_or(0, |(_, weight)| weight);
            }
            self.next = self.next.max(id.index.next());
        }
        match self.feed {
            // What the round asked did match, durable there or not: entries may flow.
            Feed::Probe { .. } if round >= self.floor => {
                self.feed = Feed::Replicate;
                self.moved_at = shared.now;
            }
            Feed::Snapshot { transfer, .. } if id.index >= shared.log.base().index => {
                self.next = id.index.next();
                self.feed = Feed::Replicate;
                stop = Some(transfer);
            }
            _ => {}
        }
        stop
    }

    /// A request did not match. Stale rejections do nothing (B19); others move `next` back by
    /// whole terms, so that agreement is found in as many rounds as there are terms (B29).
    pub(crate) fn on_conflict(
        &mut self,
        conflict: &Conflict,
        asked: u64,
        round: u64,
        cx: &mut Shared,
    ) {
        let stale = asked < self.floor || conflict.prev.index <= self.matched.index;
        if stale || matches!(self.feed, Feed::Snapshot { .. }) {
            cx.mark("stale-rejection");
            return;
        }
        let highest = conflict.prev.index.0;
        let lowest = self.matched.index.next().0;
        self.next = Index(back_off(conflict, cx).0.min(highest).max(lowest));
        self.search(round);
    }
}

/// Where to look next after a conflict: behind the end of a log that is too short; else behind our
/// own entries of the follower's term, or before all of its entries of that term.
fn back_off(conflict: &Conflict, shared: &Shared) -> Index {
    match conflict.term {
        None => conflict.last.next(),
        Some(term) => shared
            .log
            .last_of_term(term)
            .filter(|last| *last < conflict.prev.index)
            .map_or(conflict.first_of_term, Index::next),
    }
}
