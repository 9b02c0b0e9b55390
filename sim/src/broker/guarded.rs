//! The broker with the guard on: claims, judgements, inquiries, and acts that need a permit.

use super::accepted::Accepted;
use super::engine::{Asked, Broker, Sight};
use super::late::Leave;
use super::layout::{self, Copy};
use super::ledger::Place;
use super::records;
use super::wants::{Act, Seen, Want};
use crate::trace::Decision;
use holdfast_consensus::Micros;
use holdfast_consensus::job::Call;
use holdfast_consensus::message::Outcome;
use holdfast_fsm::View;
use holdfast_fsm::guard::{Claim, Guard, Inquiry, Keep, Permit, Standing};
use holdfast_fsm::plane::{Cursor as Position, Entered, Plane, PlaneError, Trashed};
use holdfast_fsm::records::{CopyStamp, Link, Owner, ResourceKind, Stamp};
use holdfast_fsm::view::{DigestWalk, ReadError, Trust, WalkStep};
use holdfast_log::mem_disk::MemDisk;
use std::io;

/// Records that the walk of the store looks at in one pass.
const WALK_ROWS: usize = 500;

/// How long something lies in the trash before it goes for good. Short: what went there wrongly is
/// lost in a scenario, unless somebody puts it back at once.
const TRASH_DELAY: Micros = 1_000_000;

/// The data plane, and what the broker needs to ask the guard.
pub(super) struct Guarded {
    guard: Guard,
    walk: Option<DigestWalk>,
    nonce: u64,
    /// The data plane; else why it cannot be used: then nothing is made and nothing destroyed.
    plane: Result<Plane<MemDisk>, String>,
}

impl Guarded {
    /// Opens the data plane of a node.
    ///
    /// # Errors
    /// What the disk says.
    pub(super) fn open(disk: MemDisk, owner: &Owner, view: &View) -> io::Result<Self> {
        let held = view.held().map_err(|e| io::Error::other(e.to_string()))?;
        let plane = match Plane::open(disk, held.cluster, &owner.node, owner.volume) {
            Ok(plane) => Ok(plane),
            Err(PlaneError::Foreign(why)) => Err(why),
            Err(e) => return Err(io::Error::other(e.to_string())),
        };
        Ok(Self { guard: Guard::new(), walk: None, nonce: 0, plane })
    }

    /// Why the data plane cannot be used, if so.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.plane.as_ref().err().map(String::as_str)
    }

    /// Walks a piece of the store, until it is trusted (R30).
    pub(super) fn walk(&mut self, view: &View) {
        if view.trust().ok() != Some(Trust::Unwalked) {
            self.walk = None;
            return;
        }
        let walk = self.walk.take().map_or_else(|| view.walk(), Ok);
        if let Ok(mut walk) = walk
            && matches!(walk.step(WALK_ROWS), Ok(WalkStep::More))
        {
            self.walk = Some(walk);
        }
    }

    /// The stamp of a copy, as it lies on the disk; else why it is not believed.
    fn stamp(&self, copy: &Copy) -> io::Result<Result<CopyStamp, Keep>> {
        let Ok(plane) = &self.plane else {
            return Ok(Err(Keep::BadStamp("the data plane belongs to somebody else".to_owned())));
        };
        let all = plane.list().map_err(|e| io::Error::other(e.to_string()))?;
        let found = all.into_iter().find(|found| found.place.dir() == copy.dir);
        Ok(found.map_or_else(|| Err(Keep::Changed), |found| found.stamp))
    }

    /// A seat in a copy, for one write.
    pub(super) fn enter(&self, copy: &Copy) -> io::Result<Entered> {
        let stamp = self.stamp(copy)?.map_err(|keep| io::Error::other(keep.to_string()))?;
        let plane = self.plane.as_ref().map_err(|why| io::Error::other(why.clone()))?;
        let seat = plane.lease(&stamp).and_then(|lease| lease.enter());
        seat.map_err(|e| io::Error::other(e.to_string()))
    }
}

/// What the runtime says of the replica.
fn standing(sight: &Sight<'_>, owner: &Owner) -> Result<Standing, ReadError> {
    let held = sight.view.held()?;
    Ok(Standing {
        member: sight.status.member,
        cluster: held.cluster,
        volume: owner.volume,
        state_epoch: held.state_epoch,
        now: sight.shown,
        contact: sight.status.contact,
        stopped: sight.stopped,
        // A simulated process ends at once, however it ends.
        shutting_down: false,
        held: sight.status.held.is_some(),
        // Replicas do not compare their digests: a checker does, and ends the run.
        dispute: false,
    })
}

/// The stamp of the topic that a record was accepted for.
fn topic_of(accepted: &Accepted, view: &View) -> Result<Stamp, Keep> {
    let held = view.held().map_err(|e| Keep::Unreadable(e.to_string()))?;
    Ok(Stamp {
        cluster: held.cluster,
        epoch: held.state_epoch,
        group: 0,
        kind: ResourceKind::Topic,
        name: accepted.topic.clone(),
        incarnation: accepted.incarnation,
    })
}

impl Broker {
    /// What must be true before an act.
    fn claim(&self, act: &Act, sight: &Sight<'_>) -> io::Result<Result<Claim, Keep>> {
        Ok(match act {
            Act::Remove(copy) => self.guard.stamp(copy)?.map(Claim::CopyGone),
            Act::Reclaim { copy, .. } => {
                let length = records::read(&self.disk, &layout::log_of(&copy.dir))?.len() as u64;
                self.guard.stamp(copy)?.map(|copy| Claim::MovedAway { copy, length })
            }
            Act::Anchor { link, seen, .. } => match &**seen {
                Seen::Unreadable(keep) => Err(keep.clone()),
                Seen::Nothing | Seen::Offset(_) => {
                    Ok(Claim::Current { attachment: link.stamp.clone(), file: None })
                }
                Seen::Cursor(seen) => Ok(Claim::Current {
                    attachment: link.stamp.clone(),
                    file: Some(seen.cursor.attachment.clone()),
                }),
            },
            Act::Clean { link, .. } => Ok(Claim::Gone(link.stamp.clone())),
            Act::Discard(accepted) => topic_of(accepted, sight.view).map(Claim::Gone),
            Act::Reap { claim, .. } => Ok((**claim).clone()),
        })
    }

    /// First line, and the beginning of the second.
    pub(super) fn judge(&mut self, act: Act, sight: &Sight<'_>) -> io::Result<()> {
        let claim = match self.claim(&act, sight)? {
            Ok(claim) => claim,
            Err(keep) => return self.kept(&act, &keep),
        };
        let standing = match standing(sight, &self.owner) {
            Ok(standing) => standing,
            Err(why) => return self.kept(&act, &Keep::Unreadable(why.to_string())),
        };
        match self.guard.guard.prove(claim.clone(), sight.view, &standing) {
            Ok(permit) => return self.permitted(&act, permit, sight),
            Err(keep) if !keep.needs_leader() => return self.kept(&act, &keep),
            Err(_) => {}
        }
        self.guard.nonce += 1;
        let nonce = self.guard.nonce;
        let inquiry = self.guard.guard.inquire(claim, sight.view, &standing, nonce);
        let asked = inquiry.and_then(|inquiry| Ok((inquiry.question().encode()?, inquiry)));
        match asked {
            Ok((question, inquiry)) => {
                self.occupy(&act, sight);
                let asked = Asked::Guard(act, Box::new(inquiry));
                self.call(asked, Call::Confirm { question }, sight);
                Ok(())
            }
            Err(keep) => self.kept(&act, &keep),
        }
    }

    /// The end of the second line.
    pub(super) fn conclude(
        &mut self,
        act: &Act,
        inquiry: Inquiry,
        outcome: &Outcome,
        sight: &Sight<'_>,
    ) -> io::Result<()> {
        let standing = match standing(sight, &self.owner) {
            Ok(standing) => standing,
            Err(why) => return self.kept(act, &Keep::Unreadable(why.to_string())),
        };
        match self.guard.guard.conclude(inquiry, outcome, sight.view, &standing) {
            Ok(permit) => self.permitted(act, permit, sight),
            Err(keep) => self.kept(act, &keep),
        }
    }

    fn kept(&mut self, act: &Act, keep: &Keep) -> io::Result<()> {
        self.keep(act, &keep.to_string());
        Ok(())
    }

    /// Carries an act out with its permit, now or when the hands get to it.
    fn permitted(&mut self, act: &Act, permit: Permit, sight: &Sight<'_>) -> io::Result<()> {
        match self.put_off(act, Leave::Permit(Box::new(permit)), sight.now) {
            Some(Leave::Permit(permit)) => self.use_permit(act, *permit, sight),
            _ => Ok(()),
        }
    }

    /// Hands a permit over. The plane looks again, and may still keep.
    pub(super) fn use_permit(
        &mut self,
        act: &Act,
        permit: Permit,
        sight: &Sight<'_>,
    ) -> io::Result<()> {
        let line = format!("may {}: {}", act.describe(), permit.proof());
        match self.carry_out(act, permit, sight)? {
            Ok(()) => {
                self.wants.push(Want::Decided(Decision::Permits, line));
                Ok(())
            }
            // Time alone lets it go: that is no decision.
            Err(Keep::TooYoung { .. }) => Ok(()),
            Err(keep) => self.kept(act, &keep),
        }
    }

    /// Looks through the trash: each entry is proved once more before it goes for good (R34).
    pub(super) fn empty_trash(&mut self, sight: &Sight<'_>) -> io::Result<()> {
        let Ok(plane) = &self.guard.plane else { return Ok(()) };
        let all = plane.trashed().map_err(|e| io::Error::other(e.to_string()))?;
        for Trashed { name, copy, reason } in all {
            if let Ok(reason) = reason {
                let (claim, note) = (Box::new(reason.claim), copy.is_none());
                self.consider(Act::Reap { name, claim, note }, sight)?;
            }
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        act: &Act,
        permit: Permit,
        sight: &Sight<'_>,
    ) -> io::Result<Result<(), Keep>> {
        let view = sight.view;
        let Ok(plane) = &self.guard.plane else { return Ok(Err(Keep::NoIdentity)) };
        match act {
            Act::Remove(_) => Ok(plane.trash(permit, view).map(|_| ())),
            Act::Reclaim { copy, .. } => {
                let log = layout::log_of(&copy.dir);
                let length = || {
                    let log = records::read(&self.disk, &log);
                    log.map(|log| log.len() as u64).map_err(|e| Keep::Disk(e.to_string()))
                };
                Ok(plane.trash_moved(permit, view, length).map(|_| ()))
            }
            Act::Discard(accepted) => {
                let accepted_for = match topic_of(accepted, view) {
                    Ok(stamp) => stamp,
                    Err(keep) => return Ok(Err(keep)),
                };
                let bytes = accepted.line();
                match plane.discard(permit, view, &accepted_for, 1, bytes.as_bytes()) {
                    Ok(_discarded) => {
                        self.accepted.done(accepted.sequence);
                        self.accepted.advance().map(Ok)
                    }
                    Err(keep) => Ok(Err(keep)),
                }
            }
            Act::Clean { link, copy } => Ok(match self.guard.stamp(copy)? {
                Ok(copy) => plane.drop_cursor(permit, view, &copy, &link.child),
                Err(keep) => Err(keep),
            }),
            Act::Anchor { link, copy, seen } => {
                let stamp = match self.guard.stamp(copy)? {
                    Ok(stamp) => stamp,
                    Err(keep) => return Ok(Err(keep)),
                };
                let partition = copy.place.partition;
                let next = link.tails.get(partition as usize).copied().unwrap_or(0);
                let seen = match &**seen {
                    Seen::Cursor(seen) => Some(seen),
                    _ => None,
                };
                let to = position(link, next);
                let done = plane.replace_cursor(permit, view, &stamp, &link.child, seen, &to);
                if done.is_ok() {
                    self.run_from(link, copy, next);
                }
                Ok(done)
            }
            Act::Reap { name, note: true, .. } => {
                Ok(plane.reap_note(permit, name, view, sight.shown, TRASH_DELAY))
            }
            Act::Reap { .. } => Ok(plane.reap(permit, view, sight.shown, TRASH_DELAY).map(|_| ())),
        }
    }

    /// Makes the copy of a partition, with its stamp (R34). `None` if the local store knows of no
    /// owner, so that there is nothing to stamp it with, or the data plane cannot be used.
    pub(super) fn ensure_copy(&mut self, place: &Place, view: &View) -> io::Result<Option<Copy>> {
        let Ok(Some(row)) = view.assignment(&place.topic, place.partition).map(|at| at.value)
        else {
            return Ok(None);
        };
        let Ok(plane) = &self.guard.plane else { return Ok(None) };
        if row.topic.incarnation != place.incarnation {
            return Ok(None);
        }
        let mine = row.target.filter(|target| target.owner == self.owner);
        let placed = mine.map_or(row.stamp, |target| target.stamp);
        let (volume, partition) = (self.owner.volume, place.partition);
        let stamp = CopyStamp { volume, topic: row.topic, partition, placed };
        let made = match plane.create(&stamp) {
            Err(PlaneError::InTrash(_)) => match plane.put_back(&stamp, view) {
                Ok(place) => place,
                Err(_) => return Ok(None),
            },
            Err(e) => return Err(io::Error::other(e.to_string())),
            Ok(place) => place,
        };
        let dir = made.dir();
        if records::content(&self.disk, &layout::whose_file(&dir))?.is_none() {
            records::replace(&self.disk, &layout::whose_file(&dir), &layout::whose(place))?;
        }
        Ok(Some(Copy { place: place.clone(), dir }))
    }

    /// The cursor of a child in a copy of its parent.
    pub(super) fn cursor_in(&self, copy: &Copy, link: &Link) -> io::Result<Seen> {
        let Ok(plane) = &self.guard.plane else { return Ok(Seen::Nothing) };
        let stamp = match self.guard.stamp(copy)? {
            Ok(stamp) => stamp,
            Err(keep) => return Ok(Seen::Unreadable(keep)),
        };
        Ok(match plane.cursor(&stamp, &link.child) {
            Ok(Some(seen)) => Seen::Cursor(seen),
            Ok(None) => Seen::Nothing,
            Err(keep) => Seen::Unreadable(keep),
        })
    }

    /// Moves a cursor on; `false` if its file is not its own any more.
    pub(super) fn advance_cursor(&self, copy: &Copy, link: &Link, next: u64) -> io::Result<bool> {
        let Ok(plane) = &self.guard.plane else { return Ok(false) };
        let Ok(stamp) = self.guard.stamp(copy)? else { return Ok(false) };
        match plane.advance_cursor(&stamp, &link.child, &position(link, next)) {
            Ok(()) => Ok(true),
            Err(Keep::Disk(why)) => Err(io::Error::other(why)),
            Err(_) => Ok(false),
        }
    }
}

fn position(link: &Link, next: u64) -> Position {
    Position { attachment: link.stamp.clone(), parent: link.parent.clone(), next }
}
