//! The receiving side of replication (Raft 5.3, figure 2 "AppendEntries RPC").

use super::Core;
use super::outbox::Promise;
use super::role::Role;
use super::shared::Shared;
use crate::entries::Entries;
use crate::event::{Cut, Event};
use crate::fault::StopReason;
use crate::io::Effect;
use crate::message::{Conflict, Message};
use crate::traits::Contact;
use crate::types::{Body, Index, LogId, MemberId, Recovered, Term};

/// An append of the current term.
#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub(crate) round: u64,
    pub(crate) prev: LogId,
    pub(crate) commit: Index,
    pub(crate) own_term: bool,
    pub(crate) entries: Entries,
}

/// What an append turned out to be.
enum Verdict {
    /// The log holds everything up to here, as the leader does.
    Matched(LogId),
    /// The entry before it is another one, or missing.
    Conflict(Conflict),
    /// Nothing may be said about it now.
    Silent,
}

impl Core {
    /// Contact with the leader of the current term.
    pub(crate) fn hear_leader(&mut self, leader: MemberId) {
        if !matches!(self.role, Role::Follower(_)) {
            self.become_follower();
        }
        let shared = &mut self.shared;
        shared.set_leader(Some(leader));
        shared.heard = Some(shared.now);
        let deadline = shared.election_deadline();
        if let Role::Follower(follower) = &mut self.role {
            follower.deadline = deadline;
        }
    }

    /// An append of the current term from its leader.
    pub(crate) fn on_append(&mut self, from: MemberId, append: Append) {
        if !append.is_well_formed(self.shared.term()) {
            self.shared.drop_with("malformed-append");
            return;
        }
        self.hear_leader(from);
        let shared = &mut self.shared;
        shared.note_contact(from, append.commit, append.own_term);
        let verdict = match shared.take_append(&append) {
            Ok(verdict) => verdict,
            Err(reason) => return shared.stop(reason),
        };
        match verdict {
            Verdict::Silent => {}
            Verdict::Conflict(conflict) => {
                let (term, round, seq) = (shared.term(), append.round, shared.hard_seq());
                shared.promise(seq, Promise::Conflict { to: from, term, round, conflict });
            }
            Verdict::Matched(matched) => {
                // Only what this very message matched is known to be the leader's log (B14).
                shared.commit_through(append.commit.min(matched.index));
                shared.acknowledge(from, append.round, matched, append.entries.is_empty());
            }
        }
    }

    /// Answers the leader of an older term, so that it learns of ours and steps down.
    pub(crate) fn reject_append(&mut self, from: MemberId, round: u64, prev: LogId) {
        let shared = &mut self.shared;
        let conflict = shared.conflict_at(prev);
        let (term, low) = (shared.term(), shared.low);
        let result = Err(conflict);
        shared.urgent(from, Message::AppendReply { term, round, result, promise: 0, low });
    }
}

impl Append {
    fn is_well_formed(&self, term: Term) -> bool {
        let follows = self.entries.first().is_none_or(|first| {
            first.index == self.prev.index.next() && first.term >= self.prev.term
        });
        let lawful = self.entries.last().is_none_or(|last| last.term <= term);
        follows && lawful && self.prev.term <= term
    }

    /// The last entry of the message, or the one before it if it is empty.
    fn end(&self) -> LogId {
        self.entries.last().unwrap_or(self.prev)
    }
}

impl Shared {
    /// What the current leader itself said, since boot and since the last install (R35).
    fn note_contact(&mut self, leader: MemberId, commit: Index, own_term: bool) {
        let term = self.term();
        let old = self.contact.filter(|c| c.leader == leader && c.term == term);
        // Messages may overtake one another: what the leader said once stays said.
        self.contact = Some(Contact {
            leader,
            term,
            commit: commit.max(old.map_or(Index(0), |c| c.commit)),
            own_term: own_term || old.is_some_and(|c| c.own_term),
            at: self.now,
        });
    }

    fn conflict_at(&self, prev: LogId) -> Conflict {
        let term = self.log.term_at(prev.index);
        let (last, first_of_term) = if term.is_some() {
            (self.log.last().index, self.log.first_of_term_at(prev.index))
        } else {
            // Behind the end, or (R15) behind what is known before a hole of unknown identity.
            let last = self.log.known_at_or_below(prev.index).index;
            (last, last.next())
        };
        Conflict { prev, last, term, first_of_term }
    }

    /// Compares an append with the log and takes what is new. The conflict is found before
    /// anything is cut, and only a real conflict cuts (B16, B17).
    fn take_append(&mut self, append: &Append) -> Result<Verdict, StopReason> {
        let settled = self.commit();
        if append.prev.index < settled {
            // A prefix at or below the commit index is committed, so it matches by leader
            // completeness, compacted or not: skip it (B21). A known contradiction is evidence.
            self.check_settled(append.prev)?;
            let below = append.entries.iter().take_while(|e| e.id.index <= settled);
            for entry in below {
                self.check_settled(entry.id)?;
            }
        } else if self.log.term_at(append.prev.index) != Some(append.prev.term) {
            if append.prev.index == settled {
                return Err(self.diverged(append.prev));
            }
            if !append.entries.is_empty() && (self.disk.poisoned() || self.starved) {
                // What went before it was not taken, and an answer would only bring it again at
                // once. Heartbeats find out where to go on.
                self.drop_with("append-while-nothing-is-taken");
                return Ok(Verdict::Silent);
            }
            return Ok(Verdict::Conflict(self.conflict_at(append.prev)));
        }
        let rest = append.entries.starting_at(settled.next());
        let news = rest
            .iter()
            .find(|e| !self.log.may_hold(e.id))
            .map(|e| self.log.known_at_or_below(e.id.index.prev()).index.next());
        // What lies between, of unknown identity and not confirmed by anything behind it, is cut
        // too: no log may end with it, and this very message replaces it.
        let Some(from) = news else { return Ok(Verdict::Matched(append.end())) };
        if self.disk.poisoned() {
            // Nothing can be written until the log is reopened, and memory is no place to wait.
            self.drop_with("append-while-poisoned");
            return Ok(Verdict::Silent);
        }
        let fresh = rest.starting_at(from);
        if self.starved && fresh.iter().any(|e| matches!(e.body, Body::Command(_))) {
            // R45: what finds no space would stand before the next vote.
            self.drop_with("append-without-space");
            return Ok(Verdict::Silent);
        }
        if from <= self.log.last().index {
            self.cut(from);
        }
        self.append(&fresh);
        Ok(Verdict::Matched(append.end()))
    }

    /// A committed entry may not be contradicted.
    fn check_settled(&self, id: LogId) -> Result<(), StopReason> {
        match self.log.term_at(id.index) {
            Some(term) if term != id.term => Err(self.diverged(id)),
            _ => Ok(()),
        }
    }

    /// R18: a truncation at or below the commit index is never carried out.
    fn diverged(&self, theirs: LogId) -> StopReason {
        let ours = self.log.term_at(theirs.index).map_or_else(|| "?".into(), |t| t.to_string());
        let detail = format!(
            "the leader of {} sent entry {theirs}, but {ours} is committed here (commit {})",
            self.term(),
            self.commit(),
        );
        StopReason::Diverged { at: theirs.index, detail }
    }

    /// Cuts a conflicting suffix.
    fn cut(&mut self, from: Index) {
        self.give_up_from(from, Cut::Replaced);
        self.disk.stage_truncate(self.log.last());
    }

    /// Cuts a suffix that is not known to be committed, in memory alone.
    pub(crate) fn give_up_from(&mut self, from: Index, why: Cut) {
        assert!(from > self.commit(), "a committed entry is never cut: {from}");
        let last = self.log.last().index;
        let (old, _) = self.log.membership();
        self.log.truncate(from);
        self.fx.push(Effect::Lost { from });
        self.observe(Event::Truncated { from, last, why });
        let (at, _) = self.log.membership();
        if at != old {
            self.observe(Event::Membership { at });
        }
    }

    /// Holds in memory again what a conflict had cut there and what is still on disk, behind all
    /// that is left in memory. What the leader of that conflict matched beyond is not there any
    /// more, so nobody is told so.
    pub(crate) fn take_back(&mut self, disk: &Recovered) {
        self.outbox.cap(self.log.last());
        let (old, _) = self.log.membership();
        self.log.take_back(disk);
        self.disk.take_back(self.log.last());
        let (at, _) = self.log.membership();
        if at != old {
            self.observe(Event::Membership { at });
        }
    }

    /// Appends to memory and asks for durability.
    pub(crate) fn append(&mut self, entries: &Entries) {
        let (old, _) = self.log.membership();
        self.log.append(entries);
        self.disk.stage_append(entries);
        let (at, _) = self.log.membership();
        if at != old {
            self.observe(Event::Membership { at });
        }
    }

    /// Acknowledges a match as far as it is durable, now or when it is. A heartbeat is answered at
    /// once with what is durable (a slow disk must not look like a dead member), and again when
    /// the rest is.
    fn acknowledge(&mut self, to: MemberId, round: u64, matched: LogId, heartbeat: bool) {
        let term = self.term();
        let ack = Promise::Ack { to, term, round, matched };
        let covering = self.disk.covering(matched.index);
        if heartbeat && covering > self.disk.done() {
            self.promise(self.hard_seq(), ack.clone());
        }
        self.promise(covering.max(self.hard_seq()), ack);
    }
}
