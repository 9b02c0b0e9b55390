//! The pace of the log's scrub (R17), and where its findings go: entries that do not verify any
//! more to the core loop, as damage that a read meets, everything to the log lines and counters.
//!
//! A start has verified every byte, so the first pass begins a little later; passes follow one
//! another after a long pause, since what rots, rots over months.

use super::state::{Published, State};
use super::{Input, Node, NodeError};
use crate::metrics::Metrics;
use holdfast_log::{Finding, RealDisk, Scrub};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of one step; the pause behind it makes the pace.
const STEP_BYTES: u64 = 1 << 20;
/// From the start to the first pass.
const FIRST_AFTER: Duration = Duration::from_secs(10);
/// From the end of a pass to the next.
const NEXT_AFTER: Duration = Duration::from_secs(3600);
/// From one look for a sealed segment to the next, while there is none.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The thread that scrubs, unless it is turned off.
pub(super) struct Scrubber(Option<(Arc<AtomicBool>, JoinHandle<()>)>);

impl Scrubber {
    /// Starts it, at the pace of the configuration.
    pub(super) fn start(
        scrub: Scrub<RealDisk>,
        node: &Node,
        inbox: &Sender<Input>,
    ) -> Result<Self, NodeError> {
        // The configuration allows no more than one step a millisecond.
        let Some(pause) = 1_000_000_u64.checked_div(node.config.scrub_mib_per_s) else {
            return Ok(Self(None));
        };
        let stop = Arc::new(AtomicBool::new(false));
        let pace = Pace {
            pause: Duration::from_micros(pause),
            metrics: Arc::clone(&node.metrics),
            inbox: inbox.clone(),
            state: Arc::clone(&node.state),
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new()
            .name("holdfast-scrub".into())
            .spawn(move || pace.run(scrub))
            .map_err(NodeError::Thread)?;
        Ok(Self(Some((stop, thread))))
    }

    /// Ends it: afterwards it holds nothing of the log.
    pub(super) fn join(self) {
        let Some((stop, thread)) = self.0 else { return };
        stop.store(true, Ordering::Relaxed);
        thread.thread().unpark();
        if thread.join().is_err() {
            tracing::error!("the scrub of the log panicked");
        }
    }
}

struct Pace {
    pause: Duration,
    metrics: Arc<Metrics>,
    inbox: Sender<Input>,
    state: Arc<State>,
    stop: Arc<AtomicBool>,
}

impl Pace {
    fn run(&self, mut scrub: Scrub<RealDisk>) {
        let mut pause = FIRST_AFTER;
        let mut found = 0;
        while self.waits(pause) {
            let step = scrub.step(STEP_BYTES);
            self.metrics.scrub_bytes.fetch_add(step.bytes, Ordering::Relaxed);
            for finding in &step.found {
                found += u64::from(finding.news);
                self.tell(finding);
            }
            pause = match (step.passed, step.bytes) {
                (true, _) => {
                    self.metrics.scrub_passes.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(found, "the log was verified from end to end");
                    found = 0;
                    NEXT_AFTER
                }
                (false, 0) => LOOK_EVERY,
                (false, _) => self.pause,
            };
        }
    }

    /// Waits; false if it is to end.
    fn waits(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            // Woken for no reason it waits on.
            std::thread::park_timeout(left);
        }
    }

    fn tell(&self, finding: &Finding) {
        let Finding { file, offset, why, .. } = finding;
        if finding.news {
            self.metrics.scrub_damaged.fetch_add(1, Ordering::Relaxed);
            match finding.entries {
                Some((first, last)) => tracing::error!(
                    "the scrub found entries {first} to {last} damaged in {file} from offset {offset} on: {why}"
                ),
                None => tracing::warn!(
                    "the scrub found {file} damaged at offset {offset}: {why}. No entry is lost by it; the next \
                     start judges the place (`holdfast log verify` does so now)"
                ),
            }
        }
        // What the replica knows already is no news to it.
        let Some(fault) = finding.fault() else { return };
        if is_alone(&self.state.get()) {
            // The replica would stop: nobody can give it back. But what it serves comes from its store,
            // and whoever is told now can still copy that.
            if finding.news {
                tracing::error!(
                    "nobody has these entries but this node, the only voter: it goes on as long as it need not read                      them, and its next start will refuse unless a snapshot covers them by then. Copy what it holds                      now, and have the disk looked after"
                );
            }
            return;
        }
        if self.inbox.send(Input::Damaged(fault)).is_err() {
            tracing::debug!("the scrub found something after the core loop had ended");
        }
    }
}

/// True if nobody could give back what this member has lost.
fn is_alone(published: &Published) -> bool {
    let members = published.replica.as_ref().map(|replica| &replica.membership);
    members.is_some_and(|m| m.voters.len() == 1 && m.outgoing.is_empty() && m.learners.is_empty())
}
