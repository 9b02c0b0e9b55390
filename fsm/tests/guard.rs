//! The guard: what it lets go, and each step that keeps. Every test of a step fails if the step is
//! taken out, because everything else would grant the claim.
#![forbid(unsafe_code)]

mod common;

use bytes::Bytes;
use common::*;
use holdfast_consensus::fault::Refusal;
use holdfast_consensus::message::{Confirmation, Outcome};
use holdfast_consensus::traits::{Contact, StateMachine};
use holdfast_consensus::{ClusterId, Index, MemberId, Term};
use holdfast_fsm::guard::{AppliedCaughtUp, CONTACT_MAX_AGE, Claim, Evidence, Guard, Keep, Permit};
use holdfast_fsm::guard::{Proof, Standing, Verdict, inquiry, local};
use holdfast_fsm::records::{CopyStamp, Stamp, VolumeId};
use holdfast_fsm::snapshot::{Parser, Part};
use holdfast_fsm::{Metastore, Trust, View, WalkStep};
use holdfast_log::MemDisk;
use holdfast_log::disk::{Disk, DiskFile, Mode};

type Machine = Metastore<MemDisk>;
/// What is expected once this is changed.
type Change<T> = (&'static str, fn(&mut T));

fn topic(view: &View, name: &str) -> Stamp {
    view.topic(name).expect("read").value.expect("lives").stamp
}

fn copy_of(view: &View, volume: u128) -> CopyStamp {
    let row = view.assignment("a", 0).expect("read").value.expect("placed");
    CopyStamp { volume: VolumeId(volume), topic: row.topic, partition: 0, placed: row.stamp }
}

/// Topic `a` (1) placed at node 1 (2), and its copy.
fn placed() -> (Machine, CopyStamp) {
    let mut machine = fresh();
    apply_one(&mut machine, None, &create("a"));
    apply_one(&mut machine, None, &assign(part("a", 1, 0), 1));
    let copy = copy_of(&machine.view(), 1);
    (machine, copy)
}

/// As [`placed`], but the topic was deleted.
fn deleted() -> (Machine, CopyStamp) {
    let (mut machine, copy) = placed();
    apply_one(&mut machine, None, &delete("a", None));
    walk(&machine.view());
    (machine, copy)
}

/// As [`placed`], but moved to node 2 (move 3) with a copy of `length` records.
fn moved(length: u64, forced: bool) -> (Machine, CopyStamp) {
    let (mut machine, copy) = placed();
    apply_one(&mut machine, None, &set_target(part("a", 1, 0), 2, 2));
    apply_one(&mut machine, None, &complete(part("a", 1, 0), 3, length, forced));
    walk(&machine.view());
    (machine, copy)
}

/// Topics `a` (1) and `b` (2); `b` attached (3), detached, attached again (5). Both stamps.
fn reattached() -> (Machine, Stamp, Stamp) {
    let mut machine = fresh();
    apply_one(&mut machine, None, &create("a"));
    apply_one(&mut machine, None, &create("b"));
    apply_one(&mut machine, None, &attach(("b", 2), ("a", 1), &[0; 3]));
    let old = machine.view().link("b").expect("read").value.expect("attached").stamp;
    apply_one(&mut machine, None, &detach("b", None));
    apply_one(&mut machine, None, &attach(("b", 2), ("a", 1), &[9; 3]));
    let new = machine.view().link("b").expect("read").value.expect("attached").stamp;
    walk(&machine.view());
    (machine, old, new)
}

fn prove(claim: Claim, machine: &Machine) -> Result<Permit, Keep> {
    let view = machine.view();
    Guard::new().prove(claim, &view, &standing(&view))
}

/// The leader's answer, as a machine with this state would give it.
fn asked(guard: Guard, claim: Claim, machine: &Machine) -> Result<Permit, Keep> {
    let view = machine.view();
    let inquiry = guard.inquire(claim, &view, &standing(&view), 77)?;
    let outcome = told(&inquiry, &view);
    guard.conclude(inquiry, &outcome, &view, &standing(&view))
}

fn told(inquiry: &inquiry::Inquiry, leader: &View) -> Outcome {
    let question = inquiry.question().encode().expect("encodes");
    let (index, answer) = Machine::confirm(leader, &question).expect("answers");
    Outcome::Confirmed(Confirmation { leader: MemberId(1), term: Term(1), index, answer })
}

fn code(result: Result<Permit, Keep>) -> &'static str {
    result.map_or_else(|keep| keep.code(), |_| "permit")
}

#[test]
fn a_tombstone_proves_that_a_copy_its_records_and_an_attachment_may_go() {
    let (machine, copy) = deleted();
    let permit = prove(Claim::CopyGone(copy.clone()), &machine).expect("proved");
    let verdict = Verdict::Gone { deleted_at: 3 };
    assert_eq!(permit.proof(), &Proof::Local { verdict, applied: Index(3) });
    permit.still_stands(&machine.view()).expect("it stands");
    assert_eq!(code(prove(Claim::Gone(copy.topic), &machine)), "permit");
    let (machine, old, new) = reattached();
    assert_eq!(code(prove(Claim::Gone(old), &machine)), "permit");
    assert_eq!(code(prove(Claim::Gone(new), &machine)), "live");
}

#[test]
fn an_aborted_move_lets_its_targets_copy_go_but_not_the_owners() {
    let (mut machine, owners) = placed();
    apply_one(&mut machine, None, &set_target(part("a", 1, 0), 2, 2));
    let row = machine.view().assignment("a", 0).unwrap().value.unwrap();
    let placed = row.target.unwrap().stamp;
    let targets = CopyStamp { volume: VolumeId(1), placed, ..owners.clone() };
    walk(&machine.view());
    assert_eq!(code(prove(Claim::CopyGone(targets.clone()), &machine)), "live");
    apply_one(&mut machine, None, &abort(part("a", 1, 0), 3));
    assert_eq!(code(prove(Claim::CopyGone(targets), &machine)), "permit");
    assert_eq!(code(prove(Claim::CopyGone(owners), &machine)), "live");
}

#[test]
fn absence_is_unknown_and_a_recreated_topic_is_another_one() {
    let (mut machine, copy) = deleted();
    let never = Stamp { incarnation: 99, ..copy.topic.clone() };
    let keep = prove(Claim::Gone(never), &machine).expect_err("unknown");
    assert!(keep.needs_leader() && keep.code() == "unknown", "{keep}");
    apply_one(&mut machine, None, &create("a"));
    let again = topic(&machine.view(), "a");
    assert_eq!(code(prove(Claim::Gone(again), &machine)), "live");
    assert_eq!(code(prove(Claim::CopyGone(copy), &machine)), "permit", "the old one stays gone");
}

/// Step by step: what the replica says of itself (R30, N8, N16).
#[test]
fn a_replica_that_is_not_awake_and_identified_proves_nothing() {
    let (machine, copy) = deleted();
    let view = machine.view();
    let changes: [Change<Standing>; 8] = [
        ("stopped", |s| s.stopped = true),
        ("shutting-down", |s| s.shutting_down = true),
        ("held", |s| s.held = true),
        ("dispute", |s| s.dispute = true),
        ("no-identity", |s| s.member = MemberId(0)),
        ("no-identity", |s| s.volume = VolumeId(0)),
        ("other-cluster", |s| s.cluster = ClusterId(9)),
        ("other-epoch", |s| s.state_epoch = 9),
    ];
    for (expected, change) in changes {
        let mut standing = standing(&view);
        change(&mut standing);
        let proved = Guard::new().prove(Claim::CopyGone(copy.clone()), &view, &standing);
        assert_eq!(code(proved), expected);
    }
}

#[test]
fn a_store_proves_nothing_before_its_walk_and_nothing_after_a_reopen_until_the_next() {
    let (mut machine, copy) = deleted();
    let claim = || Claim::CopyGone(copy.clone());
    assert_eq!(machine.view().trust().unwrap(), Trust::Walked);
    machine.checkpoint().unwrap();
    machine.reopen().unwrap();
    assert_eq!(code(prove(claim(), &machine)), "unwalked");
    let view = machine.view();
    let mut half = view.walk().unwrap();
    assert_eq!(half.step(1).unwrap(), WalkStep::More);
    assert_eq!(code(prove(claim(), &machine)), "unwalked", "half a walk is none");
    machine.reopen().unwrap();
    assert_eq!(half.step(100).unwrap(), WalkStep::Replaced, "the walk was of another store");
    assert_eq!(code(prove(claim(), &machine)), "unwalked");
    walk(&machine.view());
    assert_eq!(code(prove(claim(), &machine)), "permit");
}

#[test]
fn a_snapshot_install_asks_for_another_walk() {
    let (mut source, _) = placed();
    apply_one(&mut source, None, &delete("a", None));
    let (meta, chunks) = snapshot(&mut source);
    let mut target = fresh();
    walk(&target.view());
    let sink = restore(&mut target, &meta, &chunks);
    target.adopt(sink).unwrap();
    assert_eq!(target.view().trust().unwrap(), Trust::Unwalked);
}

#[test]
fn a_closed_store_is_no_absence() {
    let (machine, copy) = deleted();
    let (view, standing) = (machine.view(), standing(&machine.view()));
    drop(machine);
    let claim = Claim::CopyGone(copy);
    assert_eq!(code(Guard::new().prove(claim, &view, &standing)), "unreadable");
}

#[test]
fn foreign_stamps_are_quarantined() {
    let (machine, copy) = deleted();
    let cases: [Change<CopyStamp>; 4] = [
        ("other-cluster", |c| {
            c.topic.cluster = ClusterId(9);
            c.placed.cluster = ClusterId(9);
        }),
        ("other-epoch", |c| c.topic.epoch = 4),
        ("other-volume", |c| c.volume = VolumeId(9)),
        ("bad-stamp", |c| c.partition = 2),
    ];
    for (expected, change) in cases {
        let mut copy = copy.clone();
        change(&mut copy);
        let keep = prove(Claim::CopyGone(copy), &machine).expect_err("kept");
        assert_eq!(keep.code(), expected);
        assert!(keep.is_quarantine() && !keep.needs_leader(), "{keep}");
    }
}

#[test]
fn ownership_is_never_proved_here_alone() {
    let (machine, copy) = moved(40, false);
    let claim = Claim::MovedAway { copy, length: 40 };
    assert_eq!(code(prove(claim, &machine)), "ask-leader");
    let (machine, old, new) = reattached();
    let claim = Claim::Current { attachment: new, file: Some(old) };
    assert_eq!(code(prove(claim, &machine)), "ask-leader");
}

#[test]
fn a_copy_goes_for_ownership_only_by_the_four_conditions() {
    let leader = |machine: &Machine, copy: CopyStamp, length| {
        code(asked(Guard::new(), Claim::MovedAway { copy, length }, machine))
    };
    let (machine, copy) = moved(40, false);
    assert_eq!(leader(&machine, copy.clone(), 40), "permit");
    assert_eq!(leader(&machine, copy.clone(), 41), "shorter");
    let row = machine.view().assignment("a", 0).unwrap().value.unwrap();
    let newer = CopyStamp { placed: row.stamp, ..copy.clone() };
    assert_eq!(leader(&machine, newer, 40), "not-newer");
    let other = CopyStamp { topic: Stamp { incarnation: 9, ..copy.topic.clone() }, ..copy };
    assert_eq!(leader(&machine, other, 40), "no-owner");
    let (machine, copy) = moved(40, true);
    let forced = leader(&machine, copy, 0);
    assert_eq!(forced, "forced");
    let (mut machine, copy) = moved(40, false);
    apply_one(&mut machine, None, &set_target(part("a", 1, 0), 3, 1));
    apply_one(&mut machine, None, &complete(part("a", 1, 0), 5, 50, false));
    assert_eq!(leader(&machine, copy, 40), "own-partition", "it came back to this disk");
}

#[test]
fn a_forced_move_is_remembered_through_later_ones() {
    let (mut machine, copy) = moved(0, true);
    apply_one(&mut machine, None, &set_target(part("a", 1, 0), 3, 3));
    apply_one(&mut machine, None, &complete(part("a", 1, 0), 5, 1000, false));
    let claim = Claim::MovedAway { copy, length: 10 };
    assert_eq!(code(asked(Guard::new(), claim, &machine)), "forced");
}

#[test]
fn a_cursor_of_an_older_attachment_is_replaced_and_one_of_a_newer_never() {
    let (machine, old, new) = reattached();
    let claim = |attachment: &Stamp, file: Option<&Stamp>| Claim::Current {
        attachment: attachment.clone(),
        file: file.cloned(),
    };
    let ask = |claim| code(asked(Guard::new(), claim, &machine));
    assert_eq!(ask(claim(&new, Some(&old))), "permit");
    assert_eq!(ask(claim(&new, None)), "permit");
    assert_eq!(ask(claim(&old, Some(&new))), "behind", "I am behind (R36)");
    assert_eq!(ask(claim(&old, None)), "not-attached");
    let stranger = Stamp { name: "c".to_owned(), ..old };
    assert_eq!(ask(claim(&new, Some(&stranger))), "bad-stamp");
}

/// R35, condition by condition.
#[test]
fn caught_up_needs_a_recent_word_of_a_leader_with_an_entry_of_its_own() {
    let (machine, copy) = moved(40, false);
    let view = machine.view();
    let contact = standing(&view).contact.unwrap();
    let cases: [(&str, Option<Contact>); 6] = [
        ("no-leader", None),
        ("fresh-leader", Some(Contact { own_term: false, ..contact })),
        ("old-contact", Some(Contact { at: contact.at - CONTACT_MAX_AGE - 1, ..contact })),
        ("old-contact", Some(Contact { at: contact.at + 1, ..contact })),
        ("not-caught-up", Some(Contact { commit: Index(5), ..contact })),
        ("permit", Some(Contact { at: contact.at - CONTACT_MAX_AGE, ..contact })),
    ];
    for (expected, contact) in cases {
        let mine = Standing { contact, ..standing(&view) };
        let claim = || Claim::MovedAway { copy: copy.clone(), length: 1 };
        let begun = Guard::new().inquire(claim(), &view, &mine, 1);
        assert_eq!(begun.as_ref().map_or_else(Keep::code, |_| "permit"), expected, "before");
        let inquiry = Guard::new().inquire(claim(), &view, &standing(&view), 1).unwrap();
        let outcome = told(&inquiry, &view);
        let ended = Guard::new().conclude(inquiry, &outcome, &view, &mine);
        assert_eq!(code(ended), expected, "after");
        let checked = AppliedCaughtUp::check(&mine, Index(4));
        assert_eq!(checked.map_or_else(|keep| keep.code(), |_| "permit"), expected);
    }
}

/// Everything that can be wrong with an answer.
#[test]
fn anything_but_a_definite_answer_to_this_very_question_keeps() {
    let (machine, copy) = moved(40, false);
    let view = machine.view();
    let claim = || Claim::MovedAway { copy: copy.clone(), length: 40 };
    let begin = |nonce| Guard::new().inquire(claim(), &view, &standing(&view), nonce).unwrap();
    let end = |inquiry, outcome: &Outcome| {
        code(Guard::new().conclude(inquiry, outcome, &view, &standing(&view)))
    };
    let good = told(&begin(1), &view);
    assert_eq!(end(begin(1), &good), "permit");
    assert_eq!(end(begin(2), &good), "strange-reply", "a reply to an earlier question");
    for lost in [Outcome::Unknown(Refusal::Busy), Outcome::NotCommitted(Refusal::Busy)] {
        assert_eq!(end(begin(1), &lost), "no-answer");
    }
    let Outcome::Confirmed(good) = good else { panic!("confirmed") };
    let with = |verdict: Verdict| {
        let mut reply = inquiry::Reply::decode(&good.answer).unwrap();
        reply.verdict = verdict;
        let answer = holdfast_consensus::codec::encode("reply", &reply).unwrap().into();
        Outcome::Confirmed(Confirmation { answer, ..good.clone() })
    };
    assert_eq!(end(begin(1), &with(Verdict::Unknown)), "leader-unknown");
    assert_eq!(end(begin(1), &with(Verdict::Live { incarnation: 2 })), "leader-live");
    assert_eq!(end(begin(1), &with(Verdict::Moved { incarnation: 9, length: 40 })), "disagreement");
    let of = |leader, term, index| {
        let (leader, term) = (MemberId(leader), Term(term));
        Outcome::Confirmed(Confirmation { leader, term, index: Index(index), ..good.clone() })
    };
    assert_eq!(end(begin(1), &of(2, 1, 4)), "leader-changed");
    assert_eq!(end(begin(1), &of(1, 2, 4)), "leader-changed");
    assert_eq!(end(begin(1), &of(1, 1, 5)), "behind-answer");
    let garbage = Outcome::Confirmed(Confirmation { answer: Bytes::from_static(b"?"), ..good });
    assert_eq!(end(begin(1), &garbage), "strange-reply");
}

#[test]
fn a_store_that_was_reopened_during_an_inquiry_voids_it_and_its_permit() {
    let (mut machine, copy) = moved(40, false);
    let claim = || Claim::MovedAway { copy: copy.clone(), length: 40 };
    let view = machine.view();
    let permit = asked(Guard::new(), claim(), &machine).expect("permit");
    let inquiry = Guard::new().inquire(claim(), &view, &standing(&view), 1).unwrap();
    let outcome = told(&inquiry, &view);
    machine.checkpoint().unwrap();
    machine.reopen().unwrap();
    walk(&view);
    let ended = Guard::new().conclude(inquiry, &outcome, &view, &standing(&view));
    assert_eq!(code(ended), "store-replaced");
    assert_eq!(permit.still_stands(&view).unwrap_err().code(), "store-replaced");
    let (mut machine, copy) = deleted();
    let monotone = prove(Claim::CopyGone(copy), &machine).unwrap();
    machine.checkpoint().unwrap();
    machine.reopen().unwrap();
    monotone.still_stands(&machine.view()).expect("what is gone stays gone");
}

#[test]
fn what_the_own_state_contradicts_is_not_even_asked() {
    let (mut machine, copy) = placed();
    walk(&machine.view());
    let view = machine.view();
    let claim = Claim::CopyGone(copy.clone());
    let inquiry = Guard::new().inquire(claim, &view, &standing(&view), 1);
    assert_eq!(inquiry.unwrap_err().code(), "live");
    let unknown = Claim::Gone(Stamp { incarnation: 99, ..copy.topic.clone() });
    let inquiry = Guard::new().inquire(unknown, &view, &standing(&view), 1).unwrap();
    let outcome = told(&inquiry, &view);
    let ended = Guard::new().conclude(inquiry, &outcome, &view, &standing(&view));
    assert_eq!(code(ended), "leader-unknown", "the leader cannot prove it either");
    apply_one(&mut machine, None, &delete("a", None));
}

/// The two halves of the fourth loss: who answers must believe its own state.
#[test]
fn a_leader_whose_store_was_not_walked_or_is_of_another_world_gives_no_definite_answer() {
    let (asker, copy) = deleted();
    let view = asker.view();
    let ask = || {
        let never = Claim::Gone(Stamp { incarnation: 99, ..copy.topic.clone() });
        Guard::new().inquire(never, &view, &standing(&view), 1).unwrap()
    };
    let mut question = ask().question().clone();
    question.claim = Claim::Gone(copy.topic.clone());
    let verdict = |view: &View, question: &inquiry::Question| {
        let (_, answer) = Machine::confirm(view, &question.encode().unwrap())?;
        Some(inquiry::Reply::decode(&answer).unwrap().verdict)
    };
    assert_eq!(verdict(&view, &question), Some(Verdict::Gone { deleted_at: 3 }));
    let (mut unwalked, _) = placed();
    apply_one(&mut unwalked, None, &delete("a", None));
    assert_eq!(verdict(&unwalked.view(), &question), Some(Verdict::Unknown));
    let epoch = inquiry::Question { epoch: 9, ..question.clone() };
    assert_eq!(verdict(&view, &epoch), Some(Verdict::Unknown));
    let cluster = inquiry::Question { cluster: ClusterId(9), ..question.clone() };
    assert_eq!(verdict(&view, &cluster), None);
    assert_eq!(Machine::confirm(&view, &Bytes::from(vec![0; 5000])), None);
    drop(asker);
    assert_eq!(verdict(&view, &question), None, "a closed store says nothing");
}

/// A judgement by hand-made evidence: what an import or a strange store would show.
#[test]
fn only_the_tombstone_of_this_stamp_in_this_epoch_is_evidence() {
    let (machine, copy) = deleted();
    let claim = Claim::Gone(copy.topic.clone());
    let evidence = machine.view().evidence(&claim).unwrap();
    assert_eq!(local::judge(&claim, &evidence), Ok(Verdict::Gone { deleted_at: 3 }));
    let keep = |change: fn(&mut Evidence)| {
        let mut changed = evidence.clone();
        change(&mut changed);
        local::judge(&claim, &changed).unwrap_err().code()
    };
    assert_eq!(keep(|e| e.tombstones.clear()), "unknown");
    assert_eq!(keep(|e| e.tombstones[0].stamp.epoch = 5), "unknown", "of another stamp");
    assert_eq!(keep(|e| e.tombstones[0].stamp.cluster = ClusterId(9)), "unknown");
    assert_eq!(
        keep(|e| e.tombstones[0].epoch = 5),
        "other-epoch",
        "deleted in another epoch (N18)"
    );
    assert_eq!(keep(|e| e.state_epoch = 5), "other-epoch");
    let mut both = evidence;
    let (live, _) = placed();
    both.topic = live.view().topic("a").unwrap().value;
    let verdict = local::judge(&claim, &both);
    assert_eq!(verdict, Ok(Verdict::Live { incarnation: 1 }), "what lives is never gone");
}

/// R30: a store that took the place of a damaged one proves nothing in this start.
#[test]
fn a_rebuilt_store_proves_nothing_until_a_snapshot_replaces_it() {
    use holdfast_fsm::start::{Plan, start};
    use holdfast_log::{Home, HomeOptions, LogOptions};
    let disk = MemDisk::new();
    let options = HomeOptions {
        name: "n1".to_owned(),
        fresh_member: MemberId(1),
        log: LogOptions { segment_bytes: 32_768 },
    };
    let mut home = Home::open(disk.clone(), &options).unwrap();
    home.found(CLUSTER, 1, voters(1)).unwrap();
    drop(home);
    disk.make_dir("store").unwrap();
    disk.open("store/meta.redb", Mode::CreateNew).unwrap().write_at(0, b"rot").unwrap();
    let home = Home::open(disk.clone(), &options).unwrap();
    let mut started = start(home, disk, common::options()).unwrap();
    assert!(matches!(started.plan, Plan::SetAside { .. }));
    let view = started.store.view();
    walk(&view);
    assert_eq!(view.trust().unwrap(), Trust::Rebuilt);
    let (source, copy) = deleted();
    let proved = Guard::new().prove(Claim::CopyGone(copy.clone()), &view, &standing(&view));
    assert_eq!(code(proved), "rebuilt");
    started.store.reopen().unwrap();
    walk(&view);
    assert_eq!(view.trust().unwrap(), Trust::Rebuilt, "opening it again is not enough");
    let mut source = source;
    let (meta, chunks) = snapshot(&mut source);
    let sink = restore(&mut started.store, &meta, &chunks);
    started.store.adopt(sink).unwrap();
    assert_eq!(view.trust().unwrap(), Trust::Unwalked);
    walk(&view);
    let proved = Guard::new().prove(Claim::CopyGone(copy), &view, &standing(&view));
    assert_eq!(code(proved), "permit");
}

/// The same state in another state epoch, as an import would leave it: the header frame of the
/// snapshot stream says so.
fn imported(source: &mut Machine, epoch: u64) -> Machine {
    let (meta, mut chunks) = snapshot(source);
    let mut parser = Parser::default();
    parser.feed(&chunks[0]);
    let Ok(Some(Part::Header(mut header))) = parser.next_part() else { panic!("a header") };
    header.state_epoch = epoch;
    let mut payload = chunks[0][9..15].to_vec();
    payload.extend(holdfast_consensus::codec::encode("snapshot header", &header).expect("encodes"));
    let length = (payload.len() as u64).to_le_bytes();
    let crc = crc32c::crc32c(&[&[1u8][..], &length, &payload].concat());
    chunks[0] = [&[1u8][..], &length[..4], &crc.to_le_bytes(), &payload].concat().into();
    let mut target = fresh();
    let sink = restore(&mut target, &meta, &chunks);
    target.adopt(sink).expect("adopted");
    walk(&target.view());
    target
}

/// R8 and N18: a cluster that was restored from an older export proves nothing about what was made
/// or deleted before, but what is live stays live.
#[test]
fn a_new_state_epoch_quarantines_the_old_world() {
    let (mut machine, gone) = deleted();
    apply_one(&mut machine, None, &create("a"));
    let live = topic(&machine.view(), "a");
    let permit = prove(Claim::CopyGone(gone.clone()), &machine).expect("in the old epoch");
    let after = imported(&mut machine, 5);
    assert_eq!(after.view().held().unwrap().state_epoch, 5);
    assert_eq!(code(prove(Claim::CopyGone(gone.clone()), &after)), "other-epoch");
    assert_eq!(code(prove(Claim::Gone(live), &after)), "live");
    let never = Claim::Gone(Stamp { incarnation: 99, ..gone.topic.clone() });
    assert_eq!(code(prove(never, &after)), "other-epoch");
    assert_eq!(permit.still_stands(&after.view()).unwrap_err().code(), "other-epoch");
}

/// N19: a permit of one cluster is void in another.
#[test]
fn a_permit_is_void_in_another_cluster() {
    let (machine, gone) = deleted();
    let permit = prove(Claim::CopyGone(gone), &machine).expect("permit");
    let options = holdfast_fsm::StoreOptions::small(ClusterId(9), 1);
    let other = Metastore::open(MemDisk::new(), options).unwrap();
    assert_eq!(permit.still_stands(&other.view()).unwrap_err().code(), "other-cluster");
}

/// A placement of another epoch is not comparable with a copy of this one.
#[test]
fn a_move_in_a_new_state_epoch_is_no_evidence_about_older_copies() {
    let (mut machine, copy) = placed();
    let mut after = imported(&mut machine, 5);
    apply_one(&mut after, None, &set_target(part("a", 1, 0), 2, 2));
    apply_one(&mut after, None, &complete(part("a", 1, 0), 3, 40, false));
    let claim = Claim::MovedAway { copy, length: 1 };
    assert_eq!(code(asked(Guard::new(), claim, &after)), "other-epoch");
}

/// A keep must not be for ever in a healthy cluster: each reason that can pass, passes.
#[test]
fn whatever_keeps_for_now_lets_go_once_it_has_passed() {
    let (machine, copy) = moved(40, false);
    let view = machine.view();
    let claim = || Claim::MovedAway { copy: copy.clone(), length: 40 };
    let passing: [Change<Standing>; 8] = [
        ("stopped", |s| s.stopped = true),
        ("shutting-down", |s| s.shutting_down = true),
        ("held", |s| s.held = true),
        ("dispute", |s| s.dispute = true),
        ("no-leader", |s| s.contact = None),
        ("fresh-leader", |s| s.contact.as_mut().unwrap().own_term = false),
        ("old-contact", |s| s.now += CONTACT_MAX_AGE + 1),
        ("not-caught-up", |s| s.contact.as_mut().unwrap().commit = Index(9)),
    ];
    for (expected, change) in passing {
        let mut now = standing(&view);
        change(&mut now);
        let begun = Guard::new().inquire(claim(), &view, &now, 1).map(drop);
        let code = begun.map_or_else(|keep| keep.code(), |()| "begun");
        assert_eq!(code, expected);
        assert_eq!(self::code(asked(Guard::new(), claim(), &machine)), "permit", "{expected}");
    }
}

#[test]
fn the_book_says_what_to_do_about_every_reason() {
    let source = include_str!("../src/guard/keep.rs");
    let book = include_str!("../../book/src/guard.md");
    let codes: Vec<_> = source
        .lines()
        .filter_map(|line| {
            line.trim().strip_prefix("Self::")?.split_once("=> \"")?.1.split('"').next()
        })
        .collect();
    assert!(codes.len() > 35, "{codes:?}");
    for code in codes {
        assert!(book.contains(&format!("`{code}`")), "the table lacks {code}");
    }
}
