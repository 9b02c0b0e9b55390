//! Named programs: the four data losses of a real broker, what a naive fix of them misses, and
//! worlds that are hard on one thing (SCENARIOS; RULES IV).
//!
//! A scenario is told as a story and ends in a verdict: `LOST n`, by the ledger over the disk
//! images of all nodes, or `KEPT`. How the brokers make sure is chosen with a
//! [`Mode`]: with the guard on nothing may be lost; with it off, the scenarios that
//! say so lose data.

mod budget;
mod damage;
mod focus;
mod four;
mod logs;
mod rivals;
mod space;
pub mod stage;
mod steps;
mod storm;
mod variants;
mod waits;

use crate::broker::Mode;
use crate::broker::ledger::Lost;
use crate::campaign;
use crate::check::{Verdict, Violation};
use crate::choices::Choices;
use crate::tape::Decision;
use crate::trace::Recording;
use crate::world::Summary;
use stage::Stage;

/// A scenario.
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// What it shows, in a sentence.
    pub summary: &'static str,
    /// True if data is lost with the guard off.
    pub loss: bool,
    program: fn(&mut Stage) -> Verdict,
}

/// Every scenario, in the order of the book.
pub const ALL: &[Scenario] = &[
    Scenario {
        name: "orphan-sweep",
        summary: "a restarted node sweeps the directories of topics that its old state does not know",
        loss: true,
        program: four::orphan_sweep,
    },
    Scenario {
        name: "stale-cursor",
        summary: "a restarted node anchors a fan-out cursor at the tail under a dead attachment",
        loss: true,
        program: four::stale_cursor,
    },
    Scenario {
        name: "discarded-records",
        summary: "a restarted node discards accepted records of a topic that its old state does not know",
        loss: true,
        program: four::discarded_records,
    },
    Scenario {
        name: "fresh-leader",
        summary: "a fresh leader takes its own state, still at the last checkpoint, for the truth",
        loss: true,
        program: four::fresh_leader,
    },
    Scenario {
        name: "recreated",
        summary: "a topic is deleted and created anew between the question and the act (N1)",
        loss: false,
        program: variants::recreated,
    },
    Scenario {
        name: "deposed-leader",
        summary: "the leader is deposed after its answer, and its successor makes the answer wrong (N2)",
        loss: false,
        program: variants::deposed_leader,
    },
    Scenario {
        name: "store-from-backup",
        summary: "the store of a node comes from a backup older than its log and its data (N17)",
        loss: true,
        program: variants::store_from_backup,
    },
    Scenario {
        name: "recreated-behind",
        summary: "the old state knows the deletion of one incarnation and not the creation of the next (N1)",
        loss: true,
        program: variants::recreated_behind,
    },
    Scenario {
        name: "fresh-responder",
        summary: "the leader that is asked is itself still replaying its log (N3)",
        loss: true,
        program: variants::fresh_responder,
    },
    Scenario {
        name: "read-error",
        summary: "the local store is closed after a fault, and a read error looks like absence (N15)",
        loss: true,
        program: variants::read_error,
    },
    Scenario {
        name: "wrong-volume",
        summary: "the data volume of one node is mounted on another, which owns nothing of it (N21)",
        loss: true,
        program: variants::wrong_volume,
    },
    Scenario {
        name: "forced-move",
        summary: "a partition is given away by force, and the old owner comes back (N22)",
        loss: true,
        program: variants::forced_move,
    },
    Scenario {
        name: "flip-back",
        summary: "ownership goes away and comes back between the question and the act (N23)",
        loss: false,
        program: variants::flip_back,
    },
    Scenario {
        name: "installed-between",
        summary: "a snapshot is installed between the decision to remove a copy and the act (N5)",
        loss: true,
        program: waits::installed_between,
    },
    Scenario {
        name: "verdict-then-older",
        summary: "a copy is let go, and after a crash the state is from before that (N5)",
        loss: true,
        program: waits::verdict_then_older,
    },
    Scenario {
        name: "paused-permit",
        summary: "a process stands still for a minute between its decision and the act (N6)",
        loss: true,
        program: waits::paused_permit,
    },
    Scenario {
        name: "minority-leader",
        summary: "the leader that is asked leads a minority, and does not know it yet (N7, N4)",
        loss: true,
        program: rivals::minority_leader,
    },
    Scenario {
        name: "minority-self",
        summary: "a node asks itself, as the leader of a minority that it does not know to be one (N7)",
        loss: true,
        program: rivals::minority_self,
    },
    Scenario {
        name: "suspended",
        summary: "a node is suspended for a minute, and what it heard last seems to be of just now (N10)",
        loss: true,
        program: waits::suspended,
    },
    Scenario {
        name: "long-sweep",
        summary: "a sweep looks once and takes long, and a topic is created anew before its turn (N11)",
        loss: true,
        program: waits::long_sweep,
    },
    Scenario {
        name: "open-handle",
        summary: "a write has begun when its partition moves away, and ends behind that (N12)",
        loss: true,
        program: waits::open_handle,
    },
    Scenario {
        name: "created-elsewhere",
        summary: "a topic is created anew through another node while a sweep is under way (N13)",
        loss: true,
        program: waits::created_elsewhere,
    },
    Scenario {
        name: "older-cluster",
        summary: "the whole cluster is put back to an export from before a topic; its data stay (N18)",
        loss: true,
        program: rivals::older_cluster,
    },
    Scenario {
        name: "rival-cluster",
        summary: "nodes that lost log and store form a new cluster on the data of the old (N19)",
        loss: true,
        program: rivals::rival_cluster,
    },
    Scenario {
        name: "two-processes",
        summary: "a process that hangs is taken for dead, and another is started beside it (N20)",
        loss: false,
        program: rivals::two_processes,
    },
    Scenario {
        name: "dead-mark",
        summary: "a node that is taken for dead has its partition given away by an old view (N30)",
        loss: false,
        program: rivals::dead_mark,
    },
    Scenario {
        name: "parent-recreated",
        summary: "the parent of a cursor is deleted and created anew: its offsets start at 0 (N24)",
        loss: true,
        program: rivals::parent_recreated,
    },
    Scenario {
        name: "unanswered",
        summary: "the questions of a node arrive, and every answer to it is lost (N26)",
        loss: true,
        program: rivals::unanswered,
    },
    Scenario {
        name: "late-purge",
        summary: "a purge is told from peer to peer, and heard late, when the name means something else (N31)",
        loss: true,
        program: waits::late_purge,
    },
    Scenario {
        name: "step-rescued-copy",
        summary: "a copy that was rescued from another disk looks like one that was moved away from (R33)",
        loss: true,
        program: steps::rescued_copy,
    },
    Scenario {
        name: "step-forced-before",
        summary: "behind a forced move a longer copy covers an older one by its length alone (R33)",
        loss: true,
        program: steps::forced_before,
    },
    Scenario {
        name: "step-grown-copy",
        summary: "the old owner takes records between the copy and the end of a move (R33)",
        loss: true,
        program: steps::grown_copy,
    },
    Scenario {
        name: "step-copy-ahead",
        summary: "the copy of a move under way lies where another node still owns the partition (R33)",
        loss: true,
        program: steps::copy_ahead,
    },
    Scenario {
        name: "step-fresh-copy",
        summary: "power is lost right after the first records of a new topic (R34)",
        loss: false,
        program: steps::fresh_copy,
    },
    Scenario {
        name: "step-replaying-responder",
        summary: "a leader is asked while its state is still at the last checkpoint (N3)",
        loss: false,
        program: steps::replaying_responder,
    },
    Scenario {
        name: "budget",
        summary: "what is to go goes in time: orphans, records, cursors, and after a quorum returned",
        loss: false,
        program: budget::budget,
    },
    Scenario {
        name: "budget-alone",
        summary: "what is to go goes in time on a single node",
        loss: false,
        program: budget::budget_alone,
    },
    Scenario {
        name: "storm",
        summary: "topics come and go, records flow, nodes crash, hang and lose each other, as the seed says",
        loss: true,
        program: storm::storm,
    },
    Scenario {
        name: "snapshot-restore",
        summary: "a follower is cut short at arbitrary points while it installs a snapshot",
        loss: false,
        program: focus::snapshot_restore,
    },
    Scenario {
        name: "stale-leader",
        summary: "a leader stands still while another commits, and goes on with reads waiting",
        loss: false,
        program: focus::stale_leader,
    },
    Scenario {
        name: "full-leader",
        summary: "the leader's disk fills up under writes, and has space again",
        loss: false,
        program: focus::full_leader,
    },
    Scenario {
        name: "full-majority",
        summary: "two of three disks fill up under writes, and have space again",
        loss: false,
        program: focus::full_majority,
    },
    Scenario {
        name: "full-snapshot",
        summary: "disks fill up while snapshots are taken and installed",
        loss: false,
        program: focus::full_snapshot,
    },
    Scenario {
        name: "full-vote",
        summary: "there is no space to write a vote down",
        loss: false,
        program: focus::full_vote,
    },
    Scenario {
        name: "full-restart",
        summary: "all nodes restart on disks that are full to the last byte",
        loss: false,
        program: focus::full_restart,
    },
    Scenario {
        name: "full-for-long",
        summary: "all disks are full for minutes: writes are refused by name, everything else goes on",
        loss: false,
        program: space::full_for_long,
    },
    Scenario {
        name: "full-one-by-one",
        summary: "disks fill up one after the other under writes, and the leader dies when the last is full",
        loss: false,
        program: space::full_one_by_one,
    },
    Scenario {
        name: "failed-sync",
        summary: "syncs fail at a majority and later ones succeed without writing; then the power goes",
        loss: false,
        program: space::failed_sync,
    },
    Scenario {
        name: "longer-older-log",
        summary: "the longer log is of an older term, and meets the one that was committed (B05)",
        loss: false,
        program: logs::longer_older_log,
    },
    Scenario {
        name: "divergent-tail",
        summary: "a follower holds a long tail of a lost term, and nobody writes any more (B29)",
        loss: false,
        program: logs::divergent_tail,
    },
    Scenario {
        name: "two-cohorts",
        summary: "two members have the longer log and two the higher term; the leader is gone (B07)",
        loss: false,
        program: logs::two_cohorts,
    },
    Scenario {
        name: "damage-one",
        summary: "one member has lost entries of its log to rot, and gets them back (R15)",
        loss: false,
        program: damage::one,
    },
    Scenario {
        name: "damage-majority",
        summary: "a majority has lost the same entries, and then different ones (R15)",
        loss: false,
        program: damage::majority,
    },
    Scenario {
        name: "damage-disjoint",
        summary: "every copy of the log is damaged somewhere, and each entry is whole somewhere (R15)",
        loss: false,
        program: damage::disjoint,
    },
    Scenario {
        name: "damage-everywhere",
        summary: "an acknowledged entry is damaged on every member: the cluster stands still (R15)",
        loss: false,
        program: damage::everywhere,
    },
    Scenario {
        name: "damage-held",
        summary: "two of three members can prove too little, and are held (R5, R14)",
        loss: false,
        program: damage::held_majority,
    },
    Scenario {
        name: "scrub",
        summary: "entries rot that nobody reads: unseen without a scrub, found and given back with it (R17)",
        loss: false,
        program: damage::scrub,
    },
    Scenario {
        name: "slow-store",
        summary: "the store of a node stands still while its log goes on",
        loss: false,
        program: focus::slow_store,
    },
];

/// The scenario of a name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Scenario> {
    ALL.iter().find(|scenario| scenario.name == name)
}

/// How a scenario ended.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its seed; zero if it came from a tape.
    pub seed: u64,
    /// The story, line by line.
    pub story: Vec<String>,
    /// Records that are gone.
    pub lost: Vec<Lost>,
    /// Records that were due.
    pub due: usize,
    /// Why the cluster stands still, where nothing else would be right: what was acknowledged is
    /// gone from every disk, or too few members can prove anything.
    pub stands_still: Option<String>,
    /// A property that did not hold.
    pub violation: Option<Violation>,
    /// What it amounted to.
    pub summary: Summary,
    /// The trace, if it was wanted.
    pub trace: Recording,
    /// The moves of the program and the decisions of chance, if they were kept.
    pub tape: Vec<Decision>,
}

impl Report {
    /// True if every record is where it belongs and every property held.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.lost.is_empty() && self.violation.is_none()
    }

    /// The property that did not hold, for the trace: a loss is one as well (SCENARIOS section 0).
    #[must_use]
    pub fn broken(&self) -> Option<Violation> {
        let first = self.lost.first().map(|lost| {
            let (id, topic, how) = (lost.id, &lost.place.topic, &lost.how);
            let evidence = format!(
                "{} of {} records are gone, the first is record {id} of {topic}, {how}",
                self.lost.len(),
                self.due
            );
            Violation::new("no-live-data-destroyed", evidence)
        });
        self.violation.clone().or(first)
    }

    /// The line that says how it ended.
    #[must_use]
    pub fn verdict(&self) -> String {
        match (&self.violation, self.lost.len()) {
            (Some(violation), _) => format!("FAILED {violation}"),
            (None, 0) => match &self.stands_still {
                Some(why) => format!("STANDS STILL: {why}"),
                None => "KEPT".to_owned(),
            },
            (None, lost) => format!("LOST {lost}"),
        }
    }
}

/// Runs a scenario. A panic is a violation of the property `panic`.
#[must_use]
pub fn run(scenario: &Scenario, mode: Mode, seed: u64, traced: bool) -> Report {
    Report { seed, ..run_by(scenario, mode, Choices::new(seed), traced) }
}

/// Runs a scenario with these choices, as [`run`] does.
#[must_use]
pub fn run_by(scenario: &Scenario, mode: Mode, choices: Choices, traced: bool) -> Report {
    let mut stage = Stage::new(mode, choices, traced);
    let violation = campaign::judge(|| (scenario.program)(&mut stage));
    stage.end(violation)
}
