//! The walk over every record of the open store (R30): until it has passed, the store proves
//! nothing, and no permit rests on it. It runs in the background, in small steps, again after
//! every reopening.

use super::NodeError;
use holdfast_fsm::{ReadError, Trust, View, WalkStep};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Records in one step, and the pause behind it: the walk leaves the disk to others.
const STEP_ROWS: usize = 2048;
const PAUSE: Duration = Duration::from_millis(1);
/// Pause between two looks at whether the store was opened again.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The thread that walks.
pub(super) struct Walker {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Walker {
    /// Starts it.
    pub(super) fn start(view: View) -> Result<Self, NodeError> {
        let stop = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("holdfast-walk".into())
            .spawn(move || walk_for_ever(&view, &asked))
            .map_err(NodeError::Thread)?;
        Ok(Self { stop, thread })
    }

    /// Ends it: afterwards it holds nothing of the store.
    pub(super) fn join(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            tracing::error!("the walk over the store panicked");
        }
    }
}

fn walk_for_ever(view: &View, stop: &AtomicBool) {
    let mut said = String::new();
    while !stop.load(Ordering::Relaxed) {
        match once(view, stop) {
            Ok(()) => said.clear(),
            Err(error) => {
                let text = error.to_string();
                if said != text {
                    tracing::error!("the walk over the store did not pass: {text}");
                    said = text;
                }
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Walks the open store if nobody has yet.
fn once(view: &View, stop: &AtomicBool) -> Result<(), ReadError> {
    if view.trust()? != Trust::Unwalked {
        return Ok(());
    }
    let mut walk = view.walk()?;
    loop {
        match walk.step(STEP_ROWS)? {
            WalkStep::More if stop.load(Ordering::Relaxed) => return Ok(()),
            WalkStep::More => std::thread::sleep(PAUSE),
            WalkStep::Replaced => return Ok(()),
            WalkStep::Passed => {
                tracing::info!("every record of the store was read and matches its digest");
                return Ok(());
            }
        }
    }
}
