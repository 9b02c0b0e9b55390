//! The data plane's directory: what is made, what lets go, and what does not.
#![forbid(unsafe_code)]

mod common;

use common::*;
use holdfast_consensus::ClusterId;
use holdfast_consensus::message::{Confirmation, Outcome};
use holdfast_consensus::traits::StateMachine;
use holdfast_consensus::{MemberId, Term};
use holdfast_fsm::guard::{Claim, Guard, Keep, Permit};
use holdfast_fsm::plane::{Cursor, Place, Plane, PlaneError};
use holdfast_fsm::records::{CopyStamp, Stamp, VolumeId};
use holdfast_fsm::{Metastore, View};
use holdfast_log::disk::{Disk, DiskFile, Mode};
use holdfast_log::mem_disk::{LoseAll, Op};
use holdfast_log::{MemDisk, RealDisk};

type Machine = Metastore<MemDisk>;

const MINE: VolumeId = VolumeId(1);

fn plane(disk: &MemDisk) -> Plane<MemDisk> {
    Plane::open(disk.clone(), CLUSTER, "n1", MINE).expect("the plane opens")
}

fn record<D: Disk>(disk: &D, place: &Place, text: &[u8]) {
    let path = format!("{}/records", place.dir());
    let file = disk.open(&path, Mode::CreateNew).expect("create");
    file.write_at(0, text).expect("write");
    file.sync().expect("sync");
    disk.sync_dir(&place.dir()).expect("sync dir");
}

/// Topic `a` (1) placed at node 1 (2), and its copy, with a record, on a disk of its own.
fn placed() -> (Machine, CopyStamp, MemDisk, Plane<MemDisk>) {
    let mut machine = fresh();
    apply_one(&mut machine, None, &create("a"));
    apply_one(&mut machine, None, &assign(part("a", 1, 0), 1));
    let row = machine.view().assignment("a", 0).expect("read").value.expect("placed");
    let copy = CopyStamp { volume: MINE, topic: row.topic, partition: 0, placed: row.stamp };
    let disk = MemDisk::new();
    let plane = plane(&disk);
    let place = plane.create(&copy).expect("created");
    record(&disk, &place, b"precious");
    (machine, copy, disk, plane)
}

fn deleted() -> (Machine, CopyStamp, MemDisk, Plane<MemDisk>) {
    let (mut machine, copy, disk, plane) = placed();
    apply_one(&mut machine, None, &delete("a", None));
    walk(&machine.view());
    (machine, copy, disk, plane)
}

fn permit(claim: Claim, view: &View) -> Permit {
    Guard::new().prove(claim, view, &standing(view)).expect("proved")
}

/// Proved by a state that went on to delete topic `a`: the state of [`placed`] is behind it, as one
/// is that was restored.
fn proved_later(copy: &CopyStamp) -> Permit {
    let (machine, same, _, _) = deleted();
    assert_eq!(same, *copy);
    permit(Claim::CopyGone(same), &machine.view())
}

/// Leave to anchor the first attachment of [`attached`], asked for while it was in force.
fn first_anchor(attachment: &Stamp) -> Permit {
    let mut machine = fresh();
    apply_one(&mut machine, None, &create("a"));
    apply_one(&mut machine, None, &create("b"));
    apply_one(&mut machine, None, &attach(("b", 2), ("a", 1), &[0; 3]));
    walk(&machine.view());
    let claim = Claim::Current { attachment: attachment.clone(), file: None };
    confirmed(claim, &machine.view()).expect("confirmed")
}

/// The second line, with this very state as the leader's.
fn confirmed(claim: Claim, view: &View) -> Result<Permit, Keep> {
    let inquiry = Guard::new().inquire(claim, view, &standing(view), 7)?;
    let question = inquiry.question().encode()?;
    let (index, answer) = Machine::confirm(view, &question).expect("answers");
    let told = Confirmation { leader: MemberId(1), term: Term(1), index, answer };
    Guard::new().conclude(inquiry, &Outcome::Confirmed(told), view, &standing(view))
}

fn precious(disk: &MemDisk, dir: &str) -> bool {
    disk.files().get(&format!("{dir}/records")).is_some_and(|bytes| bytes == b"precious")
}

#[test]
fn a_copy_is_made_with_its_stamp_and_found_again() {
    let (_machine, copy, disk, plane) = placed();
    let place = plane.create(&copy).expect("making it again is fine");
    assert!(precious(&disk, &place.dir()), "and changes nothing");
    let found = plane.list().unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].place, &found[0].stamp), (&place, &Ok(copy.clone())));
    let other = CopyStamp { volume: VolumeId(9), ..copy.clone() };
    assert!(matches!(plane.create(&other), Err(PlaneError::Foreign(_))));
    let mut other = copy;
    other.topic.cluster = ClusterId(9);
    assert!(matches!(plane.create(&other), Err(PlaneError::Foreign(_))));
}

#[test]
fn no_two_copies_share_a_path_even_where_cases_are_folded() {
    let (_machine, copy, _disk, _plane) = placed();
    let path = |copy: &CopyStamp| Place::of(copy).dir().to_ascii_lowercase();
    let changed = |change: &dyn Fn(&mut CopyStamp)| {
        let mut copy = copy.clone();
        change(&mut copy);
        copy
    };
    let mut paths = vec![
        path(&copy),
        path(&changed(&|c| c.topic.incarnation = 2)),
        path(&changed(&|c| c.topic.epoch = 2)),
        path(&changed(&|c| c.topic.group = 2)),
        path(&changed(&|c| c.partition = 2)),
        path(&changed(&|c| c.placed.incarnation = 3)),
        path(&changed(&|c| c.placed.epoch = 3)),
    ];
    let all = paths.len();
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), all);
    let upper = changed(&|c| c.topic.name = "A".to_owned());
    assert_eq!(Place::of(&upper), Place::of(&copy), "the name alone tells nothing apart");
    let long = changed(&|c| c.topic.name = "n".repeat(249));
    assert!(Place::of(&long).to_string().len() <= 200);
}

#[test]
fn a_deleted_topic_goes_to_the_trash_with_its_reason_and_then_for_good() {
    let (machine, copy, disk, plane) = deleted();
    let view = machine.view();
    let claim = || Claim::CopyGone(copy.clone());
    let place = plane.trash(permit(claim(), &view), &view).expect("let go");
    assert!(!precious(&disk, &place.dir()) && plane.list().unwrap().is_empty());
    assert!(precious(&disk, &format!("data/trash/{place}")), "nothing is lost yet");
    let trashed = plane.trashed().unwrap();
    let reason = trashed[0].reason.clone().unwrap();
    assert_eq!((trashed[0].copy.clone(), reason.claim), (Some(Ok(copy.clone())), claim()));
    assert!(reason.proof.contains("deleted by entry i3"), "{}", reason.proof);
    let reap = |now| plane.reap(permit(claim(), &view), &view, now, 60);
    assert_eq!(reap(100).unwrap_err(), Keep::TooYoung { age: 0, delay: 60 });
    assert_eq!(reap(159).unwrap_err(), Keep::TooYoung { age: 59, delay: 60 });
    reap(160).expect("old enough");
    let left: Vec<String> = disk.files().into_keys().collect();
    assert_eq!(left, ["data/volume"]);
}

#[test]
fn a_live_topic_cannot_be_let_go_by_the_wrong_permit() {
    let (machine, copy, disk, plane) = deleted();
    let view = machine.view();
    let records = permit(Claim::Gone(copy.topic.clone()), &view);
    assert_eq!(plane.trash(records, &view), Err(Keep::WrongPermit));
    let copies = permit(Claim::CopyGone(copy.clone()), &view);
    assert_eq!(plane.trash_moved(copies, &view, || Ok(0)), Err(Keep::WrongPermit));
    let copies = permit(Claim::CopyGone(copy.clone()), &view);
    let refused = plane.discard(copies, &view, &copy.topic, 1, b"");
    assert_eq!(refused, Err(Keep::WrongPermit));
    assert!(precious(&disk, &Place::of(&copy).dir()));
}

/// R29: the stamp is read again under the lock.
#[test]
fn a_directory_that_is_not_what_was_permitted_stays() {
    let (machine, copy, disk, plane) = deleted();
    let view = machine.view();
    let stamp = format!("{}/stamp", Place::of(&copy).dir());
    let granted = permit(Claim::CopyGone(copy.clone()), &view);
    let other = CopyStamp { partition: 1, ..copy.clone() };
    let there = plane.create(&other).unwrap();
    let bytes = disk.files().remove(&format!("{}/stamp", there.dir())).unwrap();
    let file = disk.open(&stamp, Mode::Write).unwrap();
    file.write_at(0, &bytes).unwrap();
    assert_eq!(plane.trash(granted, &view), Err(Keep::StampChanged));
    let listed = plane.list().unwrap();
    assert!(listed.iter().any(|f| matches!(&f.stamp, Err(Keep::BadStamp(_)))), "{listed:?}");
    file.write_at(20, b"rot").unwrap();
    let granted = permit(Claim::CopyGone(copy.clone()), &view);
    assert!(matches!(plane.trash(granted, &view), Err(Keep::BadStamp(_))));
    disk.unlink(&stamp).unwrap();
    let granted = permit(Claim::CopyGone(copy.clone()), &view);
    assert!(matches!(plane.trash(granted, &view), Err(Keep::BadStamp(_))));
    let swept = plane.sweep(Guard::new(), &view, &standing(&view)).unwrap();
    assert!(
        swept
            .kept
            .iter()
            .any(|(place, keep)| { *place == Place::of(&copy) && keep.is_quarantine() })
    );
    assert!(precious(&disk, &Place::of(&copy).dir()));
}

/// R29: the state is looked at again under the lock.
#[test]
fn a_permit_is_void_when_the_state_cannot_be_read() {
    let (machine, copy, disk, plane) = deleted();
    let view = machine.view();
    let granted = permit(Claim::CopyGone(copy.clone()), &view);
    drop(machine);
    let kept = plane.trash(granted, &view).unwrap_err();
    assert_eq!(kept.code(), "unreadable");
    assert!(precious(&disk, &Place::of(&copy).dir()));
}

/// N12: nobody acknowledges into a directory that is gone.
#[test]
fn writers_finish_first_and_none_enters_afterwards() {
    let (machine, copy, _disk, plane) = deleted();
    let view = machine.view();
    let lease = plane.lease(&copy).unwrap();
    let inside = lease.enter().unwrap();
    let claim = || Claim::CopyGone(copy.clone());
    assert_eq!(plane.trash(permit(claim(), &view), &view), Err(Keep::InUse));
    assert!(matches!(lease.enter(), Err(PlaneError::Closed(_))), "closed from the first try on");
    assert!(matches!(plane.lease(&copy), Err(PlaneError::Closed(_))));
    drop(inside);
    plane.trash(permit(claim(), &view), &view).expect("empty now");
    assert!(matches!(lease.enter(), Err(PlaneError::Closed(_))), "for ever");
    assert!(matches!(plane.lease(&copy), Err(PlaneError::Missing(_))));
}

#[test]
fn a_failed_rename_keeps_the_copy_and_opens_it_again() {
    let (machine, copy, disk, plane) = deleted();
    let view = machine.view();
    let lease = plane.lease(&copy).unwrap();
    disk.fail_next(Op::Rename, "data/topics");
    let kept = plane.trash(permit(Claim::CopyGone(copy.clone()), &view), &view).unwrap_err();
    assert_eq!(kept.code(), "disk");
    assert!(precious(&disk, &Place::of(&copy).dir()));
    drop(lease.enter().expect("writers go on"));
    plane.trash(permit(Claim::CopyGone(copy), &view), &view).expect("the next pass");
}

/// R33: the copy must not have grown behind the permit's back.
#[test]
fn a_moved_copy_is_measured_once_more_when_its_writers_are_closed() {
    let (mut machine, copy, disk, plane) = placed();
    apply_one(&mut machine, None, &set_target(part("a", 1, 0), 2, 2));
    apply_one(&mut machine, None, &complete(part("a", 1, 0), 3, 40, false));
    walk(&machine.view());
    let view = machine.view();
    let claim = || Claim::MovedAway { copy: copy.clone(), length: 40 };
    let granted = confirmed(claim(), &view).unwrap();
    assert_eq!(plane.trash_moved(granted, &view, || Ok(41)), Err(Keep::Changed));
    assert!(precious(&disk, &Place::of(&copy).dir()));
    let granted = confirmed(claim(), &view).unwrap();
    let place = plane.trash_moved(granted, &view, || Ok(40)).expect("let go");
    assert!(precious(&disk, &format!("data/trash/{place}")));
}

#[test]
fn what_is_live_again_comes_back_from_the_trash() {
    let (mut machine, copy, disk, plane) = placed();
    walk(&machine.view());
    let view = machine.view();
    plane.trash(proved_later(&copy), &view).expect("the state that proved it was ahead");
    assert!(matches!(plane.create(&copy), Err(PlaneError::InTrash(_))), "not made anew beside it");
    let kept = Guard::new().prove(Claim::CopyGone(copy.clone()), &view, &standing(&view));
    assert_eq!(kept.unwrap_err().code(), "live", "reaping proves again");
    let place = plane.put_back(&copy, &view).expect("put back");
    assert!(precious(&disk, &place.dir()) && plane.trashed().unwrap().is_empty());
    drop(plane.lease(&copy).unwrap().enter().expect("and is written again"));
    plane.trash(proved_later(&copy), &view).expect("again");
    apply_one(&mut machine, None, &delete("a", None));
    assert!(plane.put_back(&copy, &view).is_err(), "what is gone stays in the trash");
}

/// N11 and N1: each copy for itself, by incarnation.
#[test]
fn a_sweep_takes_the_old_incarnation_and_leaves_the_new_one() {
    let (mut machine, old, disk, plane) = deleted();
    apply_one(&mut machine, None, &create("a"));
    apply_one(&mut machine, None, &assign(part("a", 4, 0), 1));
    let row = machine.view().assignment("a", 0).unwrap().value.unwrap();
    let new = CopyStamp { volume: MINE, topic: row.topic, partition: 0, placed: row.stamp };
    let place = plane.create(&new).unwrap();
    record(&disk, &place, b"precious");
    let unknown = Stamp { incarnation: 99, ..new.topic.clone() };
    let stray = plane.create(&CopyStamp { topic: unknown, ..new.clone() }).unwrap();
    let view = machine.view();
    let swept = plane.sweep(Guard::new(), &view, &standing(&view)).unwrap();
    assert_eq!(swept.trashed, [Place::of(&old)]);
    let kept: Vec<_> = swept.kept.iter().map(|(place, keep)| (place, keep.code())).collect();
    assert_eq!(kept, [(&place, "live"), (&stray, "unknown")]);
    assert!(precious(&disk, &place.dir()));
}

/// Topics `a` (1) and `b` (2), attached (5, after 3 was detached), and the copy of `a`.
fn attached() -> (Machine, CopyStamp, MemDisk, Plane<MemDisk>, [Stamp; 3]) {
    let mut machine = fresh();
    apply_one(&mut machine, None, &create("a"));
    apply_one(&mut machine, None, &create("b"));
    apply_one(&mut machine, None, &attach(("b", 2), ("a", 1), &[0; 3]));
    let old = machine.view().link("b").expect("read").value.expect("link");
    apply_one(&mut machine, None, &detach("b", None));
    apply_one(&mut machine, None, &attach(("b", 2), ("a", 1), &[9; 3]));
    let new = machine.view().link("b").expect("read").value.expect("link").stamp;
    apply_one(&mut machine, None, &assign(part("a", 1, 0), 1));
    walk(&machine.view());
    let row = machine.view().assignment("a", 0).expect("read").value.expect("placed");
    let copy = CopyStamp { volume: MINE, topic: row.topic, partition: 0, placed: row.stamp };
    let disk = MemDisk::new();
    let plane = plane(&disk);
    plane.create(&copy).expect("created");
    (machine, copy, disk, plane, [old.child, old.stamp, new])
}

fn cursor(attachment: &Stamp, copy: &CopyStamp, next: u64) -> Cursor {
    Cursor { attachment: attachment.clone(), parent: copy.topic.clone(), next }
}

/// SCENARIOS 2, step by step.
#[test]
fn a_cursor_moves_forwards_under_its_own_attachment_and_is_replaced_only_with_a_permit() {
    let (machine, copy, _disk, plane, [child, old, new]) = attached();
    let view = machine.view();
    let none = plane.advance_cursor(&copy, &child, &cursor(&old, &copy, 1));
    assert_eq!(none, Err(Keep::Changed), "there is nothing to advance");
    plane
        .replace_cursor(first_anchor(&old), &view, &copy, &child, None, &cursor(&old, &copy, 5))
        .expect("anchored");
    plane.advance_cursor(&copy, &child, &cursor(&old, &copy, 8)).expect("forwards");
    assert_eq!(plane.advance_cursor(&copy, &child, &cursor(&old, &copy, 7)), Err(Keep::Changed));
    assert_eq!(plane.advance_cursor(&copy, &child, &cursor(&new, &copy, 9)), Err(Keep::Changed));
    let seen = plane.cursor(&copy, &child).unwrap().unwrap();
    assert_eq!(seen.cursor.next, 8);
    let claim = || Claim::Current { attachment: new.clone(), file: Some(old.clone()) };
    let to = cursor(&new, &copy, 20);
    let granted = confirmed(claim(), &view).unwrap();
    plane.advance_cursor(&copy, &child, &cursor(&old, &copy, 9)).expect("it moved meanwhile");
    let raced = plane.replace_cursor(granted, &view, &copy, &child, Some(&seen), &to);
    assert_eq!(raced, Err(Keep::Changed), "what was read is not there any more");
    let seen = plane.cursor(&copy, &child).unwrap().unwrap();
    let granted = confirmed(claim(), &view).unwrap();
    let blind = plane.replace_cursor(granted, &view, &copy, &child, None, &to);
    assert_eq!(blind, Err(Keep::WrongPermit), "the permit is for the file of the old one");
    let granted = confirmed(claim(), &view).unwrap();
    let mut wrong = to.clone();
    wrong.parent.incarnation = 77;
    let stale = plane.replace_cursor(granted, &view, &copy, &child, Some(&seen), &wrong);
    assert!(matches!(stale, Err(Keep::BadStamp(_))), "offsets of another parent (N24)");
    let granted = confirmed(claim(), &view).unwrap();
    plane.replace_cursor(granted, &view, &copy, &child, Some(&seen), &to).expect("replaced");
    assert_eq!(plane.cursor(&copy, &child).unwrap().unwrap().cursor, to);
    let note = plane.trashed().unwrap().remove(0);
    let reason = note.reason.unwrap();
    assert_eq!(reason.claim, Claim::Gone(old.clone()));
    assert!(!reason.content.is_empty(), "what was replaced can be looked up");
    let granted = permit(Claim::Gone(old), &view);
    assert_eq!(plane.reap_note(granted, &note.name, &view, 0, 9).unwrap_err().code(), "too-young");
}

#[test]
fn a_cursor_is_dropped_only_by_the_attachment_in_its_file() {
    let (mut machine, copy, disk, plane, [child, old, new]) = attached();
    let anchor = Claim::Current { attachment: new.clone(), file: None };
    let granted = confirmed(anchor, &machine.view()).unwrap();
    let to = cursor(&new, &copy, 9);
    plane.replace_cursor(granted, &machine.view(), &copy, &child, None, &to).expect("anchored");
    let view = machine.view();
    let cleanup = permit(Claim::Gone(old), &view);
    assert_eq!(plane.drop_cursor(cleanup, &view, &copy, &child), Err(Keep::WrongPermit));
    apply_one(&mut machine, None, &detach("b", None));
    let gone = || permit(Claim::Gone(new.clone()), &view);
    plane.drop_cursor(gone(), &view, &copy, &child).expect("dropped");
    assert_eq!(plane.cursor(&copy, &child), Ok(None));
    let note = plane.trashed().unwrap().remove(0).name;
    let wrong = permit(Claim::Gone(new.clone()), &view);
    assert_eq!(plane.reap_note(wrong, "volume", &view, 0, 0), Err(Keep::WrongPermit));
    plane.reap_note(gone(), &note, &view, 0, 0).expect("for good");
    assert!(plane.trashed().unwrap().is_empty());
    assert!(!disk.files().keys().any(|path| path.contains("cursor")));
}

#[test]
fn a_cursor_that_cannot_be_read_is_not_absent() {
    let (machine, copy, disk, plane, [child, old, new]) = attached();
    let view = machine.view();
    let to = cursor(&old, &copy, 5);
    plane.replace_cursor(first_anchor(&old), &view, &copy, &child, None, &to).unwrap();
    let path = disk.files().into_keys().find(|path| path.contains("cursor")).unwrap();
    disk.open(&path, Mode::Write).unwrap().write_at(16, b"rot").unwrap();
    assert!(matches!(plane.cursor(&copy, &child), Err(Keep::BadStamp(_))));
    let claim = Claim::Current { attachment: new.clone(), file: None };
    let granted = confirmed(claim, &view).unwrap();
    let to = cursor(&new, &copy, 20);
    let kept = plane.replace_cursor(granted, &view, &copy, &child, None, &to);
    assert!(matches!(kept, Err(Keep::BadStamp(_))), "{kept:?}");
}

/// SCENARIOS 3 and N29.
#[test]
fn a_discard_is_written_down_durably_before_it_counts() {
    let (machine, copy, disk, plane) = deleted();
    let view = machine.view();
    let gone = || permit(Claim::Gone(copy.topic.clone()), &view);
    let again = Stamp { incarnation: 4, ..copy.topic.clone() };
    let other = plane.discard(gone(), &view, &again, 2, b"two");
    assert_eq!(other, Err(Keep::WrongPermit), "records of another incarnation (N1)");
    disk.fail_next(Op::Sync, "data/tmp");
    assert_eq!(plane.discard(gone(), &view, &copy.topic, 2, b"two").unwrap_err().code(), "disk");
    let verdict = plane.discard(gone(), &view, &copy.topic, 2, b"two").unwrap();
    assert_eq!((verdict.topic(), verdict.count()), (&copy.topic, 2));
    let after = plane_after_power_loss(&disk);
    let note = after.trashed().unwrap().remove(0).reason.unwrap();
    assert_eq!((note.count, note.content.as_slice()), (2, b"two".as_slice()));
    let large = vec![0; holdfast_fsm::plane::DISCARD_MAX + 1];
    assert_eq!(after.discard(gone(), &view, &copy.topic, 1, &large).unwrap_err().code(), "disk");
}

fn plane_after_power_loss(disk: &MemDisk) -> Plane<MemDisk> {
    plane(&disk.crash(&mut LoseAll))
}

#[test]
fn a_plane_of_another_node_or_cluster_or_nobody_is_refused_untouched() {
    let (_machine, _copy, disk, plane) = placed();
    assert_eq!(plane.volume().volume, MINE);
    drop(plane);
    let before = disk.files();
    let refused = |cluster, node| {
        let error = Plane::open(disk.clone(), cluster, node, VolumeId(5)).unwrap_err();
        assert!(
            matches!(&error, PlaneError::Foreign(text) if text.contains("nothing was changed"))
        );
        assert_eq!(disk.files(), before);
    };
    refused(CLUSTER, "n2");
    refused(ClusterId(9), "n1");
    let again = Plane::open(disk.clone(), CLUSTER, "n1", VolumeId(5)).unwrap();
    assert_eq!(again.volume().volume, MINE, "the volume keeps its id (R5)");
    drop(again);
    disk.open("data/volume", Mode::Write).unwrap().write_at(16, b"rot").unwrap();
    assert!(matches!(
        Plane::open(disk.clone(), CLUSTER, "n1", VolumeId(5)),
        Err(PlaneError::Foreign(_))
    ));
    disk.unlink("data/volume").unwrap();
    let nobody = Plane::open(disk.clone(), CLUSTER, "n1", VolumeId(5)).unwrap_err();
    assert!(matches!(&nobody, PlaneError::Foreign(text) if text.contains("missing")), "{nobody}");
}

#[test]
fn the_plane_works_on_a_real_disk() {
    let (machine, copy, _, _) = deleted();
    let view = machine.view();
    let dir = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(dir.path()).unwrap();
    let plane = Plane::open(disk.clone(), CLUSTER, "n1", MINE).unwrap();
    let place = plane.create(&copy).unwrap();
    record(&disk, &place, b"precious");
    plane.trash(permit(Claim::CopyGone(copy.clone()), &view), &view).unwrap();
    drop(plane);
    let plane = Plane::open(disk.clone(), CLUSTER, "n1", MINE).unwrap();
    assert_eq!(plane.trashed().unwrap().len(), 1);
    plane.reap(permit(Claim::CopyGone(copy), &view), &view, 0, 0).unwrap();
    assert!(disk.list("data/trash").unwrap().is_empty());
    assert!(disk.list("data/tmp").unwrap().is_empty());
}

/// R29 again, wherever a permit is used: the state is looked at under the lock.
#[test]
fn no_permit_of_any_kind_is_used_when_the_state_cannot_be_read() {
    let (machine, copy, _disk, plane, [child, old, new]) = attached();
    let view = machine.view();
    let first = first_anchor(&old);
    plane.replace_cursor(first, &view, &copy, &child, None, &cursor(&old, &copy, 5)).unwrap();
    let seen = plane.cursor(&copy, &child).unwrap();
    let claim = Claim::Current { attachment: new.clone(), file: Some(old.clone()) };
    let replace = confirmed(claim, &view).unwrap();
    let cleanup = permit(Claim::Gone(old), &view);
    drop(machine);
    let to = cursor(&new, &copy, 20);
    let kept = plane.replace_cursor(replace, &view, &copy, &child, seen.as_ref(), &to);
    assert_eq!(kept.unwrap_err().code(), "unreadable");
    let kept = plane.drop_cursor(cleanup, &view, &copy, &child);
    assert_eq!(kept.unwrap_err().code(), "unreadable");
    let (machine, copy, _disk, plane) = deleted();
    let view = machine.view();
    plane.trash(permit(Claim::CopyGone(copy.clone()), &view), &view).unwrap();
    let records = || permit(Claim::Gone(copy.topic.clone()), &view);
    let (discard, note) = (records(), records());
    drop(plane.discard(records(), &view, &copy.topic, 1, b"one").unwrap());
    let name = plane.trashed().unwrap().into_iter().find(|entry| entry.copy.is_none());
    let name = name.unwrap().name;
    let reap = permit(Claim::CopyGone(copy.clone()), &view);
    drop(machine);
    let kept = plane.discard(discard, &view, &copy.topic, 1, b"");
    assert_eq!(kept.unwrap_err().code(), "unreadable");
    assert_eq!(plane.reap(reap, &view, 0, 0).unwrap_err().code(), "unreadable");
    assert_eq!(plane.reap_note(note, &name, &view, 0, 0).unwrap_err().code(), "unreadable");
    assert_eq!(plane.trashed().unwrap().len(), 2);
}
