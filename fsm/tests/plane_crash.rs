//! Crashes at every operation of the data plane, with every kind of loss: a copy is whole at its
//! place or whole in the trash, a cursor is the old one or the new one, and what was reported done
//! is done.
#![forbid(unsafe_code)]

mod common;

use common::*;
use holdfast_consensus::message::{Confirmation, Outcome};
use holdfast_consensus::traits::StateMachine;
use holdfast_consensus::{MemberId, Term};
use holdfast_fsm::guard::{Claim, Guard, Keep, Permit};
use holdfast_fsm::plane::{Cursor, Place, Plane, PlaneError};
use holdfast_fsm::records::{CopyStamp, Stamp, VolumeId};
use holdfast_fsm::{Metastore, View};
use holdfast_log::MemDisk;
use holdfast_log::disk::{Disk, DiskFile, Mode};
use holdfast_log::mem_disk::{KeepAll, LoseAll, PowerLoss, RandomLoss};

type Machine = Metastore<MemDisk>;

const MINE: VolumeId = VolumeId(1);

fn open(disk: &MemDisk) -> Result<Plane<MemDisk>, PlaneError> {
    Plane::open(disk.clone(), CLUSTER, "n1", MINE)
}

/// A power cut of this kind; `None` is a killed process.
fn loss(kind: u64) -> Option<Box<dyn PowerLoss>> {
    match kind {
        0 => None,
        1 => Some(Box::new(LoseAll)),
        2 => Some(Box::new(KeepAll)),
        seed => Some(Box::new(RandomLoss::new(seed))),
    }
}

/// What is on a disk when it begins, and what is known of it.
struct Scene {
    machine: Machine,
    copy: CopyStamp,
    child: Stamp,
    old: Stamp,
    new: Stamp,
    disk: MemDisk,
}

impl Scene {
    fn view(&self) -> View {
        self.machine.view()
    }

    fn place(&self) -> Place {
        Place::of(&self.copy)
    }

    /// A permit by a state in which the claim holds: this one's past, this one, or its future.
    fn permit(&self, claim: Claim) -> Permit {
        let entries = match &claim {
            Claim::Current { attachment, .. } if *attachment == self.old => 3,
            Claim::Current { .. } => HISTORY,
            _ => HISTORY + 1,
        };
        let machine = history(entries);
        let view = machine.view();
        if claim.is_monotone() {
            return Guard::new().prove(claim, &view, &standing(&view)).expect("proved");
        }
        let inquiry = Guard::new().inquire(claim, &view, &standing(&view), 7).expect("asked");
        let question = inquiry.question().encode().expect("encodes");
        let (index, answer) = Machine::confirm(&view, &question).expect("answers");
        let told = Confirmation { leader: MemberId(1), term: Term(1), index, answer };
        let outcome = Outcome::Confirmed(told);
        Guard::new().conclude(inquiry, &outcome, &view, &standing(&view)).expect("confirmed")
    }

    fn gone(&self) -> Permit {
        self.permit(Claim::CopyGone(self.copy.clone()))
    }

    fn cursor(&self, attachment: &Stamp, next: u64) -> Cursor {
        Cursor { attachment: attachment.clone(), parent: self.copy.topic.clone(), next }
    }
}

/// Entries of the scene's history; one more deletes topic `a`.
const HISTORY: usize = 6;

/// A state after so many entries of the one history that all scenes share.
fn history(entries: usize) -> Machine {
    let mut machine = fresh();
    let all = [
        create("a"),
        create("b"),
        attach(("b", 2), ("a", 1), &[0; 3]),
        detach("b", None),
        attach(("b", 2), ("a", 1), &[9; 3]),
        assign(part("a", 1, 0), 1),
        delete("a", None),
    ];
    for command in &all[..entries] {
        apply_one(&mut machine, None, command);
    }
    walk(&machine.view());
    machine
}

/// Topic `a` placed here, `b` attached to it twice; a plane with the copy of `a`, a record in it,
/// and the cursor of the older attachment at 8. All of it durable.
fn scene() -> Scene {
    let old = history(3).view().link("b").expect("read").value.expect("link");
    let machine = history(HISTORY);
    let new = machine.view().link("b").expect("read").value.expect("link").stamp;
    let row = machine.view().assignment("a", 0).expect("read").value.expect("placed");
    let copy = CopyStamp { volume: MINE, topic: row.topic, partition: 0, placed: row.stamp };
    let (child, old) = (old.child, old.stamp);
    let scene = Scene { machine, copy, child, old, new, disk: MemDisk::new() };
    let plane = open(&scene.disk).expect("opens");
    let place = plane.create(&scene.copy).expect("created");
    let file = scene.disk.open(&format!("{}/records", place.dir()), Mode::CreateNew);
    let file = file.expect("create");
    file.write_at(0, b"precious").expect("write");
    file.sync().expect("sync");
    scene.disk.sync_dir(&place.dir()).expect("sync dir");
    let anchor = Claim::Current { attachment: scene.old.clone(), file: None };
    let to = scene.cursor(&scene.old, 8);
    plane
        .replace_cursor(scene.permit(anchor), &scene.view(), &scene.copy, &scene.child, None, &to)
        .expect("anchored");
    scene
}

/// Cuts `act` after every number of operations, with every kind of loss, and looks at what the
/// next process finds. `check` is told whether `act` had reported success.
fn explore(
    prepare: impl Fn(&Scene),
    act: impl Fn(&Scene, &Plane<MemDisk>) -> Result<(), Keep>,
    check: impl Fn(&Scene, &MemDisk, &Plane<MemDisk>, bool),
) {
    let mut cuts = 0;
    for fuse in 0.. {
        let mut blown = false;
        for kind in 0..10 {
            let scene = scene();
            prepare(&scene);
            let plane = open(&scene.disk).expect("opens");
            scene.disk.set_fuse(Some(fuse));
            let done = act(&scene, &plane).is_ok();
            blown = scene.disk.is_blown();
            let after = match loss(kind) {
                None => scene.disk.kill(),
                Some(mut loss) => scene.disk.crash(loss.as_mut()),
            };
            let plane = open(&after).expect("the next process opens the plane");
            assert!(after.list("data/tmp").expect("list").is_empty());
            check(&scene, &after, &plane, done);
        }
        if !blown {
            break;
        }
        cuts += 1;
    }
    assert!(cuts >= 3, "only {cuts} operations");
}

/// True if the copy is whole in the directory; it must not be there in part.
fn whole(scene: &Scene, disk: &MemDisk, dir: &str) -> bool {
    let files = disk.files();
    let prefix = format!("{dir}/");
    let here: Vec<_> = files.keys().filter(|path| path.starts_with(&prefix)).collect();
    if here.is_empty() {
        return false;
    }
    assert_eq!(files.get(&format!("{dir}/records")).map(Vec::as_slice), Some(&b"precious"[..]));
    assert!(files.contains_key(&format!("{dir}/stamp")), "{} of {here:?}", scene.place());
    true
}

fn trash_dir(scene: &Scene) -> String {
    format!("data/trash/{}", scene.place())
}

#[test]
fn an_open_that_is_cut_short_is_taken_up_again() {
    for fuse in 0.. {
        let mut blown = false;
        for kind in 0..10 {
            let disk = MemDisk::new();
            disk.set_fuse(Some(fuse));
            let done = open(&disk).is_ok();
            blown = disk.is_blown();
            let after = match loss(kind) {
                None => disk.kill(),
                Some(mut loss) => disk.crash(loss.as_mut()),
            };
            let again = Plane::open(after, CLUSTER, "n1", VolumeId(7)).expect("opens again");
            let volume = again.volume().volume;
            assert!(volume == MINE || volume == VolumeId(7) && !done, "cut at {fuse}");
        }
        if !blown {
            break;
        }
    }
}

#[test]
fn a_copy_is_made_whole_or_not_at_all() {
    let other = |scene: &Scene| CopyStamp { partition: 1, ..scene.copy.clone() };
    explore(
        |_| {},
        |scene, plane| match plane.create(&other(scene)) {
            Ok(_) => Ok(()),
            Err(e) => Err(Keep::Disk(e.to_string())),
        },
        |scene, disk, plane, done| {
            let place = Place::of(&other(scene));
            let found = plane.list().expect("list");
            let made = found.iter().find(|found| found.place == place);
            assert!(made.is_some() || !done);
            // A stamp that reads as another place's is still a whole stamp.
            assert!(made.is_none_or(|made| !matches!(&made.stamp, Err(Keep::Disk(_)))));
            assert_eq!(
                disk.files().contains_key(&format!("{}/stamp", place.dir())),
                made.is_some()
            );
            assert!(whole(scene, disk, &scene.place().dir()));
            plane.create(&other(scene)).expect("the next try makes it, or finds it");
        },
    );
}

#[test]
fn a_copy_that_is_let_go_is_whole_at_its_place_or_whole_in_the_trash() {
    explore(
        |_| {},
        |scene, plane| plane.trash(scene.gone(), &scene.view()).map(drop),
        |scene, disk, plane, done| {
            let live = whole(scene, disk, &scene.place().dir());
            let trashed = whole(scene, disk, &trash_dir(scene));
            assert!(live != trashed, "at one place and no other");
            assert!(trashed || !done, "what was reported is so");
            let listed = plane.trashed().expect("list");
            assert_eq!(listed.len(), usize::from(trashed));
            assert!(listed.iter().all(|entry| entry.reason.is_ok()), "with its reason");
            if live {
                plane.trash(scene.gone(), &scene.view()).expect("the next pass");
            }
        },
    );
}

#[test]
fn a_copy_that_is_put_back_is_whole_in_the_trash_or_whole_at_its_place() {
    explore(
        |scene| {
            let plane = open(&scene.disk).expect("opens");
            plane.trash(scene.gone(), &scene.view()).expect("let go");
        },
        |scene, plane| plane.put_back(&scene.copy, &scene.view()).map(drop),
        |scene, disk, plane, done| {
            let live = whole(scene, disk, &scene.place().dir());
            assert!(live != whole(scene, disk, &trash_dir(scene)), "at one place and no other");
            assert!(live || !done, "what was reported is so");
            if !live {
                plane.put_back(&scene.copy, &scene.view()).expect("the next try");
            }
            assert!(plane.trashed().expect("list").is_empty());
        },
    );
}

#[test]
fn a_copy_that_is_reaped_is_whole_in_the_trash_or_gone() {
    explore(
        |scene| {
            let plane = open(&scene.disk).expect("opens");
            plane.trash(scene.gone(), &scene.view()).expect("let go");
        },
        |scene, plane| plane.reap(scene.gone(), &scene.view(), 0, 0).map(drop),
        |scene, disk, plane, done| {
            assert!(!whole(scene, disk, &scene.place().dir()), "it never comes back");
            let trashed = whole(scene, disk, &trash_dir(scene));
            assert!(!trashed || !done, "what was reported is so");
            assert_eq!(plane.trashed().expect("list").len(), usize::from(trashed));
            if trashed {
                plane.reap(scene.gone(), &scene.view(), 0, 0).expect("the next pass");
            }
            assert!(!disk.files().keys().any(|path| path.contains("records")));
        },
    );
}

#[test]
fn a_cursor_that_is_replaced_is_the_old_one_or_the_new_one_and_the_old_is_in_the_trash() {
    explore(
        |_| {},
        |scene, plane| {
            let seen = plane.cursor(&scene.copy, &scene.child)?;
            let (attachment, file) = (scene.new.clone(), Some(scene.old.clone()));
            let permit = scene.permit(Claim::Current { attachment, file });
            let to = scene.cursor(&scene.new, 20);
            let (view, copy) = (scene.view(), &scene.copy);
            plane.replace_cursor(permit, &view, copy, &scene.child, seen.as_ref(), &to)
        },
        |scene, _, plane, done| {
            let now = plane.cursor(&scene.copy, &scene.child).expect("it reads");
            let now = now.expect("it is there").cursor;
            let replaced = now == scene.cursor(&scene.new, 20);
            assert!(replaced || !done && now == scene.cursor(&scene.old, 8), "{now:?}");
            let notes = plane.trashed().expect("list");
            assert!(!replaced || notes.iter().any(|note| note.reason.is_ok()), "it is noted");
        },
    );
}

#[test]
fn a_cursor_that_is_dropped_is_noted_first() {
    explore(
        |_| {},
        |scene, plane| {
            let permit = scene.permit(Claim::Gone(scene.old.clone()));
            plane.drop_cursor(permit, &scene.view(), &scene.copy, &scene.child)
        },
        |scene, _, plane, done| {
            let there = plane.cursor(&scene.copy, &scene.child).expect("it reads").is_some();
            assert!(!there || !done);
            let notes = plane.trashed().expect("list");
            assert!(there || notes.iter().any(|note| note.reason.is_ok()), "it is noted");
        },
    );
}

#[test]
fn an_advance_of_a_cursor_is_whole_or_not_at_all() {
    explore(
        |_| {},
        |scene, plane| {
            plane.advance_cursor(&scene.copy, &scene.child, &scene.cursor(&scene.old, 9))
        },
        |scene, _, plane, done| {
            let now = plane.cursor(&scene.copy, &scene.child).expect("it reads");
            let next = now.expect("it is there").cursor.next;
            assert!(next == 9 || !done && next == 8, "{next}");
        },
    );
}

#[test]
fn a_discard_that_was_reported_is_on_the_disk() {
    explore(
        |_| {},
        |scene, plane| {
            let topic = &scene.copy.topic;
            let permit = scene.permit(Claim::Gone(topic.clone()));
            plane.discard(permit, &scene.view(), topic, 3, b"three").map(drop)
        },
        |_, _, plane, done| {
            let notes = plane.trashed().expect("list");
            let noted = notes
                .iter()
                .any(|note| note.reason.as_ref().is_ok_and(|reason| reason.content == b"three"));
            assert!(noted || !done);
            assert!(notes.iter().all(|note| note.reason.is_ok()), "no half note");
        },
    );
}
