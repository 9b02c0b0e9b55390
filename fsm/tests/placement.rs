//! Placements and links: what their commands do, and what deletions leave behind.
#![forbid(unsafe_code)]

mod common;

use common::*;
use holdfast_consensus::traits::StateMachine;
use holdfast_fsm::records::{ResourceKind, Stamp};
use holdfast_fsm::{Answer, Command, Metastore, Rule};
use holdfast_log::MemDisk;

type Machine = Metastore<MemDisk>;

/// Topic `a` (incarnation 1) with three partitions, the first of them owned by node 1 (placed 2).
fn placed() -> Machine {
    let mut machine = fresh();
    apply_one(&mut machine, None, &create("a"));
    let answer = apply_one(&mut machine, None, &assign(part("a", 1, 0), 1));
    assert_eq!(answer, Answer::PartitionAssigned { placed: 2 });
    machine
}

fn buried(machine: &Machine, stamp: &Stamp) -> bool {
    machine.view().tombstone(stamp).expect("read").value.is_some()
}

#[test]
fn a_partition_is_assigned_once() {
    let mut machine = placed();
    let again = apply_one(&mut machine, None, &assign(part("a", 1, 0), 2));
    assert_eq!(again, Answer::AlreadyAssigned { placed: 2 });
    let row = machine.view().assignment("a", 0).unwrap().value.unwrap();
    assert_eq!((row.owner, row.length, row.forced_at), (owner(1), 0, None));
    assert_eq!((row.stamp.kind, row.stamp.name.as_str()), (ResourceKind::Move, "a/0"));
    assert_eq!(row.topic, machine.view().topic("a").unwrap().value.unwrap().stamp);
    let refused = [
        (assign(part("a", 9, 1), 1), Answer::WrongIncarnation { current: 1 }),
        (assign(part("b", 1, 1), 1), Answer::NotFound),
        (assign(part("a", 1, 3), 1), Answer::NoSuchPartition { partitions: 3 }),
        (assign(part("a", 1, 1), 0), Answer::Invalid(Rule::Owner)),
    ];
    for (command, answer) in refused {
        assert_eq!(apply_one(&mut machine, None, &command), answer, "{command:?}");
    }
    assert_eq!(machine.view().assignments("a", None, 10).unwrap().value.len(), 1);
}

#[test]
fn a_move_names_the_placement_it_changes_and_becomes_the_next_one() {
    let mut machine = placed();
    let of = || part("a", 1, 0);
    let wrong = apply_one(&mut machine, None, &set_target(of(), 1, 2));
    assert_eq!(wrong, Answer::WrongPlacement { current: 2 });
    let same = apply_one(&mut machine, None, &set_target(of(), 2, 1));
    assert_eq!(same, Answer::AlreadyOwner);
    let none = apply_one(&mut machine, None, &complete(of(), 5, 0, false));
    assert_eq!(none, Answer::NoMove { placed: 2 });
    let began = apply_one(&mut machine, None, &set_target(of(), 2, 2));
    assert_eq!(began, Answer::MoveStarted { incarnation: 6 });
    let busy = Answer::MoveUnderWay { incarnation: 6 };
    assert_eq!(apply_one(&mut machine, None, &set_target(of(), 2, 3)), busy);
    assert_eq!(apply_one(&mut machine, None, &complete(of(), 5, 40, false)), busy);
    let row = machine.view().assignment("a", 0).unwrap().value.unwrap();
    assert_eq!((row.owner, row.stamp.incarnation), (owner(1), 2), "not moved yet");
    let done = apply_one(&mut machine, None, &complete(of(), 6, 40, false));
    assert_eq!(done, Answer::MoveCompleted { incarnation: 6 });
    let row = machine.view().assignment("a", 0).unwrap().value.unwrap();
    assert_eq!((row.owner, row.stamp.incarnation, row.length), (owner(2), 6, 40));
    assert_eq!((row.target, row.forced_at), (None, None));
    apply_one(&mut machine, None, &set_target(of(), 6, 1));
    apply_one(&mut machine, None, &complete(of(), 10, 7, true));
    apply_one(&mut machine, None, &set_target(of(), 10, 2));
    apply_one(&mut machine, None, &complete(of(), 12, 50, false));
    let row = machine.view().assignment("a", 0).unwrap().value.unwrap();
    assert_eq!((row.stamp.incarnation, row.forced_at), (12, Some(10)), "a force is remembered");
}

#[test]
fn an_aborted_move_leaves_a_tombstone_and_the_owner() {
    let mut machine = placed();
    apply_one(&mut machine, None, &set_target(part("a", 1, 0), 2, 2));
    let row = machine.view().assignment("a", 0).unwrap().value.unwrap();
    let target = row.target.unwrap().stamp;
    let done = apply_one(&mut machine, None, &abort(part("a", 1, 0), 3));
    assert_eq!(done, Answer::MoveAborted { incarnation: 3 });
    assert!(buried(&machine, &target));
    let row = machine.view().assignment("a", 0).unwrap().value.unwrap();
    assert_eq!((row.owner, row.target), (owner(1), None));
    assert!(!buried(&machine, &row.stamp));
}

#[test]
fn placements_are_listed_by_topic_and_by_owner_targets_included() {
    let mut machine = placed();
    apply_one(&mut machine, None, &assign(part("a", 1, 1), 2));
    apply_one(&mut machine, None, &assign(part("a", 1, 2), 1));
    apply_one(&mut machine, None, &set_target(part("a", 1, 2), 4, 2));
    let view = machine.view();
    let of = |n, after| {
        let rows = view.assignments_of(&owner(n), after, 10).unwrap().value;
        rows.iter().map(|row| row.partition).collect::<Vec<_>>()
    };
    assert_eq!(of(1, None), [0, 2]);
    assert_eq!(of(2, None), [1, 2]);
    assert_eq!(of(2, Some(("a", 1))), [2]);
    assert!(of(3, None).is_empty());
    let rows = view.assignments("a", Some(0), 1).unwrap().value;
    assert_eq!(rows.iter().map(|row| row.partition).collect::<Vec<_>>(), [1]);
    assert_eq!(view.assignments_of(&owner(1), None, 1).unwrap().value.len(), 1);
}

/// Topics `a` (1) and `b` (2), `b` attached to `a` (3).
fn linked() -> Machine {
    let mut machine = fresh();
    apply_one(&mut machine, None, &create("a"));
    apply_one(&mut machine, None, &create("b"));
    let attached = apply_one(&mut machine, None, &attach(("b", 2), ("a", 1), &[5, 6, 7]));
    assert_eq!(attached, Answer::Attached { incarnation: 3 });
    machine
}

#[test]
fn a_child_is_attached_once_under_an_epoch_that_is_its_entry() {
    let mut machine = linked();
    let link = machine.view().link("b").unwrap().value.unwrap();
    assert_eq!((link.stamp.kind, link.stamp.name.as_str()), (ResourceKind::Attachment, "b"));
    assert_eq!((link.stamp.incarnation, link.tails.as_slice()), (3, [5, 6, 7].as_slice()));
    assert_eq!((link.child.incarnation, link.parent.incarnation), (2, 1));
    let refused: [(Command, Answer); 5] = [
        (attach(("b", 2), ("a", 1), &[0; 3]), Answer::AlreadyAttached { incarnation: 3 }),
        (attach(("a", 1), ("b", 2), &[0; 3]), Answer::WouldFeedItself),
        (attach(("a", 1), ("a", 1), &[0; 3]), Answer::WouldFeedItself),
        (attach(("a", 2), ("b", 2), &[0; 3]), Answer::WrongIncarnation { current: 1 }),
        (attach(("a", 1), ("c", 2), &[0; 3]), Answer::NotFound),
    ];
    for (command, answer) in refused {
        assert_eq!(apply_one(&mut machine, None, &command), answer, "{command:?}");
    }
    apply_one(&mut machine, None, &create("c"));
    let wrong = apply_one(&mut machine, None, &attach(("c", 9), ("b", 2), &[0; 2]));
    assert_eq!(wrong, Answer::WrongTails { partitions: 3 });
    apply_one(&mut machine, None, &attach(("c", 9), ("b", 2), &[0; 3]));
    let circle = apply_one(&mut machine, None, &attach(("a", 1), ("c", 9), &[0; 3]));
    assert_eq!(circle, Answer::WouldFeedItself);
    let of_a = machine.view().children(&link.parent).unwrap().value;
    assert_eq!(of_a.iter().map(|l| l.child.name.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(machine.view().links(None, 10).unwrap().value.len(), 2);
}

#[test]
fn detaching_buries_the_attachment_and_attaching_again_takes_a_newer_epoch() {
    let mut machine = linked();
    let old = machine.view().link("b").unwrap().value.unwrap().stamp;
    let wrong = apply_one(&mut machine, None, &detach("b", Some(2)));
    assert_eq!(wrong, Answer::WrongIncarnation { current: 3 });
    assert_eq!(apply_one(&mut machine, None, &detach("a", None)), Answer::NotFound);
    let done = apply_one(&mut machine, None, &detach("b", Some(3)));
    assert_eq!(done, Answer::Detached { incarnation: 3 });
    assert!(buried(&machine, &old));
    apply_one(&mut machine, None, &attach(("b", 2), ("a", 1), &[9; 3]));
    let new = machine.view().link("b").unwrap().value.unwrap().stamp;
    assert!(new.incarnation > old.incarnation && !buried(&machine, &new));
}

#[test]
fn a_deleted_topic_takes_its_placements_moves_and_attachments_along() {
    for delete_parent in [true, false] {
        let mut machine = linked();
        apply_one(&mut machine, None, &assign(part("a", 1, 0), 1));
        apply_one(&mut machine, None, &set_target(part("a", 1, 0), 4, 2));
        apply_one(&mut machine, None, &assign(part("b", 2, 0), 1));
        let row = machine.view().assignment("a", 0).unwrap().value.unwrap();
        let link = machine.view().link("b").unwrap().value.unwrap().stamp;
        apply_one(&mut machine, None, &delete(if delete_parent { "a" } else { "b" }, None));
        assert!(buried(&machine, &link), "either end ends the attachment");
        assert!(machine.view().link("b").unwrap().value.is_none());
        let target = row.target.unwrap().stamp;
        assert_eq!(buried(&machine, &target), delete_parent, "the move under way");
        assert_eq!(machine.view().assignment("a", 0).unwrap().value.is_none(), delete_parent);
        assert_eq!(machine.view().assignment("b", 0).unwrap().value.is_none(), !delete_parent);
        machine.view().verify_digest().unwrap();
    }
}

#[test]
fn placements_and_links_travel_in_snapshots() {
    let mut source = linked();
    apply_one(&mut source, None, &assign(part("a", 1, 0), 1));
    let (meta, chunks) = snapshot(&mut source);
    let mut target = fresh();
    let sink = restore(&mut target, &meta, &chunks);
    target.adopt(sink).unwrap();
    let (here, there) = (target.view(), source.view());
    assert_eq!(here.link("b").unwrap(), there.link("b").unwrap());
    assert_eq!(here.assignment("a", 0).unwrap(), there.assignment("a", 0).unwrap());
}
