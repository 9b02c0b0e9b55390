//! Starting and ending a node.

use super::forming::form;
use super::lanes::Lanes;
use super::runtime::{End, Runtime};
use super::scrub::Scrubber;
use super::state::{Phase, State};
use super::walk::Walker;
use super::{CALL_BYTES, Input, Node};
use crate::clock;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::peer::{Deliver, Peers};
use crate::plane::assign;
use crate::plane::worker::Worker;
use crate::vital::vital;
use holdfast_consensus::fault::{LogFault, StopReason};
use holdfast_consensus::handshake::{Hello, PROTOCOL_VERSION};
use holdfast_consensus::replica::{Replica, ReplicaConfig};
use holdfast_consensus::traits::{LogStore, StateMachine};
use holdfast_consensus::{ClusterId, Index, LogId, MemberId};
use holdfast_fsm::entrance;
use holdfast_fsm::plane::{Plane, PlaneError};
use holdfast_fsm::records::VolumeId;
use holdfast_fsm::start::{Plan, StartError, Started};
use holdfast_fsm::{StoreOptions, View};
use holdfast_log::{Home, HomeError, HomeOptions, LogOptions, RealDisk};
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock, RwLock};
use std::thread::JoinHandle;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot};

/// Why a node could not start, or ended.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The data directory cannot be used.
    #[error("data_dir {dir}: {error}")]
    Home {
        /// The directory.
        dir: String,
        /// Why.
        error: HomeError,
    },
    /// The data directory cannot be used (while forming).
    #[error(transparent)]
    Forming(#[from] HomeError),
    /// The directory cannot be made or read.
    #[error("data_dir {dir}: {error}")]
    Disk {
        /// The directory.
        dir: String,
        /// Why.
        error: io::Error,
    },
    /// Log, snapshots and store do not make a replica.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The directories of the node's partitions cannot be used.
    #[error(transparent)]
    Plane(#[from] PlaneError),
    /// The replica stopped, or never started.
    #[error("{0}")]
    Stopped(StopReason),
    /// The log failed while the node ended.
    #[error("{0}")]
    Log(#[from] LogFault),
    /// The system gives no randomness.
    #[error("no random numbers from the system: {0}")]
    Random(io::Error),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// A thread of the node panicked.
    #[error("a thread of the node panicked; the log has the message")]
    Panicked,
}

/// A node whose core loop runs.
pub struct Running {
    /// The handle for clients.
    pub node: Arc<Node>,
    ended: oneshot::Receiver<Result<(), NodeError>>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Waits until the core loop has ended: `Ok` after an orderly stop.
    ///
    /// # Errors
    /// [`NodeError`] if the replica stopped by itself.
    pub async fn join(self) -> Result<(), NodeError> {
        let end = self.ended.await;
        // The sender is dropped before the thread ends, so this does not wait for long.
        if self.thread.join().is_err() {
            return Err(NodeError::Panicked);
        }
        end.unwrap_or(Err(NodeError::Panicked))
    }
}

/// Opens the data directory and starts the node. The member id is durable before the first
/// handshake (R7). Must be called inside a tokio runtime.
///
/// # Errors
/// [`NodeError`]; the directory is untouched if it cannot be used.
pub fn start(config: Config, peer_listener: TcpListener) -> Result<Running, NodeError> {
    let dir = config.data_dir.display().to_string();
    let disk = RealDisk::create(&config.data_dir)
        .map_err(|error| NodeError::Disk { dir: dir.clone(), error })?;
    let options = HomeOptions {
        name: config.name.clone(),
        fresh_member: fresh_member()?,
        log: LogOptions { segment_bytes: config.segment_bytes },
    };
    // What refuses does so before a byte is changed, and says what `explain-restart` says.
    let mut home = entrance::open(disk.clone(), &options, StoreOptions::new)
        .map_err(|(_, error)| NodeError::Home { dir, error })?;
    let (inbox, inputs) = channel();
    let metrics = Arc::new(Metrics::default());
    let me = hello(&config, &mut home);
    let member = me.member;
    let to_core = inbox.clone();
    let deliver: Deliver = Arc::new(move |event| {
        if to_core.send(Input::Peer(event)).is_err() {
            tracing::debug!("a peer spoke after the core loop had ended");
        }
    });
    let peers = Peers::start(
        peer_listener,
        me,
        config.peers(),
        config.token.clone(),
        Arc::clone(&metrics),
        deliver,
    );
    let state = Arc::new(State::new());
    let view = Arc::new(OnceLock::new());
    let node = Arc::new(Node {
        config,
        member,
        metrics,
        peers,
        state,
        view: Arc::clone(&view),
        inbox: inbox.clone(),
        calls: Arc::new(Semaphore::new(CALL_BYTES)),
        request_prefix: clock::random_u64().map_err(NodeError::Random)?,
        requests: AtomicU64::new(0),
        report: RwLock::default(),
    });
    vital("assignment of partitions", assign::run(Arc::clone(&node)));
    let (ending, ended) = oneshot::channel();
    let handle = tokio::runtime::Handle::current();
    let core = Core { node: Arc::clone(&node), home, disk, inbox, view, handle };
    let thread = std::thread::Builder::new()
        .name("holdfast-core".into())
        .spawn(move || {
            let end = core.run(inputs);
            if ending.send(end).is_err() {
                tracing::debug!("nobody waits for the end of the core loop");
            }
        })
        .map_err(NodeError::Thread)?;
    Ok(Running { node, ended, thread })
}

fn fresh_member() -> Result<MemberId, NodeError> {
    let id = clock::random_u64().map_err(NodeError::Random)?;
    // Zero means "nobody".
    Ok(MemberId(id.max(1)))
}

fn hello(config: &Config, home: &mut Home<RealDisk>) -> Hello {
    let recovered = home.log().recovered();
    let identity = home.identity();
    let forming = config.forming();
    let unformed = identity.cluster == ClusterId::default();
    Hello {
        protocol: PROTOCOL_VERSION,
        name: config.name.clone(),
        member: identity.member,
        cluster: identity.cluster,
        epoch: identity.epoch,
        group: 0,
        boot: recovered.boot,
        term: recovered.hard.term,
        durable: recovered.last,
        commit: recovered.commit,
        forming: (unformed && !forming.is_empty()).then_some(forming),
        membership: recovered.memberships.last().map(|(_, m)| m.clone()).unwrap_or_default(),
        http: config.http_advertise.clone(),
        build: env!("CARGO_PKG_VERSION").to_owned(),
        newest_type: holdfast_fsm::command::kind::NEWEST,
        volume: 0,
    }
}

/// What the core thread owns before there is a replica.
struct Core {
    node: Arc<Node>,
    home: Home<RealDisk>,
    disk: RealDisk,
    inbox: Sender<Input>,
    view: Arc<OnceLock<View>>,
    handle: tokio::runtime::Handle,
}

impl Core {
    fn run(self, inputs: Receiver<Input>) -> Result<(), NodeError> {
        let state = Arc::clone(&self.node.state);
        let end = self.run_replica(inputs);
        if let Err(error) = &end {
            let text = error.to_string();
            tracing::error!("the node stops: {text}");
            state.update(|p| p.phase = Phase::Stopped(text));
        }
        end
    }

    fn run_replica(mut self, inputs: Receiver<Input>) -> Result<(), NodeError> {
        let node = &self.node;
        if !form(&mut self.home, &node.config, &node.peers, &node.state, &inputs)? {
            return Ok(());
        }
        // The guard keeps the directory ours until this function returns.
        let identity = self.home.identity().clone();
        let options = StoreOptions::new(identity.cluster, identity.epoch);
        let Started { lock: _lock, identity, mut log, store: mut machine, plan } =
            holdfast_fsm::start::start(self.home, self.disk.clone(), options)?;
        report_plan(&plan);
        let boot = log.recovered().boot;
        let seed = clock::random_u64().map_err(NodeError::Random)?;
        let config = replica_config(&node.config, identity.member);
        let replica = Replica::open(config, seed, &mut log, &mut machine, clock::now())
            .map_err(NodeError::Stopped)?;
        // Whose it is was asked before the log was opened; made only for a member that runs.
        let plane = open_plane(self.disk, identity.cluster, node)?;
        warn_of_new_volume(&plane, log.recovered().last);
        let (walker, view) = (Walker::start(machine.view())?, machine.view());
        if self.view.set(machine.view()).is_err() {
            tracing::error!("the view was set twice");
        }
        let scrubber = Scrubber::start(log.reader().scrub(), node, &self.inbox)?;
        let lanes =
            Lanes::start(log, machine, &self.inbox, &node.metrics).map_err(NodeError::Thread)?;
        let (keeper, handle) = (Arc::clone(node), self.handle.clone());
        let worker = Worker::start(keeper, plane, view, handle).map_err(NodeError::Thread)?;
        let mut runtime = Runtime::new(replica, inputs, lanes, node, boot);
        let end = runtime.run();
        runtime.dismiss();
        let Runtime { replica, lanes, .. } = runtime;
        let status = replica.status(clock::now());
        worker.join();
        walker.join();
        scrubber.join();
        let owned = lanes.join();
        match end {
            End::Stopped(reason) => Err(NodeError::Stopped(reason)),
            // Not a byte of a held member changes, at its end neither.
            End::Asked if status.held.is_some() => Ok(()),
            End::Asked => {
                let (mut log, mut machine) = owned.ok_or(NodeError::Panicked)?;
                close(&mut log, &mut machine, status.proved, status.commit)
            }
        }
    }
}

/// Opens the directories of the node's partitions, and tells the peers which disk they are on.
fn open_plane(
    disk: RealDisk,
    cluster: ClusterId,
    node: &Node,
) -> Result<Plane<RealDisk>, NodeError> {
    let mut fresh = [0; 16];
    clock::fill_random(&mut fresh).map_err(NodeError::Random)?;
    // Zero means "no disk".
    let fresh = VolumeId(u128::from_le_bytes(fresh).max(1));
    let plane = Plane::open(disk, cluster, &node.config.name, fresh)?;
    let volume = plane.volume().volume;
    node.peers.present(true, |me| me.volume = volume.0);
    Ok(plane)
}

/// A member that has lived gets a new volume: the partitions of the old one have no copy here.
fn warn_of_new_volume(plane: &Plane<RealDisk>, last: LogId) {
    // The first entry is the configuration that formed the cluster.
    if plane.is_new() && last.index > Index(1) {
        tracing::warn!(
            "the data directory holds entries up to {last} but no data plane: this node goes on with the new volume \
             {}. Partitions that were placed on another volume of it stay assigned to that one and have no copy here; \
             if their directory `data` is to be had, stop this node, put it back in the place of the new one, and start",
            plane.volume().volume
        );
    }
}

/// Says how the store starts.
fn report_plan(plan: &Plan) {
    let text = plan_text(plan);
    match plan {
        Plan::Fresh | Plan::Replay { .. } | Plan::Install { .. } => tracing::info!("{text}"),
        Plan::Look { .. } | Plan::SetAside { .. } | Plan::Refuse(_) => tracing::error!("{text}"),
    }
}

/// What a start does with the store, in words.
pub(crate) fn plan_text(plan: &Plan) -> String {
    match plan {
        Plan::Fresh => "the store starts empty".to_owned(),
        Plan::Replay { from } => format!("the log feeds the store from {from} on"),
        Plan::Install { snapshot } => {
            format!("the store is restored from the snapshot through {snapshot}")
        }
        Plan::Look { held } => format!(
            "this member is held: {held}. It neither votes nor acknowledges, changes no byte of its \
             log and store, and gives others the entries that it can read"
        ),
        Plan::SetAside { why } => format!("the store is set aside and rebuilt: {why}"),
        Plan::Refuse(why) => why.to_string(),
    }
}

/// An orderly end: the store made durable (only what the log holds durably, R22), and the log's
/// end recorded, so that the next start applies nothing again.
fn close<L: LogStore, M: StateMachine>(
    log: &mut L,
    machine: &mut M,
    durable: LogId,
    commit: Index,
) -> Result<(), NodeError> {
    let applied = machine.applied();
    if applied.last.index <= durable.index && applied.durable != applied.last {
        match machine.checkpoint() {
            Ok(applied) => tracing::info!("the store is durable through {}", applied.last),
            // The log feeds it again at the next start.
            Err(fault) => tracing::warn!("no checkpoint at the end: {fault}"),
        }
    }
    // The second call makes the first one durable.
    log.watermark(commit)?;
    log.watermark(commit)?;
    Ok(())
}

fn replica_config(config: &Config, member: MemberId) -> ReplicaConfig {
    let mut replica = ReplicaConfig::new(member);
    replica.core.heartbeat = config.timing.heartbeat_ms * 1000;
    replica.core.election_min = config.timing.election_min_ms * 1000;
    replica.core.election_max = config.timing.election_max_ms * 1000;
    replica.snapshot_entries = config.snapshot_entries;
    replica.kept_entries = config.kept_entries;
    replica
}
