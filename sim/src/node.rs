//! One simulated machine: a disk, a clock, and at times a process that runs a replica.

use crate::check::ground::Ground;
use crate::check::promises::Promises;
use crate::check::read_your_writes::Answered;
use crate::check::watermarks::Watermarks;
use crate::profile::Setup;
use crate::shadow::Shadow;
use holdfast_consensus::bootstrap::Forming;
use holdfast_consensus::handshake::{Hello, PROTOCOL_VERSION};
use holdfast_consensus::io::CoreConfig;
use holdfast_consensus::job::{Job, Lane};
use holdfast_consensus::replica::{Replica, ReplicaConfig};
use holdfast_consensus::traits::{LogStore, StateMachine};
use holdfast_consensus::{ClusterId, Index, MemberId, Micros};
use holdfast_fsm::start::{Started, start};
use holdfast_fsm::{Metastore, StoreOptions, View};
use holdfast_log::{Home, HomeOptions, Log, LogOptions, MemDisk, Scrub};
use std::collections::{BTreeMap, BTreeSet};

/// The log under test.
pub type TheLog = Log<MemDisk>;
/// The state machine under test.
pub type TheMachine = Metastore<MemDisk>;
/// The replica under test.
pub type TheReplica = Replica<TheLog, TheMachine>;

/// A clock that starts somewhere and is a little fast or slow, but never goes back.
#[derive(Copy, Clone, Debug)]
pub struct Clock {
    /// What it showed at `since`.
    offset: Micros,
    /// The true time at which its rate was set.
    since: Micros,
    /// Millionths by which it runs fast (or slow, if negative).
    drift: i64,
}

impl Clock {
    /// A clock that shows `offset` at time zero.
    #[must_use]
    pub const fn new(offset: Micros, drift: i64) -> Self {
        Self { offset, since: 0, drift }
    }

    /// It runs at another rate from this true time on.
    pub fn set_rate(&mut self, now: Micros, drift: i64) {
        *self = Self { offset: self.show(now), since: now, drift };
    }

    /// It moves forward at once.
    pub const fn jump(&mut self, by: Micros) {
        self.offset += by;
    }

    /// What it shows at a true time.
    #[must_use]
    pub fn show(&self, now: Micros) -> Micros {
        let now = now.saturating_sub(self.since);
        // In 64 bits as far as they go: this is asked several times in every step.
        let narrow = i64::try_from(now).ok().and_then(|now| now.checked_mul(self.drift));
        let gain = match narrow {
            Some(product) => i128::from(product / 1_000_000),
            None => i128::from(now) * i128::from(self.drift) / 1_000_000,
        };
        let shown = i128::from(now) + gain + i128::from(self.offset);
        Micros::try_from(shown.max(0)).unwrap_or(Micros::MAX)
    }

    /// The first true time, not before `now`, at which it shows `shown`.
    #[must_use]
    pub fn when(&self, shown: Micros, now: Micros) -> Micros {
        let left = i128::from(shown) - i128::from(self.show(now));
        if left <= 0 {
            return now;
        }
        let narrow = i64::try_from(left).ok().and_then(|left| left.checked_mul(1_000_000));
        let span = match narrow {
            Some(product) => i128::from(product / (1_000_000 + self.drift)),
            None => left * 1_000_000 / (1_000_000 + i128::from(self.drift)),
        };
        now.saturating_add(Micros::try_from(span + 1).unwrap_or(Micros::MAX))
    }
}

/// A process that runs a replica.
pub struct Process {
    /// The replica.
    pub replica: TheReplica,
    /// Jobs that are out.
    pub lanes: BTreeMap<Lane, Job<TheLog, TheMachine>>,
    /// Local reads.
    pub view: View,
    /// The log: owned by the log lane.
    pub log: TheLog,
    /// Verifies its sealed segments again.
    pub scrub: Scrub<MemDisk>,
    /// The state machine: owned by the apply lane.
    pub machine: TheMachine,
    /// Cluster and epoch.
    pub cluster: (ClusterId, u64),
    /// Its log proves too little: it promises nothing (R5).
    pub held: bool,
    boot: u64,
    _lock: Box<dyn Send + Sync>,
}

/// What runs on a machine.
pub enum State {
    /// Nothing.
    Down,
    /// A member that waits for a cluster.
    Forming(Box<(Home<MemDisk>, Forming)>),
    /// A member of the cluster.
    Up(Box<Process>),
}

/// One machine.
pub struct Node {
    /// Configured name.
    pub name: String,
    /// Its disk.
    pub disk: MemDisk,
    /// Its clock.
    pub clock: Clock,
    /// What runs on it.
    pub state: State,
    /// Number of the process: events of earlier ones are void.
    pub life: u64,
    /// The process stands still.
    pub paused: bool,
    /// Number of the pause: an end that was planned for an earlier one is void.
    pub pause: u64,
    /// Lanes whose work does not end before somebody lets it.
    pub stuck: BTreeSet<Lane>,
    /// Nothing starts it until somebody says so.
    pub kept_down: bool,
    /// The disk is slow until then.
    pub stalled_until: Micros,
    /// One lane of it is, until then.
    pub lane_stalled: Option<(Lane, Micros)>,
    /// The next job takes so much longer.
    pub hang: Option<Micros>,
    /// It dies soon after each of so many further starts.
    pub loops: u64,
    /// Crash after this many more effects, and how.
    pub effect_plan: Option<(u64, bool)>,
    /// Crash when the fuse of the disk has blown, and how.
    pub fuse_plan: Option<bool>,
    /// Operations of the disk that had failed for want of space or by plan when it last started.
    pub failures: (u64, u64),
    /// When it wants to be woken.
    pub wake_at: Option<Micros>,
    /// The wake that is in the queue: never later than the wanted one. A deadline that moves away,
    /// as an election timer does with every heartbeat, costs no event.
    pub wake_queued: Option<Micros>,
    /// What it told others, in all its lives.
    pub promises: Promises,
    /// What its log has confirmed, in all its lives.
    pub ground: Ground,
    /// What the running process has answered.
    pub answered: Answered,
    /// Marks of the running process.
    pub marks: Watermarks,
    /// Its log as the effects say it is.
    pub shadow: Shadow,
    /// Highest index it applied in any life.
    pub applied_ever: Index,
    /// Somebody damaged what its disk had synced, and that shows until it is repaired.
    pub damaged: bool,
    /// Damaged since its log was last proved, or with entries that nobody has given back yet.
    pub sick: bool,
    /// Why it refused to start over the damage; nobody starts it again.
    pub refused: Option<String>,
    /// Its member id, once it has one.
    pub member: MemberId,
}

/// How a start ended.
pub enum Boot {
    /// Waits for a cluster.
    Forming(Box<(Home<MemDisk>, Forming)>),
    /// Runs.
    Up(Box<Process>),
}

impl Node {
    /// A machine that was never switched on.
    #[must_use]
    pub fn new(name: String, clock: Clock) -> Self {
        Self {
            name,
            disk: MemDisk::new(),
            clock,
            state: State::Down,
            life: 0,
            paused: false,
            pause: 0,
            stuck: BTreeSet::new(),
            kept_down: false,
            stalled_until: 0,
            lane_stalled: None,
            hang: None,
            loops: 0,
            effect_plan: None,
            fuse_plan: None,
            failures: (0, 0),
            wake_at: None,
            wake_queued: None,
            promises: Promises::default(),
            ground: Ground::default(),
            answered: Answered::default(),
            marks: Watermarks::default(),
            shadow: Shadow::default(),
            applied_ever: Index(0),
            damaged: false,
            sick: false,
            refused: None,
            member: MemberId::default(),
        }
    }

    /// True while a process runs.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        !matches!(self.state, State::Down)
    }

    /// True while a replica runs that is held (R5).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.process().is_some_and(|process| process.held)
    }

    /// The process, if it runs a replica.
    #[must_use]
    pub fn process(&self) -> Option<&Process> {
        match &self.state {
            State::Up(process) => Some(process),
            State::Down | State::Forming(_) => None,
        }
    }

    /// As [`Node::process`].
    pub fn process_mut(&mut self) -> Option<&mut Process> {
        match &mut self.state {
            State::Up(process) => Some(process),
            State::Down | State::Forming(_) => None,
        }
    }

    /// What the running process presents to its peers.
    #[must_use]
    pub fn hello(&self) -> Option<Hello> {
        let mut hello = Hello {
            protocol: PROTOCOL_VERSION,
            name: self.name.clone(),
            member: self.member,
            cluster: ClusterId::default(),
            epoch: 0,
            group: 0,
            boot: 0,
            term: holdfast_consensus::Term(0),
            durable: holdfast_consensus::LogId::default(),
            commit: Index(0),
            forming: None,
            membership: holdfast_consensus::Membership::default(),
            http: String::new(),
            build: String::new(),
            newest_type: 0,
            volume: 0,
        };
        match &self.state {
            State::Down => return None,
            State::Forming(waiting) => hello.forming = waiting.1.advertised(),
            State::Up(process) => {
                (hello.cluster, hello.epoch) = process.cluster;
                hello.boot = process.boot;
                let status = process.replica.status(0);
                hello.term = status.hard.term;
                hello.durable = status.proved;
                hello.commit = status.commit;
                hello.membership = status.membership;
            }
        }
        Some(hello)
    }
}

/// Opens the data directory of a node as `serve` would.
///
/// # Errors
/// The refusal in words.
pub fn open(
    node: &Node,
    setup: &Setup,
    initial: &[String],
    fresh: MemberId,
    seed: u64,
    now: Micros,
) -> Result<(MemberId, Boot), String> {
    let options = HomeOptions {
        name: node.name.clone(),
        fresh_member: fresh,
        log: LogOptions { segment_bytes: setup.segment_bytes },
    };
    let home = Home::open(node.disk.clone(), &options).map_err(|e| e.to_string())?;
    let member = home.identity().member;
    if home.is_formed() {
        return Ok((member, Boot::Up(Box::new(run(node, home, setup, seed, now)?))));
    }
    let forming = Forming::new(&node.name, member, initial);
    Ok((member, Boot::Forming(Box::new((home, forming)))))
}

/// Starts the replica of a member that belongs to a cluster.
///
/// # Errors
/// The refusal in words.
pub fn run(
    node: &Node,
    home: Home<MemDisk>,
    setup: &Setup,
    seed: u64,
    now: Micros,
) -> Result<Process, String> {
    let options = StoreOptions::small(home.identity().cluster, home.identity().epoch);
    let started = start(home, node.disk.clone(), options).map_err(|e| e.to_string())?;
    let Started { lock, identity, mut log, store: mut machine, plan: _ } = started;
    let recovered = log.recovered();
    let (boot, held) = (recovered.boot, recovered.held.is_some());
    let config = ReplicaConfig {
        // Small bounds, so that runs meet them.
        core: CoreConfig {
            cache_bytes: 8 << 10,
            append_bytes: 16 << 10,
            window_bytes: 48 << 10,
            window_messages: 12,
            uncommitted_bytes: 256 << 10,
            command_bytes: 64 << 10,
            heartbeat: setup.heartbeat,
            election_min: 3 * setup.heartbeat,
            election_max: setup.election_max(),
            ..CoreConfig::new(identity.member)
        },
        waiting_bytes: 256 << 10,
        snapshot_entries: setup.snapshot_entries,
        kept_entries: setup.kept_entries,
        checkpoint_bytes: setup.checkpoint_bytes,
        checkpoint_after: setup.checkpoint_after,
        ..ReplicaConfig::new(identity.member)
    };
    let replica = Replica::open(config, seed, &mut log, &mut machine, node.clock.show(now))
        .map_err(|e| e.to_string())?;
    Ok(Process {
        replica,
        lanes: BTreeMap::new(),
        view: machine.view(),
        scrub: log.reader().scrub(),
        log,
        machine,
        cluster: (identity.cluster, identity.epoch),
        held,
        boot,
        _lock: lock,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_run_at_their_own_rate_and_invert() {
        for drift in [-30_000, 0, 30_000] {
            let clock = Clock::new(500, drift);
            for shown in [600, 10_000, 5_000_000] {
                let at = clock.when(shown, 0);
                assert!(clock.show(at) >= shown, "{drift} {shown}");
                assert!(clock.show(at.saturating_sub(3)) <= shown, "{drift} {shown}");
            }
            assert_eq!(clock.when(10, 1000), 1000, "already passed");
        }
    }

    #[test]
    fn a_clock_that_changes_its_rate_or_jumps_never_goes_back() {
        let mut clock = Clock::new(500, 20_000);
        assert_eq!(clock.show(1_000_000), 1_020_500);
        clock.set_rate(1_000_000, -20_000);
        assert_eq!(clock.show(1_000_000), 1_020_500, "no step");
        assert_eq!(clock.show(2_000_000), 2_000_500);
        clock.jump(7);
        assert_eq!(clock.show(2_000_000), 2_000_507);
        let at = clock.when(3_000_000, 2_000_000);
        assert!(clock.show(at) >= 3_000_000 && clock.show(at - 3) <= 3_000_000);
    }
}
