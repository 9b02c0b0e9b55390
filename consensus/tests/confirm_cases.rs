//! Questions that only a proven leader may answer: each step of the proof has a case in which a
//! replica without it would answer wrongly, or would not answer at all.

mod world;

use bytes::Bytes;
use holdfast_consensus::fault::Refusal;
use holdfast_consensus::job::Call;
use holdfast_consensus::message::{CONFIRM_QUESTION_MAX, Confirmation, Message, Outcome};
use holdfast_consensus::types::{Index, MemberId, Term, Ticket};
use world::{MS, SECOND, World, config, pass};

fn cluster(size: u64) -> World {
    let mut world = World::new(23, size, config(MemberId(1)));
    world.run_until(2 * SECOND);
    assert!(world.leader().is_some(), "a leader is elected");
    world
}

fn write(world: &mut World, node: usize, value: u64) {
    let before = world.acked.len();
    world.ask(node, Some(value), 5 * SECOND);
    pass(world, SECOND);
    assert_eq!(world.acked.len(), before + 1, "{value} is acknowledged");
}

fn other_than(node: usize) -> usize {
    (node + 1) % 3
}

/// "Does the list hold this value?"
fn question(value: u64) -> Call {
    Call::Confirm { question: Bytes::copy_from_slice(&value.to_le_bytes()) }
}

fn cut(world: &mut World, node: usize) {
    for other in (0..3).filter(|other| *other != node) {
        world.cuts.insert((node, other));
        world.cuts.insert((other, node));
    }
}

fn said(world: &World, ticket: Ticket) -> Option<Confirmation> {
    match world.outcomes.get(&ticket) {
        Some(Outcome::Confirmed(said)) => Some(said.clone()),
        _ => None,
    }
}

/// The question was answered, and rightly.
fn confirmed(world: &World, ticket: Ticket, held: bool) -> Confirmation {
    let said = said(world, ticket).unwrap_or_else(|| panic!("{:?}", world.outcomes.get(&ticket)));
    assert_eq!(said.answer.as_ref(), [u8::from(held)], "{said:?}");
    said
}

/// The caller was told nothing definite.
fn unknown(world: &World, ticket: Ticket) -> bool {
    matches!(world.outcomes.get(&ticket), Some(Outcome::NotCommitted(_) | Outcome::Unknown(_)))
}

fn member(node: usize) -> MemberId {
    MemberId(node as u64 + 1)
}

#[test]
fn every_node_gets_the_answer_of_the_proven_leader() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    write(&mut world, leader, 7);
    let term = world.status(leader).hard.term;
    for node in 0..3 {
        let [present, absent] = [7, 8].map(|value| world.call(node, question(value)));
        pass(&mut world, 500 * MS);
        for (ticket, held) in [(present, true), (absent, false)] {
            let said = confirmed(&world, ticket, held);
            assert_eq!((said.leader, said.term), (member(leader), term));
            assert!(world.status(node).applied.last.index >= said.index);
        }
    }
}

#[test]
fn a_single_member_confirms_to_itself() {
    let mut world = cluster(1);
    write(&mut world, 0, 7);
    let ticket = world.call(0, question(7));
    pass(&mut world, 100 * MS);
    confirmed(&world, ticket, true);
}

#[test]
fn confirming_writes_nothing_and_many_questions_share_rounds() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    write(&mut world, leader, 7);
    pass(&mut world, 10 * SECOND);
    let last = world.status(leader).last;
    let messages = world.tally.messages;
    let tickets: Vec<_> = (0..200).map(|_| world.call(leader, question(7))).collect();
    pass(&mut world, 50 * MS);
    for ticket in tickets {
        confirmed(&world, ticket, true);
    }
    assert_eq!(world.status(leader).last, last, "no entry is written");
    let sent = world.tally.messages - messages;
    assert!(sent < 60, "two hundred questions took {sent} messages");
}

#[test]
fn a_question_that_the_machine_cannot_answer_is_unknown() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    for node in [leader, other_than(leader)] {
        let ticket = world.call(node, Call::Confirm { question: Bytes::from_static(b"what?") });
        pass(&mut world, 500 * MS);
        let outcome = world.outcomes.get(&ticket);
        assert_eq!(outcome, Some(&Outcome::NotCommitted(Refusal::NoAnswer)));
    }
}

#[test]
fn a_question_that_is_too_long_never_leaves() {
    let mut world = cluster(3);
    let question = Bytes::from(vec![0; CONFIRM_QUESTION_MAX + 1]);
    world.call(0, Call::Confirm { question });
    assert_eq!(world.answered, Some(Outcome::NotCommitted(Refusal::TooLarge)));
}

/// The whole cluster dies right after a write; two members come back, and their stores, which hold
/// nothing of it, cannot apply for a while. Returns the new leader and its follower.
fn replaying(world: &mut World) -> (usize, usize) {
    let leader = world.leader().expect("a leader");
    world.ask(leader, Some(7), 5 * SECOND);
    pass(world, 100 * MS);
    assert_eq!(world.acked, [7], "acknowledged before any checkpoint");
    for node in 0..3 {
        world.crash(node);
    }
    for node in [leader, other_than(leader)] {
        world.members[node].machine.fail_writes(5);
        world.start(node);
    }
    pass(world, SECOND);
    let new = world.leader().expect("a leader again");
    let follower = if new == leader { other_than(leader) } else { leader };
    (new, follower)
}

#[test]
fn a_fresh_leader_answers_nobody_before_it_has_applied_what_its_proof_covers() {
    for itself in [false, true] {
        let mut world = cluster(3);
        let (leader, follower) = replaying(&mut world);
        let list = |world: &World| world.members[leader].process.as_ref().map(|p| p.view.list());
        assert_eq!(list(&world), Some(Vec::new()), "the new leader is still replaying");
        let asker = if itself { leader } else { follower };
        let mut tickets = Vec::new();
        for _ in 0..120 {
            tickets.push(world.call(asker, question(7)));
            pass(&mut world, 100 * MS);
            for ticket in &tickets {
                assert!(said(&world, *ticket).is_none_or(|s| s.answer.as_ref() == [1]));
            }
        }
        let early = tickets.first().expect("some were asked");
        assert!(unknown(&world, *early), "{:?}", world.outcomes.get(early));
        let late = tickets.iter().rev().nth(20).expect("enough were asked");
        confirmed(&world, *late, true);
    }
}

#[test]
fn an_asker_is_told_only_once_its_own_replica_has_applied_the_index_of_the_answer() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    let follower = other_than(leader);
    write(&mut world, leader, 6);
    world.members[follower].machine.fail_writes(4);
    write(&mut world, leader, 7);
    let early = world.call(follower, question(7));
    pass(&mut world, 20 * MS);
    assert_eq!(world.outcomes.get(&early), None, "answered by the leader, not yet told");
    pass(&mut world, SECOND);
    let mut last = early;
    for _ in 0..10 {
        last = world.call(follower, question(7));
        pass(&mut world, SECOND);
        if let Some(said) = said(&world, last) {
            assert!(world.status(follower).applied.last.index >= said.index);
        }
    }
    confirmed(&world, last, true);
}

#[test]
fn a_minority_leader_times_out_and_nobody_is_told_anything() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    write(&mut world, leader, 7);
    cut(&mut world, leader);
    let ticket = world.call(leader, question(8));
    pass(&mut world, 2 * SECOND);
    assert!(unknown(&world, ticket), "{:?}", world.outcomes.get(&ticket));
    let again = world.call(leader, question(8));
    pass(&mut world, 2 * SECOND);
    assert_eq!(world.outcomes[&again], Outcome::NotCommitted(Refusal::Deadline));
    world.heal();
    pass(&mut world, 5 * SECOND);
    let healed = world.call(leader, question(7));
    pass(&mut world, SECOND);
    confirmed(&world, healed, true);
}

/// Cuts the leader off and waits until another one has acknowledged a write while the old one still
/// believes that it leads: `None` if it gave up before that.
fn two_leaders(seed: u64) -> Option<(World, usize, usize)> {
    let mut world = World::new(seed, 3, config(MemberId(1)));
    world.run_until(2 * SECOND);
    let old = world.leader().expect("a leader");
    write(&mut world, old, 6);
    cut(&mut world, old);
    while world.leader() == Some(old) {
        pass(&mut world, MS);
        let role = world.status(old).role;
        if role != holdfast_consensus::event::RoleKind::Leader {
            return None;
        }
    }
    let new = world.leader().expect("another leader");
    world.ask(new, Some(8), SECOND);
    pass(&mut world, 15 * MS);
    let still = world.status(old).role == holdfast_consensus::event::RoleKind::Leader;
    (still && world.acked == [6, 8]).then_some((world, old, new))
}

#[test]
fn a_deposed_leader_that_does_not_know_it_yet_answers_nobody() {
    let mut met = 0;
    for seed in 0..60 {
        let Some((mut world, old, new)) = two_leaders(seed) else { continue };
        met += 1;
        world.keeps = Some(|message| matches!(message, Message::ConfirmReply { .. }));
        let question_of_peer = Bytes::copy_from_slice(&8_u64.to_le_bytes());
        let (ticket, within) = (Ticket(1), SECOND);
        let asked = Message::Confirm { ticket, within, question: question_of_peer };
        world.deliver(new, old, asked);
        let own = world.call(old, question(8));
        pass(&mut world, 2 * SECOND);
        let answers = world.kept.iter().filter(|(from, ..)| *from == old);
        for (_, _, reply) in answers {
            assert!(matches!(reply, Message::ConfirmReply { result: Err(_), .. }), "{reply:?}");
        }
        assert!(unknown(&world, own), "seed {seed}: {:?}", world.outcomes.get(&own));
    }
    assert!(met >= 3, "only {met} of 60 seeds have two leaders at a time");
}

#[test]
fn a_leader_deposed_between_its_proof_and_the_read_does_not_answer() {
    let mut world = cluster(3);
    let old = world.leader().expect("a leader");
    write(&mut world, old, 6);
    // It proves itself, then its store fails long enough for another leader to be elected.
    world.members[old].machine.fail_writes(u32::MAX);
    world.ask(old, Some(7), 5 * SECOND);
    pass(&mut world, 50 * MS);
    let ticket = world.call_within(old, question(8), 4 * SECOND);
    pass(&mut world, 50 * MS);
    cut(&mut world, old);
    pass(&mut world, 700 * MS);
    assert_ne!(world.leader(), Some(old), "another leader is elected");
    world.members[old].machine.fail_writes(0);
    pass(&mut world, 5 * SECOND);
    assert!(unknown(&world, ticket), "{:?}", world.outcomes.get(&ticket));
    assert!(world.tally.get("confirm-lost-leadership") > 0, "{:?}", world.tally);
}

/// A follower's question, and the leader's honest reply to it, kept back.
fn asked(world: &mut World) -> (Ticket, usize, usize, Ticket, Confirmation) {
    let leader = world.leader().expect("a leader");
    write(world, leader, 7);
    world.keeps = Some(|message| matches!(message, Message::ConfirmReply { .. }));
    let ticket = world.call(other_than(leader), question(7));
    pass(world, 50 * MS);
    let (from, to, reply) = world.kept.pop().expect("the leader answered");
    let Message::ConfirmReply { ticket: attempt, result: Ok(said) } = reply else {
        panic!("a confirmation, not {reply:?}");
    };
    (ticket, from, to, attempt, said)
}

#[test]
fn a_reply_decides_only_about_the_attempt_that_it_answers() {
    let mut world = cluster(3);
    let (ticket, from, to, attempt, said) = asked(&mut world);
    // The asker asks again under another name; the first reply comes after that.
    pass(&mut world, 300 * MS);
    let late = Message::ConfirmReply { ticket: attempt, result: Ok(said) };
    world.deliver(from, to, late);
    assert_eq!(world.outcomes.get(&ticket), None, "the old attempt is over");
    assert!(world.tally.get("confirm-reply") > 0, "{:?}", world.tally);
    world.keeps = None;
    pass(&mut world, 500 * MS);
    confirmed(&world, ticket, true);
}

#[test]
fn a_reply_of_an_older_term_or_in_anothers_name_is_dropped() {
    let mut world = cluster(3);
    let (ticket, from, to, attempt, said) = asked(&mut world);
    let forged = Confirmation { leader: MemberId(99), ..said.clone() };
    world.deliver(from, to, Message::ConfirmReply { ticket: attempt, result: Ok(forged) });
    let stranger = 3 - from - to;
    let own = Confirmation { leader: member(stranger), ..said.clone() };
    world.deliver(stranger, to, Message::ConfirmReply { ticket: attempt, result: Ok(own) });
    assert_eq!(world.tally.get("confirm-reply"), 2, "{:?}", world.tally);
    let old = Confirmation { term: Term(said.term.0 - 1), ..said };
    world.deliver(from, to, Message::ConfirmReply { ticket: attempt, result: Ok(old) });
    assert_eq!(world.tally.get("confirm-reply-of-an-older-term"), 1, "{:?}", world.tally);
    assert_eq!(world.outcomes.get(&ticket), None);
    world.keeps = None;
    pass(&mut world, 500 * MS);
    confirmed(&world, ticket, true);
}

#[test]
fn a_follower_that_is_asked_refuses() {
    let mut world = cluster(3);
    let leader = world.leader().expect("a leader");
    let (asked, asker) = (other_than(leader), other_than(other_than(leader)));
    world.keeps = Some(|message| matches!(message, Message::ConfirmReply { .. }));
    let question = Bytes::copy_from_slice(&7_u64.to_le_bytes());
    let (ticket, within) = (Ticket(1), SECOND);
    world.deliver(asker, asked, Message::Confirm { ticket, within, question });
    let refused = Refusal::NotLeader { hint: Some(member(leader)) };
    let reply = Message::ConfirmReply { ticket, result: Err(refused) };
    assert_eq!(world.kept, [(asked, asker, reply)]);
}

#[test]
fn questions_are_charged_and_the_charge_is_given_back() {
    let small =
        holdfast_consensus::replica::ReplicaConfig { waiting_bytes: 20_000, ..config(MemberId(1)) };
    let mut world = World::new(3, 3, small);
    world.run_until(2 * SECOND);
    let leader = world.leader().expect("a leader");
    cut(&mut world, leader);
    let tickets: Vec<_> = (0..20).map(|_| world.call(leader, question(7))).collect();
    let busy = Outcome::NotCommitted(Refusal::Busy);
    let refused = tickets.iter().filter(|t| world.outcomes.get(t) == Some(&busy)).count();
    assert!((14..=18).contains(&refused), "{refused} of 20 were refused");
    world.cuts.clear();
    pass(&mut world, 5 * SECOND);
    let ticket = world.call(leader, question(7));
    pass(&mut world, SECOND);
    let said = confirmed(&world, ticket, false);
    assert!(said.index > Index(0));
}
