//! The directories of the partitions that this node owns: made when the node is given one, and
//! moved to the trash when the guard permits it. Nothing else here removes anything.
//!
//! Order after a start: the copies are swept before the first new one is made (the create gate),
//! once the node has caught up and its store was walked; if that takes a minute, the sweep is
//! skipped and the gate opens. From then on every pass makes what is missing, sweeps, and looks
//! through the trash, whenever placements or topics changed and at least every ten seconds.

use super::report::{Kept, Report};
use crate::clock;
use crate::node::{Node, Phase};
use holdfast_consensus::Micros;
use holdfast_fsm::guard::{Claim, Guard, Keep, Permit, Standing};
use holdfast_fsm::plane::{Place, Plane, PlaneError};
use holdfast_fsm::records::{Assignment, CopyStamp, Counts, Owner};
use holdfast_fsm::{ReadError, Trust, View};
use holdfast_log::RealDisk;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::Duration;
use tokio::runtime::Handle;

/// Pause between two looks at whether there is something to do.
const TICK: Duration = Duration::from_millis(100);
/// A pass is made at least this often, in microseconds.
const AT_LEAST_EVERY: Micros = 10_000_000;
/// Most copies made in one pass: each takes several syncs.
const MADE_PER_PASS: usize = 256;
/// A sweep is followed by a rest of this many times its length: it reads every stamp.
const REST: u64 = 4;
/// The create gate opens after this long at the latest, in microseconds.
const GATE_WITHIN: Micros = 60_000_000;
/// What lies in the trash stays for a day, in microseconds.
const TRASH_DELAY: Micros = 86_400_000_000;
/// How long the leader may take to answer.
const CONFIRM_WITHIN: Duration = Duration::from_secs(2);
/// Most questions to the leader in one pass.
const QUESTIONS: usize = 64;
/// Placements in one reading step.
const PAGE: usize = 1000;

/// The thread that keeps the directories.
pub(crate) struct Worker {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Worker {
    /// Starts it. `handle` is of the runtime that the node's calls run on.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(
        node: Arc<Node>,
        plane: Plane<RealDisk>,
        view: View,
        handle: Handle,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let volume = plane.volume();
        let me = Owner { node: volume.node.clone(), volume: volume.volume };
        let keeper = Keeper {
            node,
            plane,
            view,
            handle,
            me,
            guard: Guard::new(),
            stop: Arc::clone(&stop),
            state_epoch: None,
            since: clock::now(),
            gate_open: false,
            complete: None,
            rest_until: 0,
            report: Report::default(),
        };
        let thread = std::thread::Builder::new()
            .name("holdfast-plane".into())
            .spawn(move || keeper.run())?;
        Ok(Self { stop, thread })
    }

    /// Ends it: afterwards nothing of the data plane is touched.
    pub(crate) fn join(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            tracing::error!("the keeper of the data plane panicked");
        }
    }
}

struct Keeper {
    node: Arc<Node>,
    plane: Plane<RealDisk>,
    view: View,
    handle: Handle,
    me: Owner,
    guard: Guard,
    stop: Arc<AtomicBool>,
    /// The state epoch in which all copies were last looked through.
    state_epoch: Option<u64>,
    since: Micros,
    gate_open: bool,
    /// Rows per table at the last complete pass, and when that was.
    complete: Option<(Counts, Micros)>,
    /// No pass before this time.
    rest_until: Micros,
    report: Report,
}

/// Why a pass ended early.
enum Ended {
    Plane(PlaneError),
    Read(ReadError),
}

impl From<PlaneError> for Ended {
    fn from(error: PlaneError) -> Self {
        Self::Plane(error)
    }
}

impl From<ReadError> for Ended {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl Keeper {
    fn run(mut self) {
        let mut said = String::new();
        while !self.stop.load(Ordering::Relaxed) {
            let pass = if self.gate_open { self.pass_if_due() } else { self.first_sweep() };
            let text = match pass {
                Ok(()) => String::new(),
                // The store is being reopened: the next pass reads again.
                Err(Ended::Read(error)) => error.to_string(),
                Err(Ended::Plane(error)) => error.to_string(),
            };
            if !text.is_empty() && text != said {
                tracing::error!("the data plane could not be looked through: {text}");
            }
            said = text;
            sleep(TICK);
        }
    }

    /// The sweep behind the gate: what was deleted while the node was away goes before anything new
    /// is made.
    fn first_sweep(&mut self) -> Result<(), Ended> {
        let walked = self.view.trust()? == Trust::Walked;
        if self.node.published().not_ready().is_none() && walked {
            self.sweep()?;
            tracing::info!(
                "swept the data plane: {} trashed, {} kept for other reasons than living",
                self.report.trashed,
                self.report.kept.len()
            );
            self.gate_open = true;
        } else if clock::now() >= self.since + GATE_WITHIN {
            tracing::warn!("the sweep at the start was skipped: the node has not caught up");
            self.gate_open = true;
        }
        self.publish();
        Ok(())
    }

    fn pass_if_due(&mut self) -> Result<(), Ended> {
        let now = clock::now();
        // Without a quorum nothing is destroyed, proved or not, and nothing is made.
        if now < self.rest_until || self.node.published().not_ready().is_some() {
            return Ok(());
        }
        let counts = self.view.held()?.counts;
        let done = |(last, at): &(Counts, Micros)| {
            moved(last) == moved(&counts) && now < at + AT_LEAST_EVERY
        };
        if self.complete.as_ref().is_some_and(done) {
            return Ok(());
        }
        let all_made = self.make_missing()?;
        let made = clock::now();
        self.sweep()?;
        self.look_through_trash()?;
        self.complete = all_made.then_some((counts, now));
        let end = clock::now();
        self.rest_until = end + REST * end.saturating_sub(made);
        self.publish();
        Ok(())
    }

    /// The replica as the guard has to see it.
    fn standing(&self) -> Standing {
        let published = self.node.published();
        let volume = self.plane.volume();
        let replica = published.replica.as_ref();
        Standing {
            member: self.node.member(),
            cluster: volume.cluster,
            volume: volume.volume,
            state_epoch: self.state_epoch.unwrap_or_default(),
            now: clock::now(),
            contact: replica.and_then(|replica| replica.contact),
            stopped: matches!(published.phase, Phase::Stopped(_)),
            shutting_down: published.phase == Phase::Stopping || self.stop.load(Ordering::Relaxed),
            held: replica.is_some_and(|replica| replica.held.is_some()),
            // Replicas do not compare their digests yet, so that nothing can dispute one.
            dispute: false,
        }
    }

    /// Makes the directories of copies that this node is to have, a bounded number of them, so that
    /// a thousand new partitions hold up no sweep. True if there is none left to make. The names'
    /// locks are the plane's own.
    fn make_missing(&self) -> Result<bool, Ended> {
        let there: BTreeSet<Place> = self.plane.list()?.into_iter().map(|f| f.place).collect();
        let mut after: Option<(String, u32)> = None;
        let mut left = MADE_PER_PASS;
        loop {
            let from = after.as_ref().map(|(topic, partition)| (topic.as_str(), *partition));
            let rows = self.view.assignments_of(&self.me, from, PAGE)?.value;
            for row in rows.iter().filter(|row| row.owner == self.me) {
                let copy = copy_of(row);
                if there.contains(&Place::of(&copy)) {
                    continue;
                }
                if left == 0 || self.stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                left -= 1;
                self.make(&copy)?;
            }
            after = rows.last().map(|row| (row.topic.name.clone(), row.partition));
            if after.is_none() {
                return Ok(true);
            }
        }
    }

    fn make(&self, copy: &CopyStamp) -> Result<(), Ended> {
        match self.plane.create(copy) {
            Ok(place) => {
                self.count("created");
                tracing::info!("made {place} for partition {} of {}", copy.partition, copy.topic);
                Ok(())
            }
            Err(PlaneError::InTrash(_)) => {
                self.put_back(copy);
                Ok(())
            }
            // Somebody put something there: it shows in the listing, and the others go on.
            Err(occupied @ PlaneError::Occupied { .. }) => {
                tracing::error!("{occupied}");
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// One pass over the copies: each is judged for itself (N11).
    fn sweep(&mut self) -> Result<(), Ended> {
        let epoch = self.view.held()?.state_epoch;
        let before = self.state_epoch.get_or_insert(epoch);
        let (mut kept, mut live, mut questions) = (Vec::new(), 0, QUESTIONS);
        let same = *before == epoch;
        for found in self.plane.list()? {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let gone = found.stamp.and_then(|copy| self.permit(copy, &mut questions));
            match gone.and_then(|permit| self.trash(permit)) {
                Ok(()) => {}
                Err(Keep::Live { .. }) => live += 1,
                Err(keep) => kept.push(Kept::new(&found.place.to_string(), &keep)),
            }
        }
        for keep in &kept {
            self.node.metrics().count("holdfast_keeps_total", "reason", keep.reason);
            if !self.report.kept.contains(keep) {
                tracing::warn!("kept {}: {}", keep.place, keep.why);
            }
        }
        (self.report.kept, self.report.live) = (kept, live);
        if !same {
            // A pass in the old epoch has kept everything; the next judges in the new one.
            self.state_epoch = Some(epoch);
        }
        Ok(())
    }

    /// The first line, and the second where it may help.
    fn permit(&self, copy: CopyStamp, questions: &mut usize) -> Result<Permit, Keep> {
        let claim = Claim::CopyGone(copy);
        match self.guard.prove(claim.clone(), &self.view, &self.standing()) {
            Ok(permit) => {
                self.node.metrics().count("holdfast_permits_total", "line", "local");
                Ok(permit)
            }
            Err(keep) if keep.needs_leader() && *questions > 0 => {
                *questions -= 1;
                self.ask_leader(claim)
            }
            Err(keep) => Err(keep),
        }
    }

    fn ask_leader(&self, claim: Claim) -> Result<Permit, Keep> {
        let nonce = self.node.nonce();
        let inquiry = self.guard.inquire(claim, &self.view, &self.standing(), nonce)?;
        let question = inquiry.question().encode()?;
        let outcome = self.handle.block_on(self.node.confirm(question, CONFIRM_WITHIN));
        let permit = self.guard.conclude(inquiry, &outcome, &self.view, &self.standing())?;
        self.node.metrics().count("holdfast_permits_total", "line", "leader");
        Ok(permit)
    }

    fn trash(&mut self, permit: Permit) -> Result<(), Keep> {
        let proof = permit.proof().to_string();
        let place = self.plane.trash(permit, &self.view)?;
        self.count("trashed");
        self.report.trashed += 1;
        tracing::warn!("moved {place} to the trash: {proof}");
        Ok(())
    }

    /// What lives again comes back; what has lain there long enough, and is proved gone once more,
    /// goes for good (R29, R34).
    fn look_through_trash(&mut self) -> Result<(), Ended> {
        let trashed = self.plane.trashed()?;
        self.report.in_trash = trashed.len();
        for copy in trashed.into_iter().filter_map(|t| t.copy?.ok()) {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if self.put_back(&copy) {
                continue;
            }
            let claim = Claim::CopyGone(copy);
            let reaped = self
                .guard
                .prove(claim, &self.view, &self.standing())
                .and_then(|permit| self.plane.reap(permit, &self.view, clock::now(), TRASH_DELAY));
            if let Ok(place) = reaped {
                self.count("reaped");
                tracing::info!("removed {place} from the trash for good");
            }
        }
        Ok(())
    }

    fn put_back(&self, copy: &CopyStamp) -> bool {
        let Ok(place) = self.plane.put_back(copy, &self.view) else { return false };
        self.count("put_back");
        tracing::warn!("put {place} back from the trash: it lives again");
        true
    }

    fn count(&self, event: &'static str) {
        self.node.metrics().count("holdfast_copies_total", "event", event);
    }

    fn publish(&mut self) {
        self.report.gate_open = self.gate_open;
        self.report.volume = self.me.volume.to_string();
        self.node.set_report(self.report.clone());
    }
}

/// The copy that a placement calls for.
fn copy_of(row: &Assignment) -> CopyStamp {
    CopyStamp {
        volume: row.owner.volume,
        topic: row.topic.clone(),
        partition: row.partition,
        placed: row.stamp.clone(),
    }
}

/// The tables in which a change may call for another pass: a deleted topic leaves a tombstone, and
/// a new one gets placements.
fn moved(counts: &Counts) -> [u64; 2] {
    use holdfast_fsm::records::TableId;
    [counts.of(TableId::Tombstones), counts.of(TableId::Assignments)]
}
