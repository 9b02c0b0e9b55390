//! One step of a replica, and what it wants done.

use super::{Event, World};
use crate::check::{Verdict, Violation, durable_promises};
use crate::faults::Fault;
use crate::node::{TheLog, TheMachine};
use crate::trace::What;
use holdfast_consensus::event::{Cut, Event as Seen, RoleKind};
use holdfast_consensus::invariant::{self, Before};
use holdfast_consensus::io::Persist;
use holdfast_consensus::job::{Done, Job, LogJob, LogResult, ReplicaEffect, ReplicaInput};
use holdfast_consensus::message::Message;
use holdfast_consensus::traits::LogStore;
use holdfast_consensus::{LogId, MemberId};

type Effect = ReplicaEffect<TheLog, TheMachine>;

impl World {
    /// Hands an input to a replica and carries out what follows, effect by effect; a planned crash
    /// strikes between two of them.
    pub(super) fn step(&mut self, node: usize, input: ReplicaInput<TheLog, TheMachine>) -> Verdict {
        let mut out = Vec::new();
        let shown = self.nodes[node].clock.show(self.now);
        let Some(process) = self.nodes[node].process_mut() else { return Ok(()) };
        let before = Before::of(process.replica.core());
        let answered = Self::answers(&input);
        process.replica.step(shown, input, &mut out);
        let core = process.replica.core();
        let broken =
            invariant::basic(core).into_iter().chain(invariant::delta(&before, core)).next();
        if let Some(broken) = broken {
            let name = &self.nodes[node].name;
            return Err(Violation::new("core-invariant", format!("{name}: {broken}")));
        }
        let (term, commit) = (core.hard().term, core.commit());
        self.note_settled(node);
        for effect in &out {
            if let Effect::Observe(event) = effect {
                self.observe(node, event)?;
            }
        }
        // After the events: a cut is judged by what was committed before it (an install cuts what
        // its snapshot replaces and commits more in the same step).
        let n = &mut self.nodes[node];
        n.marks.on_term(&n.name, term)?;
        n.marks.on_commit(&n.name, LogId { term, index: commit })?;
        self.stepped(node, answered)?;
        for effect in out {
            if let Effect::Observe(_) = effect {
                continue;
            }
            if self.struck(node) {
                return Ok(());
            }
            self.carry_out(node, effect)?;
        }
        self.plan_wake(node);
        Ok(())
    }

    /// Counts an effect boundary down and crashes the node if its plan says so.
    fn struck(&mut self, node: usize) -> bool {
        let Some((left, power)) = self.nodes[node].effect_plan else { return false };
        if left > 0 {
            self.nodes[node].effect_plan = Some((left - 1, power));
            return false;
        }
        self.faults.count(Fault::EffectBoundary);
        self.crash(node, power);
        true
    }

    pub(super) fn plan_wake(&mut self, node: usize) {
        let now = self.now;
        let n = &mut self.nodes[node];
        let Some(deadline) = n.process().and_then(|p| p.replica.next_deadline()) else {
            n.wake_at = None;
            return;
        };
        let at = n.clock.when(deadline, now);
        n.wake_at = Some(at);
        if n.wake_queued.is_none_or(|queued| queued > at) {
            n.wake_queued = Some(at);
            let life = n.life;
            self.queue.push(at, Event::Wake { node, life, at });
        }
    }

    fn carry_out(&mut self, node: usize, effect: Effect) -> Verdict {
        match effect {
            Effect::Observe(_) => Ok(()),
            Effect::Send { to, message, lane } => {
                self.promise(node, to, &message)?;
                self.send(node, to, message, lane)
            }
            Effect::Run(job) => self.run_job(node, job),
            Effect::Answer { ticket, outcome } => self.answered(node, ticket, outcome),
            Effect::Stop(why) => self.stopped(node, &why),
        }
    }

    /// What a message promises must survive every crash of its sender.
    fn promise(&mut self, node: usize, to: MemberId, message: &Message) -> Verdict {
        let n = &mut self.nodes[node];
        durable_promises::check(&n.name, n.member, to, message, &n.ground)?;
        match message {
            Message::Vote { pre: true, .. } | Message::VoteReply { pre: true, .. } => Ok(()),
            Message::Vote { term, .. } => {
                n.promises.on_term(*term);
                self.suite.elections.on_vote(n.member, *term, n.member)
            }
            // A refusal promises nothing: who forgets the term it showed has granted nothing in it.
            Message::VoteReply { granted: false, .. }
            | Message::AppendReply { result: Err(_), .. } => Ok(()),
            Message::VoteReply { term, asked, .. } => {
                n.promises.on_term(*term);
                self.suite.elections.on_vote(n.member, *asked, to)
            }
            Message::AppendReply { term, result: Ok(durable), .. } => {
                n.promises.on_term(*term);
                n.promises.on_acknowledged(*durable);
                n.ground.acknowledges(*term, *durable);
                Ok(())
            }
            Message::Append { term, .. } => {
                n.promises.on_term(*term);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn run_job(&mut self, node: usize, job: Job<TheLog, TheMachine>) -> Verdict {
        if let Job::Log(LogJob::Persist(batches)) = &job {
            self.written(node, batches)?;
        }
        let (lane, kind) = (job.lane(), job.kind());
        self.note_job(node, lane, kind, true);
        let at = self.now + self.latency(node, lane, kind);
        let n = &mut self.nodes[node];
        let (life, name) = (n.life, n.name.clone());
        let Some(process) = n.process_mut() else { return Ok(()) };
        if process.lanes.insert(lane, job).is_some() {
            return Err(Violation::new("lanes", format!("{name}: two jobs on {lane:?} at a time")));
        }
        self.queue.push(at, Event::JobEnd { node, life, lane });
        Ok(())
    }

    /// Entries go to a log: they match every other log, and no committed one is cut.
    fn written(&mut self, node: usize, batches: &[Persist]) -> Verdict {
        let n = &mut self.nodes[node];
        n.ground.writes(batches);
        for batch in batches {
            if let Some(from) = batch.truncate_from {
                n.shadow.truncate(from);
            }
            for entry in &batch.append {
                let prev = n.shadow.last();
                if prev.index.next() != entry.id.index {
                    let what = format!("{} writes {} behind {prev}", n.name, entry.id);
                    return Err(Violation::new("log-matching", what));
                }
                // Of what is damaged the term may be unknown.
                if !n.ground.holes().contains(&prev.index) {
                    self.suite.history.on_entry(&n.name, prev, entry)?;
                }
                n.shadow.push(entry.id);
            }
        }
        Ok(())
    }

    /// What a finished job changed behind the effects.
    pub(super) fn before_done(&mut self, node: usize, done: &Done<TheLog, TheMachine>) {
        let n = &mut self.nodes[node];
        match done {
            Done::Log(Ok(done)) => match &done.result {
                LogResult::Reopened(recovered) => {
                    n.shadow = crate::shadow::Shadow::of(recovered);
                    n.ground.proved(recovered);
                }
                // What fills a hole of unknown identity says of which term it is.
                LogResult::Reset { .. } | LogResult::Repaired { .. } => {
                    if let Some(recovered) = n.process().map(|p| p.log.recovered()) {
                        n.sick &= !recovered.holes.is_empty() || recovered.held.is_some();
                        n.shadow = crate::shadow::Shadow::of(&recovered);
                        n.ground.proved(&recovered);
                    }
                }
                LogResult::Persisted { .. } => n.ground.written(),
                // Nothing was written: the job comes again, or what the core still wants of it.
                LogResult::NoSpace { .. } => {
                    n.ground.not_written();
                    n.shadow = n.ground.log().clone();
                }
                _ => {}
            },
            Done::Log(Err(fault)) => {
                n.ground.not_written();
                let text = fault.to_string();
                self.note(Some(node), || What::fault("log-fault", text));
            }
            Done::Apply(Err(fault)) => {
                let text = fault.to_string();
                self.note(Some(node), || What::fault("store-fault", text));
            }
            Done::Apply(Ok(_)) | Done::Side(..) => {}
        }
    }

    fn observe(&mut self, node: usize, event: &Seen) -> Verdict {
        self.note_inside(node, event);
        if let Some(mark) = crate::marks::mark_of(event) {
            self.summary.marks.insert(mark);
        }
        let n = &mut self.nodes[node];
        match event {
            Seen::Role { role: RoleKind::Leader, term } => {
                n.ground.leads = Some(*term);
                self.suite.elections.on_leader(*term, n.member)?;
                self.suite.on_leader(&n.name, *term, n.shadow.last())
            }
            Seen::Role { .. } => {
                n.ground.leads = None;
                Ok(())
            }
            Seen::Committed { through } => {
                self.claims(node, *through)?;
                self.suite.on_commit(&self.nodes[node].name, *through)
            }
            Seen::Truncated { from, why, .. } => {
                let kept = n.process().and_then(|process| {
                    let term = process.replica.core().term_at(from.prev())?;
                    Some(LogId { term, index: from.prev() })
                });
                if let (Cut::Replaced | Cut::Snapshot, Some(kept)) = (why, kept) {
                    n.promises.on_replaced(*from, kept);
                }
                n.marks.on_truncated(&n.name, *from)
            }
            Seen::Applied { through, digest, skipped } => {
                let before = n.marks.applied();
                n.marks.on_applied(&n.name, *through)?;
                let again = through.index.min(n.applied_ever);
                self.summary.replayed += again.0.saturating_sub(before.0) + skipped;
                n.applied_ever = n.applied_ever.max(through.index);
                self.suite.digests.on_applied(&n.name, *through, *digest)?;
                self.suite.committed.agrees(&n.name, *through)
            }
            Seen::StoreReopened { applied, .. } => {
                n.marks.on_reopened(*applied);
                Ok(())
            }
            Seen::Installed { last } => {
                self.summary.snapshots[1] += 1;
                n.applied_ever = n.applied_ever.max(last.index);
                Ok(())
            }
            Seen::SnapshotTaken { .. } => {
                self.summary.snapshots[0] += 1;
                Ok(())
            }
            Seen::Compacted { .. } => {
                self.summary.snapshots[2] += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
