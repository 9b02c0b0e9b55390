//! The broker with the guard on: claims, judgements, inquiries, and acts that need a permit.

use super::engine::{Asked, Broker, Sight};
use super::fanout;
use super::ledger::Place;
use super::wants::{Act, Want};
use super::{layout, records};
use crate::trace::Decision;
use holdfast_consensus::codec;
use holdfast_consensus::job::Call;
use holdfast_consensus::message::Outcome;
use holdfast_fsm::View;
use holdfast_fsm::guard::{Claim, Guard, Inquiry, Keep, Permit, Standing};
use holdfast_fsm::records::{CopyStamp, Owner, ResourceKind, Stamp};
use holdfast_fsm::view::{DigestWalk, ReadError, Trust, WalkStep};
use holdfast_log::disk::Disk;
use std::io;

/// Records that the walk of the store looks at in one pass.
const WALK_ROWS: usize = 500;

/// What the broker needs to ask the guard.
pub(super) struct Guarded {
    guard: Guard,
    walk: Option<DigestWalk>,
    nonce: u64,
}

impl Guarded {
    pub(super) const fn new() -> Self {
        Self { guard: Guard::new(), walk: None, nonce: 0 }
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
        stopped: false,
        shutting_down: false,
        held: false,
        dispute: false,
    })
}

impl Broker {
    /// What must be true before an act.
    fn claim(&self, act: &Act, sight: &Sight<'_>) -> io::Result<Result<Claim, Keep>> {
        Ok(match act {
            Act::Remove(place) => self.stamp_of(place)?.map(Claim::CopyGone),
            Act::Reclaim { place, .. } => {
                let length = records::read(&self.disk, &layout::log_of(place))?.len() as u64;
                self.stamp_of(place)?.map(|copy| Claim::MovedAway { copy, length })
            }
            Act::Anchor { link, seen, .. } => match seen.as_deref().map(fanout::decode) {
                None => Ok(Claim::Current { attachment: link.stamp.clone(), file: None }),
                Some(Some((incarnation, _))) => {
                    let file = Stamp { incarnation, ..link.stamp.clone() };
                    Ok(Claim::Current { attachment: link.stamp.clone(), file: Some(file) })
                }
                Some(None) => Err(Keep::BadStamp("the cursor's file cannot be read".to_owned())),
            },
            Act::Clean { link, .. } => Ok(Claim::Gone(link.stamp.clone())),
            Act::Discard(accepted) => match sight.view.held() {
                Ok(held) => Ok(Claim::Gone(Stamp {
                    cluster: held.cluster,
                    epoch: held.state_epoch,
                    group: 0,
                    kind: ResourceKind::Topic,
                    name: accepted.topic.clone(),
                    incarnation: accepted.incarnation,
                })),
                Err(why) => Err(Keep::Unreadable(why.to_string())),
            },
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
                self.call(Asked::Guard(act, Box::new(inquiry)), Call::Confirm { question }, sight);
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

    /// Carries an act out with its permit.
    fn permitted(&mut self, act: &Act, permit: Permit, sight: &Sight<'_>) -> io::Result<()> {
        let line = format!("may {}: {}", act.describe(), permit.proof());
        self.wants.push(Want::Decided(Decision::Permits, line));
        self.carry_out(act, permit, sight)
    }
}

impl Broker {
    /// Makes the directory of a partition, with its stamp (R34); `false` if the local store knows of
    /// no owner, so that there is nothing to stamp it with.
    pub(super) fn ensure_partition(&mut self, place: &Place, view: &View) -> io::Result<bool> {
        let dir = layout::dir_of(place);
        if layout::is_there(&self.disk, &dir)? {
            return Ok(true);
        }
        let Ok(Some(row)) = view.assignment(&place.topic, place.partition).map(|at| at.value)
        else {
            return Ok(false);
        };
        if row.topic.incarnation != place.incarnation {
            return Ok(false);
        }
        let mine = row.target.filter(|target| target.owner == self.owner);
        let placed = mine.map_or(row.stamp, |target| target.stamp);
        let (volume, partition) = (self.owner.volume, place.partition);
        let stamp = CopyStamp { volume, topic: row.topic, partition, placed };
        let bytes = codec::encode("stamp", &stamp).map_err(io::Error::other)?;
        let mut at = String::new();
        for part in dir.split('/') {
            let parent = at.clone();
            at = if at.is_empty() { part.to_owned() } else { format!("{at}/{part}") };
            self.disk.make_dir(&at)?;
            self.disk.sync_dir(&parent)?;
        }
        records::replace(&self.disk, &format!("{dir}/stamp"), &bytes)?;
        Ok(true)
    }

    fn stamp_of(&self, place: &Place) -> io::Result<Result<CopyStamp, Keep>> {
        let path = format!("{}/stamp", layout::dir_of(place));
        let Some(bytes) = records::content(&self.disk, &path)? else {
            return Ok(Err(Keep::BadStamp("there is none".to_owned())));
        };
        Ok(codec::decode("stamp", &bytes).map_err(|e| Keep::BadStamp(e.to_string())))
    }

    fn carry_out(&mut self, act: &Act, permit: Permit, sight: &Sight<'_>) -> io::Result<()> {
        if let Err(keep) = permit.still_stands(sight.view) {
            return self.kept(act, &keep);
        }
        match act {
            Act::Remove(place) | Act::Reclaim { place, .. } => {
                self.disk.make_dir("trash")?;
                let to = format!("trash/{}-{}-{}", place.topic, place.incarnation, place.partition);
                self.disk.rename(&layout::dir_of(place), &to)?;
                self.disk.sync_dir("trash")
            }
            Act::Clean { link, partition } => {
                layout::remove_file(&self.disk, &layout::cursor_of(link, *partition))
            }
            Act::Discard(accepted) => {
                self.accepted.done(accepted.sequence);
                self.accepted.advance()
            }
            Act::Anchor { link, partition, .. } => {
                let at = link.tails.get(*partition as usize).copied().unwrap_or(0);
                let path = layout::cursor_of(link, *partition);
                records::replace(&self.disk, &path, &fanout::encode(link.stamp.incarnation, at))?;
                self.run_from(link, *partition, at);
                Ok(())
            }
        }
    }
}
