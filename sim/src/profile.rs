//! What a run is made of, drawn from its seed: swarm testing, where each seed has its own subset
//! and strength of faults, so that one fault does not hide what another would have shown.

use crate::choices::{Choices, Stream};
use holdfast_consensus::Micros;

const SETUP: Stream = Stream::Setup;

/// Names of the profiles, for usage texts.
pub const PROFILES: [&str; 3] = ["default", "calm", "load"];

/// A family of runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Every fault that the product must answer, each seed with its own mixture.
    Default,
    /// No faults at all.
    Calm,
    /// Five nodes under heavy load with every fault on.
    Load,
}

impl Profile {
    /// The profile of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "default" => Some(Self::Default),
            "calm" => Some(Self::Calm),
            "load" => Some(Self::Load),
            _ => None,
        }
    }
}

/// A fault that the nemesis may inject.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// Power loss of one node between two events.
    PowerLoss,
    /// Kill -9 of one node between two events.
    Kill,
    /// Power loss or kill between two effects of one step.
    EffectBoundary,
    /// Power loss or kill after n more operations of the disk.
    Fuse,
    /// Power loss of every node at once.
    Blackout,
    /// A link is cut in one direction.
    CutOneWay,
    /// A link is cut in both directions.
    CutLink,
    /// One node is cut off from all others.
    Isolate,
    /// The nodes are divided into two groups.
    Split,
    /// A process stands still for a while.
    Pause,
    /// A disk is slow for a while.
    Stall,
    /// A sync of the log fails.
    SyncFailure,
    /// A write or sync of the store or of a snapshot fails.
    StoreFailure,
    /// A disk is full for a while.
    Full,
    /// Leadership is handed to somebody.
    Transfer,
}

/// All of them.
pub const FAULTS: [FaultKind; 15] = [
    FaultKind::PowerLoss,
    FaultKind::Kill,
    FaultKind::EffectBoundary,
    FaultKind::Fuse,
    FaultKind::Blackout,
    FaultKind::CutOneWay,
    FaultKind::CutLink,
    FaultKind::Isolate,
    FaultKind::Split,
    FaultKind::Pause,
    FaultKind::Stall,
    FaultKind::SyncFailure,
    FaultKind::StoreFailure,
    FaultKind::Full,
    FaultKind::Transfer,
];

/// The settings of one run. Times in microseconds, chances in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Members of the cluster.
    pub nodes: usize,
    /// Clients.
    pub clients: usize,
    /// Acknowledged operations that each client wants.
    pub quota: u64,
    /// Mean pause of a client between two operations.
    pub think: Micros,
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
    /// Shortest delay of a message.
    pub delay: Micros,
    /// Random part of the delay.
    pub jitter: Micros,
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
    /// The faults that may be injected.
    pub faults: Vec<FaultKind>,
    /// Chance that a start is cut short by a crash.
    pub boot_fuse: u64,
}

impl Setup {
    /// Draws the settings of a run.
    pub fn draw(profile: Profile, choices: &mut Choices) -> Self {
        let mut setup = Self::base(choices);
        match profile {
            Profile::Default => setup.draw_faults(choices, 550),
            Profile::Calm => {}
            Profile::Load => {
                setup.nodes = 5;
                setup.clients = 16;
                setup.quota = 40;
                setup.think = 1_000;
                setup.draw_faults(choices, 1000);
                setup.nemesis = setup.nemesis.max(1_000_000);
            }
        }
        setup
    }

    fn base(choices: &mut Choices) -> Self {
        let mut between = |low, high| choices.between(SETUP, low, high);
        let nodes =
            [1, 2, 3, 3, 3, 3, 3, 4, 5, 5, 5, 7][usize::try_from(between(0, 12)).unwrap_or(2)];
        let clients = usize::try_from(between(2, 7)).unwrap_or(3);
        let total = between(60, 160);
        let think = [2_000, 20_000, 100_000, 300_000][usize::try_from(between(0, 4)).unwrap_or(0)];
        let wan = between(0, 4) == 0;
        Self {
            nodes,
            clients,
            quota: total.div_ceil(clients as u64),
            think,
            value_bytes: if between(0, 4) == 0 { 6_000 } else { 120 },
            keys: between(2, 12),
            snapshot_entries: between(8, 80),
            kept_entries: between(0, 40),
            checkpoint_bytes: between(500, 20_000),
            checkpoint_after: between(50_000, 2_000_000),
            segment_bytes: between(8, 24) * 4096,
            delay: if wan { between(2_000, 15_000) } else { between(20, 400) },
            jitter: if wan { between(100, 10_000) } else { between(10, 600) },
            loss: 0,
            duplicate: 0,
            reorder: 0,
            held: 0,
            codec: between(0, 4) == 0,
            drift: 0,
            nemesis: 0,
            faults: Vec::new(),
            boot_fuse: 0,
        }
    }

    /// Each fault is in with a chance of `each` thousandths.
    fn draw_faults(&mut self, choices: &mut Choices, each: u64) {
        for fault in FAULTS {
            if choices.chance(SETUP, each) {
                self.faults.push(fault);
            }
        }
        let mut on = |high| match choices.chance(SETUP, each) {
            true => choices.between(SETUP, 1, high),
            false => 0,
        };
        self.loss = on(80);
        self.duplicate = on(80);
        self.reorder = on(80);
        self.drift = on(30_000);
        self.boot_fuse = on(300);
        self.held = choices.between(SETUP, 2_000, 400_000);
        self.nemesis = choices.between(SETUP, 150_000, 2_500_000);
    }
}
