//! Faults by name, counted.

use std::collections::BTreeMap;

/// A fault that was injected.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A node lost power.
    Crash,
    /// A process was killed.
    Kill,
    /// A crash between two effects of one step.
    EffectBoundary,
    /// A crash between two operations of the disk.
    Fuse,
    /// A crash during a start.
    BootCrash,
    /// Every node lost power at once.
    Blackout,
    /// An unsynced sector came back torn or as garbage.
    Torn,
    /// An unsynced sector came back in an older version.
    Lost,
    /// A creation, removal or rename was undone by a crash.
    DirUndone,
    /// A sync failed.
    SyncFailed,
    /// A write or sync of a store or snapshot failed.
    StoreFailed,
    /// A disk was full for a while.
    DiskFull,
    /// A disk was slow for a while.
    Stalled,
    /// A process stood still for a while.
    Paused,
    /// A message was lost.
    Dropped,
    /// A message arrived twice.
    Duplicated,
    /// A message was held back and overtaken.
    Reordered,
    /// A message was lost to a cut.
    Cut,
    /// Leadership was handed over on request.
    Transfer,
    /// Most of what went one way of a link was lost for a while.
    LossyLink,
    /// A link took its time for every byte for a while.
    SlowLink,
    /// Nothing arrived one way of a link for a while, and then everything.
    Dammed,
    /// Two groups heard each other through one node only.
    Bridge,
    /// A message of long ago arrived once more.
    Replayed,
    /// One lane was slow for a while.
    LaneStalled,
    /// One job took very long.
    Hung,
    /// One lane stood still for a while.
    LanePaused,
    /// A process died soon after each of several starts.
    RestartLoop,
    /// A read of a store or snapshot was to fail.
    ReadFailed,
    /// A clock changed its rate.
    ClockRate,
    /// A clock jumped forward.
    ClockJump,
    /// A leader stood still until another led.
    StaleLeader,
    /// A bit of what was synced changed.
    Rotten,
}

impl Fault {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Kill => "kill",
            Self::EffectBoundary => "effect_boundary",
            Self::Fuse => "fuse",
            Self::BootCrash => "boot_crash",
            Self::Blackout => "blackout",
            Self::Torn => "torn",
            Self::Lost => "lost",
            Self::DirUndone => "dir_undone",
            Self::SyncFailed => "sync_failed",
            Self::StoreFailed => "store_failed",
            Self::DiskFull => "disk_full",
            Self::Stalled => "stalled",
            Self::Paused => "paused",
            Self::Dropped => "dropped",
            Self::Duplicated => "duplicated",
            Self::Reordered => "reordered",
            Self::Cut => "cut",
            Self::Transfer => "transfer",
            Self::LossyLink => "lossy_link",
            Self::SlowLink => "slow_link",
            Self::Dammed => "dammed",
            Self::Bridge => "bridge",
            Self::Replayed => "replayed",
            Self::LaneStalled => "lane_stalled",
            Self::Hung => "hung",
            Self::LanePaused => "lane_paused",
            Self::RestartLoop => "restart_loop",
            Self::ReadFailed => "read_failed",
            Self::ClockRate => "clock_rate",
            Self::ClockJump => "clock_jump",
            Self::StaleLeader => "stale_leader",
            Self::Rotten => "rotten",
        }
    }
}

/// Every fault, in the order of reports.
pub const ALL: [Fault; 33] = [
    Fault::Crash,
    Fault::Kill,
    Fault::EffectBoundary,
    Fault::Fuse,
    Fault::BootCrash,
    Fault::Blackout,
    Fault::Torn,
    Fault::Lost,
    Fault::DirUndone,
    Fault::SyncFailed,
    Fault::StoreFailed,
    Fault::DiskFull,
    Fault::Stalled,
    Fault::Paused,
    Fault::Dropped,
    Fault::Duplicated,
    Fault::Reordered,
    Fault::Cut,
    Fault::Transfer,
    Fault::LossyLink,
    Fault::SlowLink,
    Fault::Dammed,
    Fault::Bridge,
    Fault::Replayed,
    Fault::LaneStalled,
    Fault::Hung,
    Fault::LanePaused,
    Fault::RestartLoop,
    Fault::ReadFailed,
    Fault::ClockRate,
    Fault::ClockJump,
    Fault::StaleLeader,
    Fault::Rotten,
];

/// How often each fault was injected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(BTreeMap<Fault, u64>);

impl Faults {
    /// One more.
    pub fn count(&mut self, fault: Fault) {
        *self.0.entry(fault).or_default() += 1;
    }

    /// One more, if so.
    pub fn count_if(&mut self, so: bool, fault: Fault) {
        if so {
            self.count(fault);
        }
    }

    /// How often.
    #[must_use]
    pub fn of(&self, fault: Fault) -> u64 {
        self.0.get(&fault).copied().unwrap_or(0)
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        for (fault, count) in &other.0 {
            *self.0.entry(*fault).or_default() += count;
        }
    }
}
