//! What a run is made of, drawn from its seed: swarm testing (Groce et al. 2012), where each seed
//! has its own subset and strength of faults, its own cluster and its own workload, so that one
//! fault does not hide what another would have shown.

use crate::choices::{Actor, Choices, Stream};
use holdfast_consensus::Micros;

/// Names of the profiles, for usage texts.
pub const PROFILES: [&str; 3] = ["default", "calm", "load"];

/// The product's heartbeat interval.
const HEARTBEAT: Micros = 50_000;
/// Operations that the clients of a run of `load` want together.
const LOAD_OPERATIONS: u64 = 244;
/// Virtual time over which they want them.
const LOAD_LASTS: Micros = 50_000_000;

/// A family of runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Every fault that the product must answer, each seed with its own mixture.
    Default,
    /// No faults at all.
    Calm,
    /// Five nodes that are written to steadily for about a minute, with every fault on.
    Load,
}

impl Profile {
    /// The profile of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Default, Self::Calm, Self::Load].into_iter().find(|p| p.name() == name)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Calm => "calm",
            Self::Load => "load",
        }
    }
}

/// Declares the faults with their names in one place.
macro_rules! faults {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A fault that the nemesis may inject.
        #[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FaultKind { $($(#[$doc])* $variant,)* }

        /// All of them.
        pub const FAULTS: &[FaultKind] = &[$(FaultKind::$variant),*];

        impl FaultKind {
            /// Its name on a tape.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

faults! {
    /// Power loss of one node between two events.
    PowerLoss = "power-loss",
    /// Kill -9 of one node between two events.
    Kill = "kill",
    /// Power loss or kill between two effects of one step.
    EffectBoundary = "effect-boundary",
    /// Power loss or kill after n more operations of the disk.
    Fuse = "fuse",
    /// Power loss of every node at once.
    Blackout = "blackout",
    /// A link is cut in one direction.
    CutOneWay = "cut-one-way",
    /// A link is cut in both directions.
    CutLink = "cut-link",
    /// One node is cut off from all others.
    Isolate = "isolate",
    /// The nodes are divided into two groups.
    Split = "split",
    /// A process stands still for a while.
    Pause = "pause",
    /// A disk is slow for a while.
    Stall = "stall",
    /// A sync of the log fails.
    SyncFailure = "sync-failure",
    /// A write or sync of the store or of a snapshot fails.
    StoreFailure = "store-failure",
    /// A disk is full for a while.
    Full = "full",
    /// Leadership is handed to somebody.
    Transfer = "transfer",
    /// Most of what goes one way of a link is lost.
    LossyLink = "lossy-link",
    /// A link takes its time for every byte.
    SlowLink = "slow-link",
    /// Nothing arrives one way of a link for a while, and then everything at once.
    Dam = "dam",
    /// Two groups hear each other through one node only.
    Bridge = "bridge",
    /// Messages of long ago arrive once more.
    Replay = "replay",
    /// One lane of a process is slow for a while.
    StallLane = "stall-lane",
    /// One job takes very long.
    Hang = "hang",
    /// One lane of a process stands still for a while.
    PauseLane = "pause-lane",
    /// A process is killed while it stands still.
    KillPaused = "kill-paused",
    /// A process dies soon after each of its next starts.
    RestartLoop = "restart-loop",
    /// A read of the store or of a snapshot fails.
    ReadFailure = "read-failure",
    /// A clock runs at another rate from now on.
    ClockRate = "clock-rate",
    /// A clock jumps forward.
    ClockJump = "clock-jump",
    /// The leader stands still until another leads.
    StaleLeader = "stale-leader",
    /// The disk of the leader is full for a while.
    FullLeader = "full-leader",
    /// The disks of a majority are full for a while.
    FullMajority = "full-majority",
    /// Every disk but the leader's is full, and the leader stands still.
    FullVote = "full-vote",
    /// A disk is full while a snapshot is written to it.
    FullSnapshot = "full-snapshot",
    /// A disk is full when its process starts.
    FullRestart = "full-restart",
    /// Bits of a log change that were synced and are known durable, while its process is down.
    Rot = "rot",
}

/// What the clients of a run do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Everything there is.
    Mixed,
    /// Writes of the kv table only.
    WriteHeavy,
    /// Most operations are barriers with reads.
    ReadHeavy,
    /// Topics are created and deleted.
    Topics,
    /// Nothing for a while, then many at once.
    Bursts,
    /// Everybody writes one key.
    HotKey,
    /// Values of several thousand bytes.
    BigValues,
    /// No client writes at all.
    Idle,
}

/// Every workload with its name on a tape and its weight in a draw.
const WORKLOADS: [(Workload, &str, u64); 8] = [
    (Workload::Mixed, "mixed", 5),
    (Workload::WriteHeavy, "write-heavy", 3),
    (Workload::ReadHeavy, "read-heavy", 2),
    (Workload::Topics, "topics", 2),
    (Workload::Bursts, "bursts", 2),
    (Workload::HotKey, "hot-key", 2),
    (Workload::BigValues, "big-values", 2),
    (Workload::Idle, "idle", 1),
];

/// What a client may do in one operation, by the names that a tape has for it.
pub const OPERATIONS: [&str; 6] =
    ["nothing", "put", "cas", "delete", "create-topic", "delete-topic"];

impl Workload {
    /// Weights of the [`OPERATIONS`], in their order; `nothing` is for tapes alone.
    #[must_use]
    pub const fn weights(self) -> [u64; 6] {
        match self {
            Self::WriteHeavy | Self::BigValues => [0, 70, 15, 15, 0, 0],
            Self::HotKey => [0, 45, 45, 10, 0, 0],
            Self::Topics => [0, 10, 0, 0, 50, 40],
            Self::Mixed | Self::ReadHeavy | Self::Bursts | Self::Idle => [0, 50, 18, 12, 12, 8],
        }
    }

    /// Chance that an operation is a barrier with a read, and that an attempt reads locally first.
    #[must_use]
    pub const fn reads(self) -> (u64, u64) {
        match self {
            Self::ReadHeavy => (600, 600),
            Self::WriteHeavy => (30, 50),
            _ => (120, 150),
        }
    }
}

/// The settings of one run. Times in microseconds, chances in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Members of the cluster.
    pub nodes: usize,
    /// Clients.
    pub clients: usize,
    /// What they do.
    pub workload: Workload,
    /// Acknowledged operations that each client wants.
    pub quota: u64,
    /// Mean pause of a client between two operations.
    pub think: Micros,
    /// Faults do not end before this.
    pub active_min: Micros,
    /// Faults end at this, whatever the clients have reached.
    pub active_max: Micros,
    /// Heartbeat interval; the election timeout is three to six of these, as in the product.
    pub heartbeat: Micros,
    /// Largest value written, in bytes.
    pub value_bytes: u64,
    /// Distinct keys.
    pub keys: u64,
    /// Entries between snapshots.
    pub snapshot_entries: u64,
    /// Entries kept behind a snapshot.
    pub kept_entries: u64,
    /// Weight of applied entries between checkpoints.
    pub checkpoint_bytes: u64,
    /// Longest time between checkpoints.
    pub checkpoint_after: Micros,
    /// Length of a log segment in bytes.
    pub segment_bytes: u64,
    /// Time between two steps of the scrub of every log; zero for none.
    pub scrub: Micros,
    /// Shortest delay of a message.
    pub delay: Micros,
    /// Random part of the delay.
    pub jitter: Micros,
    /// Latency of disk operations, in hundredths of the usual.
    pub disk_latency: u64,
    /// Chance that a message is lost.
    pub loss: u64,
    /// Chance that a message arrives twice.
    pub duplicate: u64,
    /// Chance that a message is held back and overtaken.
    pub reorder: u64,
    /// Longest time that it is held back.
    pub held: Micros,
    /// True if messages go through their encoding.
    pub codec: bool,
    /// Largest deviation of a clock, in millionths.
    pub drift: u64,
    /// Mean time between two injected faults; zero for none.
    pub nemesis: Micros,
    /// The faults that may be injected; one that stands here twice strikes twice as often.
    pub faults: Vec<FaultKind>,
    /// Chance that a start is cut short by a crash.
    pub boot_fuse: u64,
    /// The last crash of every node, at the end of the run, is a loss of power and no kill.
    pub last_crash_is_power: bool,
}

impl Setup {
    /// The longest election timeout.
    #[must_use]
    pub const fn election_max(&self) -> Micros {
        6 * self.heartbeat
    }

    /// Mean pause of a client before its operation of this number.
    #[must_use]
    pub const fn pause_before(&self, operation: u64) -> Micros {
        match self.workload {
            Workload::Bursts if operation.is_multiple_of(16) => 1_500_000,
            Workload::Bursts => 500,
            _ => self.think,
        }
    }

    /// Draws the settings of a run.
    pub fn draw(profile: Profile, choices: &mut Choices) -> Self {
        choices.enter_at(Stream::Setup, Actor::World, 0);
        let mut setup = Self::base(profile, choices);
        setup.draw_workload(profile, choices);
        match profile {
            Profile::Default => setup.draw_faults(choices, 550),
            Profile::Calm => {}
            Profile::Load => {
                setup.draw_faults(choices, 1000);
                setup.nemesis = choices.between("load-nemesis", 4_000_000, 12_000_000);
            }
        }
        let faulty = !setup.faults.is_empty();
        setup.last_crash_is_power = choices.observe("last-crash-is-power", faulty);
        choices.leave();
        setup
    }

    fn base(profile: Profile, choices: &mut Choices) -> Self {
        let load = profile == Profile::Load;
        let nodes: &[u64] = if load { &[5] } else { &[3, 3, 3, 3, 3, 1, 2, 4, 5, 5, 5, 6, 7] };
        let nodes = choices.choose("nodes", (1, 7), nodes);
        let wan = choices.chance("wan", 250);
        let mut between = |name, low, high| choices.between(name, low, high);
        Self {
            nodes: usize::try_from(nodes).unwrap_or(3),
            clients: 1,
            workload: Workload::Mixed,
            quota: 0,
            think: 0,
            active_min: 0,
            active_max: 40_000_000,
            heartbeat: HEARTBEAT,
            value_bytes: 120,
            keys: between("keys", 2, 12),
            snapshot_entries: between("snapshot-entries", 8, 80),
            kept_entries: between("kept-entries", 0, 40),
            checkpoint_bytes: between("checkpoint-bytes", 500, 40_000),
            checkpoint_after: between("checkpoint-after", 50_000, 6_000_000),
            segment_bytes: between("segment-pages", 8, 24) * 4096,
            scrub: 0,
            delay: if wan { between("delay", 2_000, 15_000) } else { between("delay", 20, 400) },
            jitter: if wan { between("jitter", 100, 10_000) } else { between("jitter", 10, 600) },
            disk_latency: choices.choose("disk-latency", (1, 1_000), &[100, 100, 100, 20, 300]),
            loss: 0,
            duplicate: 0,
            reorder: 0,
            held: 0,
            codec: choices.chance("codec", 250),
            drift: 0,
            nemesis: 0,
            faults: Vec::new(),
            boot_fuse: 0,
            last_crash_is_power: false,
        }
    }

    fn draw_workload(&mut self, profile: Profile, choices: &mut Choices) {
        let load = profile == Profile::Load;
        let named: Vec<(&str, u64)> = WORKLOADS.iter().map(|w| (w.1, w.2)).collect();
        if !load {
            self.workload = WORKLOADS[choices.among("workload", &named)].0;
        }
        let clients =
            choices.between("clients", if load { 4 } else { 1 }, if load { 12 } else { 8 });
        self.clients = usize::try_from(clients).unwrap_or(1);
        let total = if load { LOAD_OPERATIONS } else { choices.between("operations", 180, 420) };
        let slow = [2_000, 2_000, 20_000, 60_000];
        self.think = if load { 1_000 } else { choices.choose("think", (0, 1_000_000), &slow) };
        self.quota = total.div_ceil(clients);
        if load {
            self.think = LOAD_LASTS / self.quota;
            self.active_max = 2 * LOAD_LASTS;
            self.heartbeat = 2 * HEARTBEAT;
            self.checkpoint_bytes = 64 << 10;
            self.checkpoint_after = choices.between("load-checkpoint", 2_000_000, 10_000_000);
        }
        match self.workload {
            Workload::Idle => {
                self.quota = 0;
                self.active_min = choices.between("idle-for", 3_000_000, 20_000_000);
            }
            Workload::HotKey => self.keys = 1,
            Workload::BigValues => {
                self.value_bytes = choices.between("value-bytes", 2_000, 8_000);
                self.quota = self.quota.div_ceil(2);
            }
            Workload::ReadHeavy => self.quota += self.quota / 2,
            _ => {}
        }
    }

    /// In three of eight runs the faults crowd on one weak place: snapshots and their install, a
    /// leader that does not know it is none, or a full disk.
    fn draw_focus(&mut self, choices: &mut Choices) {
        use FaultKind as Kind;
        let (times, crowd): (usize, &[Kind]) =
            match choices.choose("focus", (0, 3), &[0, 0, 0, 0, 0, 1, 2, 3]) {
                1 => {
                    self.snapshot_entries = choices.between("focus-entries", 6, 24);
                    self.kept_entries = 0;
                    let crowd =
                        &[Kind::Isolate, Kind::KillPaused, Kind::SlowLink, Kind::FullSnapshot];
                    (3, crowd)
                }
                2 => (5, &[Kind::StaleLeader, Kind::PauseLane, Kind::CutOneWay, Kind::Replay]),
                3 => (
                    3,
                    &[
                        Kind::FullLeader,
                        Kind::FullMajority,
                        Kind::FullVote,
                        Kind::FullSnapshot,
                        Kind::FullRestart,
                    ],
                ),
                _ => return,
            };
        for _ in 0..times {
            self.faults.extend(crowd);
        }
    }

    /// Each fault is in with a chance of `each` thousandths, and then with its own strength.
    fn draw_faults(&mut self, choices: &mut Choices, each: u64) {
        for fault in FAULTS {
            if choices.chance(fault.name(), each) {
                let strength = choices.choose(fault.name(), (1, 4), &[1, 1, 2, 4]);
                self.faults.extend((0..strength).map(|_| *fault));
            }
        }
        self.draw_focus(choices);
        let mut on = |name, high| match choices.chance(name, each) {
            true => choices.between(name, 1, high),
            false => 0,
        };
        self.loss = on("loss", 80);
        self.duplicate = on("duplicate", 80);
        self.reorder = on("reorder", 80);
        self.drift = on("drift", 30_000);
        self.boot_fuse = on("boot-fuse", 300);
        self.held = choices.between("held", 2_000, 400_000);
        self.nemesis = choices.between("nemesis", 150_000, 2_500_000);
    }
}
