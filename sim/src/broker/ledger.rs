//! The ledger oracle: no live data is destroyed (SCENARIOS 0).
//!
//! A ledger outside the system knows every record that was acknowledged and every record that a
//! fan-out child is owed. At the end it reads the *disk images* of all nodes and demands that an
//! acknowledged record is in the log of its partition, or waits in some accepted-record log at or
//! behind its checkpoint, or belongs to an incarnation (not merely a name) whose deletion is
//! committed; and that a record which was appended to a parent after an attachment committed has
//! reached the child. What lies in the trash is not in its place: it counts as lost.

use super::accepted;
use super::layout;
use super::records::Record;
use holdfast_fsm::records::Stamp;
use holdfast_log::mem_disk::MemDisk;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Name of the property.
pub const PROPERTY: &str = "no-live-data-destroyed";

/// One partition of one incarnation of a topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The topic.
    pub topic: String,
    /// Its incarnation.
    pub incarnation: u64,
    /// The partition.
    pub partition: u32,
}

impl Place {
    /// The partition of a topic of this stamp.
    #[must_use]
    pub fn of(topic: &Stamp, partition: u32) -> Self {
        Self { topic: topic.name.clone(), incarnation: topic.incarnation, partition }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { topic, incarnation, partition } = self;
        write!(f, "{topic} partition {partition} (incarnation {incarnation})")
    }
}

/// A record that must be somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Due {
    record: Record,
    /// The attachment by which a child is owed the record; none if it was acknowledged there.
    attachment: Option<u64>,
    /// How it came to be due, for people.
    how: String,
}

/// What is committed about an incarnation or an attachment.
pub trait Committed {
    /// True if the deletion of this incarnation is committed.
    fn deleted(&self, topic: &str, incarnation: u64) -> bool;
    /// True if the end of this attachment is committed.
    fn detached(&self, attachment: u64) -> bool;
}

/// A record that is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The record.
    pub id: u64,
    /// Where it should be.
    pub place: Place,
    /// How it came to be due.
    pub how: String,
}

/// The ledger of a run.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    due: BTreeMap<Place, Vec<Due>>,
    /// Places that nothing excuses any more.
    firm: BTreeSet<Place>,
}

impl Ledger {
    /// A record was acknowledged to a producer.
    pub fn acknowledged(&mut self, place: Place, record: Record, how: &str) {
        self.due.entry(place).or_default().push(Due {
            record,
            attachment: None,
            how: how.to_owned(),
        });
    }

    /// A record was appended to a parent while this attachment was in force: the child is owed it.
    pub fn owed(&mut self, child: Place, record: Record, attachment: u64, how: &str) {
        self.due.entry(child).or_default().push(Due {
            record,
            attachment: Some(attachment),
            how: how.to_owned(),
        });
    }

    /// What was acknowledged in live incarnations until now is due whatever becomes of the metadata:
    /// they are put back to an earlier moment, or replaced by those of another cluster.
    pub fn stand_firm(&mut self, committed: &dyn Committed) {
        let live = |place: &&Place| !committed.deleted(&place.topic, place.incarnation);
        self.firm.extend(self.due.keys().filter(live).cloned());
    }

    /// Records that are due in all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.due.values().map(Vec::len).sum()
    }

    /// True if nothing is due.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// What is in no place that counts, read from the disk images of all nodes.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn lost(&self, images: &[MemDisk], committed: &dyn Committed) -> io::Result<Vec<Lost>> {
        let mut logs: BTreeMap<Place, BTreeSet<u64>> = BTreeMap::new();
        for disk in images {
            for (place, records) in layout::partition_logs(disk)? {
                logs.entry(place).or_default().extend(records.iter().map(|record| record.id));
            }
            for waiting in accepted::held(disk)? {
                logs.entry(waiting.place()).or_default().insert(waiting.record.id);
            }
        }
        let mut lost = Vec::new();
        for (place, due) in &self.due {
            let firm = self.firm.contains(place);
            if !firm && committed.deleted(&place.topic, place.incarnation) {
                continue;
            }
            let held = logs.get(place);
            for due in due {
                let there = held.is_some_and(|ids| ids.contains(&due.record.id));
                if !there && !due.attachment.is_some_and(|at| committed.detached(at)) {
                    let (id, how) = (due.record.id, due.how.clone());
                    lost.push(Lost { id, place: place.clone(), how });
                }
            }
        }
        Ok(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::super::accepted::{Accepted, AcceptedLog};
    use super::super::records;
    use super::*;
    use holdfast_log::disk::Disk;

    struct Facts {
        deleted: Vec<(&'static str, u64)>,
        detached: Vec<u64>,
    }

    impl Committed for Facts {
        fn deleted(&self, topic: &str, incarnation: u64) -> bool {
            self.deleted.iter().any(|(name, index)| *name == topic && *index == incarnation)
        }
        fn detached(&self, attachment: u64) -> bool {
            self.detached.contains(&attachment)
        }
    }

    const NOTHING: Facts = Facts { deleted: Vec::new(), detached: Vec::new() };

    fn place(topic: &str, incarnation: u64) -> Place {
        Place { topic: topic.into(), incarnation, partition: 0 }
    }

    fn record(id: u64) -> Record {
        Record { id, time: id }
    }

    fn held(topic: &str, incarnation: u64, ids: &[u64]) -> MemDisk {
        let disk = MemDisk::new();
        let records: Vec<Record> = ids.iter().map(|id| record(*id)).collect();
        layout::tests::put(&disk, &place(topic, incarnation), &records);
        disk
    }

    /// A hand-made ledger says both: kept, and lost.
    #[test]
    fn a_hand_made_ledger_says_kept_and_lost() {
        let mut ledger = Ledger::default();
        for id in 1..=3 {
            ledger.acknowledged(place("orders", 7), record(id), "by n1");
        }
        let all = [held("orders", 7, &[1, 2, 3])];
        assert_eq!(ledger.lost(&all, &NOTHING).expect("read"), []);
        let less = [held("orders", 7, &[1, 3])];
        let lost = ledger.lost(&less, &NOTHING).expect("read");
        assert_eq!(lost.iter().map(|lost| lost.id).collect::<Vec<_>>(), [2]);
        let spread = [held("orders", 7, &[1, 3]), held("orders", 7, &[2])];
        assert_eq!(ledger.lost(&spread, &NOTHING).expect("read"), [], "on any node");
    }

    #[test]
    fn the_same_record_under_another_incarnation_does_not_count() {
        let mut ledger = Ledger::default();
        ledger.acknowledged(place("orders", 7), record(1), "by n1");
        let other = [held("orders", 9, &[1])];
        assert_eq!(ledger.lost(&other, &NOTHING).expect("read").len(), 1);
    }

    #[test]
    fn a_committed_deletion_of_this_incarnation_excuses_and_of_another_does_not() {
        let mut ledger = Ledger::default();
        ledger.acknowledged(place("orders", 7), record(1), "by n1");
        let facts = |index| Facts { deleted: vec![("orders", index)], detached: Vec::new() };
        assert_eq!(ledger.lost(&[], &facts(7)).expect("read"), []);
        assert_eq!(ledger.lost(&[], &facts(9)).expect("read").len(), 1);
    }

    #[test]
    fn what_stands_firm_is_due_although_the_metadata_know_it_no_more() {
        let mut ledger = Ledger::default();
        ledger.acknowledged(place("orders", 7), record(1), "by n1");
        ledger.acknowledged(place("audit", 5), record(2), "by n1");
        let gone = |deleted| Facts { deleted, detached: Vec::new() };
        ledger.stand_firm(&gone(vec![("audit", 5)]));
        let later = gone(vec![("audit", 5), ("orders", 7)]);
        let lost = ledger.lost(&[], &later).expect("read");
        assert_eq!(lost.iter().map(|lost| lost.id).collect::<Vec<_>>(), [1]);
        assert_eq!(ledger.lost(&[held("orders", 7, &[1])], &later).expect("read"), []);
    }

    #[test]
    fn a_record_that_waits_at_or_behind_the_checkpoint_counts_and_one_before_it_does_not() {
        let mut ledger = Ledger::default();
        ledger.acknowledged(place("orders", 7), record(1), "by n1");
        let disk = MemDisk::new();
        let mut log = AcceptedLog::open(disk.clone()).expect("opened");
        let accepted = Accepted {
            sequence: 0,
            record: record(1),
            topic: "orders".into(),
            incarnation: 7,
            partition: 0,
            applied: 9,
        };
        let sequence = log.accept(accepted).expect("accepted");
        assert_eq!(ledger.lost(std::slice::from_ref(&disk), &NOTHING).expect("read"), []);
        log.done(sequence);
        log.advance().expect("advanced");
        assert_eq!(ledger.lost(&[disk], &NOTHING).expect("read").len(), 1);
    }

    #[test]
    fn a_child_is_owed_a_record_until_its_attachment_ends() {
        let mut ledger = Ledger::default();
        ledger.owed(place("retry", 8), record(1), 20, "appended to orders");
        let images = [held("orders", 7, &[1])];
        assert_eq!(ledger.lost(&images, &NOTHING).expect("read").len(), 1);
        let facts = Facts { deleted: Vec::new(), detached: vec![20] };
        assert_eq!(ledger.lost(&images, &facts).expect("read"), []);
        let images = [held("retry", 8, &[1])];
        assert_eq!(ledger.lost(&images, &NOTHING).expect("read"), []);
    }

    #[test]
    fn records_in_the_trash_are_not_in_their_place() {
        let mut ledger = Ledger::default();
        ledger.acknowledged(place("orders", 7), record(1), "by n1");
        let disk = MemDisk::new();
        let from = layout::tests::put(&disk, &place("orders", 7), &[record(1)]);
        disk.make_dir("data/trash").expect("made");
        disk.rename(&from, "data/trash/orders").expect("moved");
        let log = layout::log_of("data/trash/orders");
        assert_eq!(records::read(&disk, &log).expect("read").len(), 1);
        assert_eq!(ledger.lost(&[disk], &NOTHING).expect("read").len(), 1);
    }
}
