//! Writes that complete, fail, and are made again after the log was reopened.

use super::Core;
use super::disk::Rewrite;
use super::role::Role;
use super::shared::Shared;
use crate::damage::Hole;
use crate::event::{Cut, Event, StepDown};
use crate::fault::{NEVER_OLDER, NO_REPLACEMENT, StopReason};
use crate::io::Effect;
use crate::types::{HardState, LogId, Recovered, Seq};

impl Core {
    /// Every write up to `through` is durable: promises that waited for one of them may go.
    pub(crate) fn on_persisted(&mut self, through: Seq) {
        let shared = &mut self.shared;
        if shared.disk.poisoned() {
            // Nothing of a poisoned log counts (R12); reopening says what is durable.
            return shared.drop_with("completion-of-a-poisoned-log");
        }
        let old = shared.durable();
        shared.disk.completed(through, shared.now);
        let durable = shared.durable();
        if durable != old {
            shared.observe(Event::Durable { through: durable });
        }
        shared.release();
        self.on_vote_durable();
    }

    /// A write failed. A leader may not go on: followers may already hold what its own log lost,
    /// and its (term, index) must never name another entry (B23). A candidate's vote will not
    /// become durable.
    pub(crate) fn on_persist_failed(&mut self, at: Seq) {
        self.shared.disk.failed(at);
        self.shared.repair.forget_write();
        self.give_up_role(StepDown::WriteFailed);
    }

    fn give_up_role(&mut self, why: StepDown) {
        match self.role {
            Role::Leader(_) => self.step_down(why),
            Role::Candidate(_) | Role::PreCandidate(_) => self.become_follower(),
            Role::Follower(_) => {}
        }
    }

    /// R45: there was no space. Entries that nobody was told of as durable, and that are not known
    /// to be committed, would stand before every vote that is to be written behind them; so they
    /// are given up, as a process that is killed gives them up, and what remains is written behind
    /// the hard state. They may be committed by others for all that, so a leader steps down, and
    /// its calls wait for what becomes of their places (B23). If they were to take the place of
    /// others which are still on disk, memory holds those again: a truncation counts with its
    /// replacement or not at all, or the log would end before what was acknowledged (R3).
    pub(crate) fn on_no_space(&mut self, disk: &Recovered) {
        if self.shared.disk.poisoned() {
            return self.shared.drop_with("no-space-while-poisoned");
        }
        self.shared.disk.failed(self.shared.disk.done().next());
        self.shared.repair.forget_write();
        self.give_up_role(StepDown::NoSpace);
        let shared = &mut self.shared;
        shared.starved = true;
        let kept = shared.disk.durable().index.max(shared.commit());
        if shared.log.last().index > kept && shared.log.id_at(kept).is_some() {
            shared.give_up_from(kept.next(), Cut::NoSpace);
        }
        let cut = disk.last.index > kept && shared.disk.reset().is_none();
        if cut && shared.log.last() == shared.disk.durable() {
            shared.take_back(disk);
        }
        let (log, now) = (&shared.log, shared.now);
        let end = log.last();
        let tail = |from| log.cached(from, end.index, usize::MAX);
        let (hard, writes) = shared.disk.starved(disk.last, end, shared.hard(), now, tail);
        shared.hand_out(writes);
        shared.rebind(hard);
        shared.release();
    }

    /// The log is open again: what memory holds above its durable end is written once more, under
    /// new numbers. The log may not end before the watermark, which others were told of.
    pub(crate) fn on_reopened(&mut self, last: LogId, hard: HardState, holes: Vec<Hole>) {
        let shared = &mut self.shared;
        if !shared.disk.poisoned() {
            return shared.drop_with("reopened-without-a-fault");
        }
        let durable = shared.disk.durable();
        let forgot = last.index < durable.index || hard.term < shared.disk.hard().term;
        if forgot {
            return shared.stop(StopReason::NeedsOperator(format!(
                "the reopened log ends at {last} in {}, but {durable} in {} was durable and others \
                 rely on it; put the log back as it was, {NEVER_OLDER}. {NO_REPLACEMENT}",
                hard.term,
                shared.disk.hard().term,
            )));
        }
        shared.log.set_holes(holes, durable.index);
        let other = last.index == durable.index && last.term != durable.term;
        if other || hard.term > shared.term() {
            let detail = format!(
                "the reopened log ends at {last} in {}; memory knows {durable} and {}",
                hard.term,
                shared.term(),
            );
            return shared.stop(StopReason::Diverged { at: last.index, detail });
        }
        let (log, now) = (&shared.log, shared.now);
        let end = log.last();
        let tail = |from| log.cached(from, end.index, usize::MAX);
        let writes = shared.disk.reopened(last, end, shared.hard(), now, tail);
        shared.hand_out(writes);
        let newest = Seq(shared.disk.next().0 - 1);
        shared.rebind(newest);
    }
}

impl Shared {
    fn hand_out(&mut self, writes: Vec<Rewrite>) {
        for write in writes {
            self.fx.push(match write {
                Rewrite::Persist(persist) => Effect::Persist(persist),
                Rewrite::Reset { seq, meta, last } => Effect::Reset { seq, meta, last },
            });
        }
    }
}
