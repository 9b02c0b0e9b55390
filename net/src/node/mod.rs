//! One running node: the core loop, its lanes, its peers, and the handle that the HTTP API holds.

mod forming;
mod lanes;
mod observe;
mod runtime;
mod scrub;
mod start;
mod state;
mod walk;

pub(crate) use start::plan_text;
pub use start::{NodeError, Running, start};
pub use state::{Phase, Published};

use crate::clock;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::peer::{PeerEvent, Peers};
use crate::plane::report::Report;
use bytes::Bytes;
use holdfast_consensus::Micros;
use holdfast_consensus::fault::{LogFault, Refusal};
use holdfast_consensus::job::{Call, Done};
use holdfast_consensus::message::Outcome;
use holdfast_consensus::types::MemberId;
use holdfast_fsm::{Metastore, View};
use holdfast_log::{Log, RealDisk};
use state::State;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The log of a real node.
pub(crate) type RealLog = Log<RealDisk>;
/// The state machine of a real node.
pub(crate) type RealStore = Metastore<RealDisk>;

/// Bytes of calls that wait for the core loop or for their outcome; beyond it callers get `Busy`.
const CALL_BYTES: usize = 64 << 20;
/// What a call is charged with beside its command.
const CALL_OVERHEAD: usize = 256;
/// How much longer than its deadline a call is waited for: the replica answers at the deadline.
const GRACE: Duration = Duration::from_millis(1500);

/// Something for the core loop.
pub(crate) enum Input {
    /// From the transport.
    Peer(PeerEvent),
    /// From a client.
    Call(Box<ClientCall>),
    /// From a lane.
    Done(Box<Done<RealLog, RealStore>>),
    /// From the scrub of the log: entries that do not verify any more.
    Damaged(LogFault),
    /// Stop in an orderly way.
    Stop,
}

/// A client's call on its way to the replica.
pub(crate) struct ClientCall {
    call: Call,
    deadline: Micros,
    reply: oneshot::Sender<Outcome>,
    permit: OwnedSemaphorePermit,
}

/// The handle of a running node, shared by everything that serves clients.
pub struct Node {
    config: Config,
    member: MemberId,
    metrics: Arc<Metrics>,
    peers: Peers,
    state: Arc<State>,
    view: Arc<OnceLock<View>>,
    inbox: Sender<Input>,
    calls: Arc<Semaphore>,
    /// Random for each start, so that request ids are unique across members and restarts.
    request_prefix: u64,
    requests: AtomicU64,
    report: RwLock<Arc<Report>>,
}

impl Node {
    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// This member.
    #[must_use]
    pub fn member(&self) -> MemberId {
        self.member
    }

    /// The counters.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The transport.
    #[must_use]
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// What the node last said of itself; never enters the core loop.
    #[must_use]
    pub fn published(&self) -> Arc<Published> {
        self.state.get()
    }

    /// Local reads, once the store is open.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.view.get()
    }

    /// What the keeper of the data plane last found.
    pub(crate) fn report(&self) -> Arc<Report> {
        Arc::clone(&self.report.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_report(&self, report: Report) {
        *self.report.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(report);
    }

    /// A request id that no other request of the cluster bears.
    #[must_use]
    pub fn request_id(&self) -> u128 {
        let count = self.requests.fetch_add(1, Ordering::Relaxed);
        u128::from(self.request_prefix) << 64 | u128::from(count)
    }

    /// A number that tells a question of this process from every other.
    #[must_use]
    pub fn nonce(&self) -> u64 {
        // A process asks fewer questions than would make two of its nonces meet.
        self.request_prefix.wrapping_add(self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// Appends a command, here or at the leader, and waits until it is applied here. The command
    /// must be stamped with a [`Node::request_id`]: it may be passed on more than once, and takes
    /// effect at most once.
    pub async fn propose(&self, command: Bytes, within: Duration) -> Outcome {
        self.call(command.len(), Call::ProposeUnique { command }, within).await
    }

    /// Waits until this replica has applied everything that was committed before the call.
    pub async fn barrier(&self, within: Duration) -> Outcome {
        self.call(0, Call::Barrier, within).await
    }

    /// Asks a leader that proves itself a question about the state
    /// ([`Call::Confirm`]); whatever is not [`Outcome::Confirmed`] means "unknown".
    pub async fn confirm(&self, question: Bytes, within: Duration) -> Outcome {
        self.call(question.len(), Call::Confirm { question }, within).await
    }

    async fn call(&self, bytes: usize, call: Call, within: Duration) -> Outcome {
        let begun = clock::now();
        let weight = u32::try_from(bytes + CALL_OVERHEAD).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&self.calls).try_acquire_many_owned(weight) else {
            self.metrics.dropped("calls_full");
            return Outcome::NotCommitted(Refusal::Busy);
        };
        let is_write = matches!(call, Call::Propose { .. } | Call::ProposeUnique { .. });
        let (reply, outcome) = oneshot::channel();
        let micros = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
        let deadline = begun.saturating_add(micros);
        let call = Box::new(ClientCall { call, deadline, reply, permit });
        self.metrics.inbox_depth.fetch_add(1, Ordering::Relaxed);
        if self.inbox.send(Input::Call(call)).is_err() {
            return Outcome::NotCommitted(Refusal::Stopping);
        }
        let outcome = match tokio::time::timeout(within.saturating_add(GRACE), outcome).await {
            Ok(Ok(outcome)) => outcome,
            // The core loop ended with the call in its hands.
            Ok(Err(_)) => Outcome::Unknown(Refusal::Stopping),
            Err(_) => Outcome::Unknown(Refusal::Deadline),
        };
        self.metrics.calls.note(clock::now().saturating_sub(begun));
        let late = matches!(
            outcome,
            Outcome::Unknown(Refusal::Deadline) | Outcome::NotCommitted(Refusal::Deadline)
        );
        if is_write && late {
            self.metrics.write_timeouts.fetch_add(1, Ordering::Relaxed);
        }
        outcome
    }

    /// Asks the node to stop in an orderly way; [`Running::join`] returns when it has.
    pub fn stop(&self) {
        if self.inbox.send(Input::Stop).is_err() {
            tracing::debug!("the core loop has already ended");
        }
    }
}
