//! Elections: Raft 5.2, 5.4.1; dissertation 4.2.3, 9.6, 3.10.

use crate::rig::*;
use holdfast_consensus::event::{Event, RoleKind, StepDown};
use holdfast_consensus::io::{CoreConfig, Effect, Input};
use holdfast_consensus::message::Message;
use holdfast_consensus::types::*;

#[test]
fn a_silent_leader_is_followed_by_a_pre_vote_that_changes_no_term() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    let out = rig.expire();
    assert_eq!(rig.core.role(), RoleKind::PreCandidate);
    assert_eq!(rig.core.hard(), in_term(4));
    assert_eq!(persist(&out), None);
    assert_eq!(sent_to(&out, B), [ask(5, true, (4, 1), false)]);
    assert_eq!(sent_to(&out, C), [ask(5, true, (4, 1), false)]);
}

/// B01: the vote leaves only when it is durable.
#[test]
fn a_vote_is_durable_before_it_leaves() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    let out = rig.deliver(B, ask(5, false, (4, 1), false));
    let hard = HardState { term: Term(5), voted_for: Some(B) };
    assert_eq!(persist(&out).and_then(|p| p.hard), Some(hard));
    assert_eq!(sent(&out), []);
    let out = rig.sync();
    assert_eq!(sent(&out), [(B, vote(5, false, 5, true))]);
    assert!(events(&out).contains(&Event::VoteGranted { to: B, term: Term(5) }));
}

/// B02: the vote of a term stands, whatever happens to the leader.
#[test]
fn a_vote_is_cast_once_a_term_and_survives_the_leader() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    rig.deliver(B, ask(5, false, (4, 1), false));
    rig.sync();
    rig.deliver(B, append(5, 1, (4, 1), 0, &[]));
    assert_eq!(rig.core.hard().voted_for, Some(B));
    rig.now += 10_000_000;
    let out = rig.deliver(C, ask(5, false, (9, 9), true));
    assert_eq!(sent_to(&out, C)[0], vote(5, false, 5, false));
    assert_eq!(rig.core.hard().voted_for, Some(B));
}

/// B03: a candidate asks nobody, and does not count itself, before its own vote is durable.
#[test]
fn a_candidate_asks_only_when_its_own_vote_is_durable() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    rig.expire();
    let out = rig.deliver(B, vote(5, true, 5, true));
    assert_eq!(rig.core.role(), RoleKind::Candidate);
    let hard = HardState { term: Term(5), voted_for: Some(ME) };
    assert_eq!(persist(&out).and_then(|p| p.hard), Some(hard));
    assert_eq!(sent(&out), []);
    // However long that takes, the term is not raised again (R41).
    assert_eq!(rig.core.next_deadline(), None);
    rig.after(60_000_000);
    assert_eq!(rig.core.hard(), hard);
    let out = rig.deliver(B, vote(5, false, 5, true));
    assert_eq!(rig.core.role(), RoleKind::Candidate, "a vote nobody asked for counts nothing");
    assert_eq!(sent(&out), []);
    let out = rig.sync();
    assert_eq!(sent_to(&out, B), [ask(5, false, (4, 1), false)]);
    assert!(rig.core.next_deadline().is_some());
}

/// B04: answers of older terms do not count, and duplicates count once.
#[test]
fn old_and_repeated_votes_do_not_elect() {
    let mut rig = Rig::follower(5, 4, &[(4, 1)]);
    rig.expire();
    for peer in [B, C] {
        rig.deliver(peer, vote(5, true, 5, true));
    }
    rig.sync();
    for _ in 0..3 {
        rig.deliver(B, vote(5, false, 5, true));
    }
    assert_eq!(rig.core.role(), RoleKind::Candidate);
    rig.expire();
    for peer in [B, C] {
        rig.deliver(peer, vote(6, true, 6, true));
    }
    rig.sync();
    assert_eq!(rig.core.hard().term, Term(6));
    rig.deliver(C, vote(5, false, 5, true));
    rig.deliver(D, vote(5, false, 5, true));
    assert_eq!(rig.core.role(), RoleKind::Candidate);
    rig.deliver(C, vote(6, false, 6, true));
    rig.deliver(D, vote(6, false, 6, true));
    assert_eq!(rig.core.role(), RoleKind::Leader);
}

/// B05: freshness is the order of (term, index), not of either alone.
#[test]
fn a_vote_goes_only_to_a_log_at_least_as_fresh() {
    let cases = [((3, 9), false), ((4, 2), false), ((4, 3), true), ((4, 9), true), ((5, 1), true)];
    for (last, granted) in cases {
        for pre in [true, false] {
            let mut rig = Rig::follower(3, 4, &[(4, 1), (4, 2), (4, 3)]);
            rig.deliver(B, ask(6, pre, last, false));
            let mut out = rig.sync();
            if pre {
                out = rig.deliver(B, ask(6, pre, last, false));
            }
            let yes = sent_to(&out, B).contains(&vote(6, pre, 6, true));
            assert_eq!(yes, granted, "last {last:?}, pre-vote {pre}");
        }
    }
}

/// B07: a rejected pre-vote teaches the higher term, so that no two cohorts starve each other.
#[test]
fn a_rejected_pre_vote_teaches_the_higher_term() {
    let mut rig = Rig::follower(5, 8, &[(3, 1)]);
    let out = rig.deliver(B, ask(6, true, (5, 2), false));
    assert_eq!(sent_to(&out, B), [vote(8, true, 6, false)]);

    let mut asker = Rig::follower(5, 5, &[(4, 1), (5, 2)]);
    asker.expire();
    let out = asker.deliver(C, vote(8, true, 6, false));
    assert_eq!((asker.core.role(), asker.core.hard()), (RoleKind::Follower, in_term(8)));
    assert_eq!(persist(&out).and_then(|p| p.hard), Some(in_term(8)));
    let out = asker.expire();
    assert_eq!(sent_to(&out, C), [ask(9, true, (5, 2), false)]);
}

/// B08: who grants pre-votes still stands in time itself.
#[test]
fn granting_a_pre_vote_is_no_contact_with_a_leader() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    let deadline = rig.core.next_deadline();
    rig.now += 100_000;
    let out = rig.deliver(B, ask(5, true, (4, 1), false));
    assert_eq!(sent_to(&out, B), [vote(5, true, 5, true)]);
    assert_eq!(rig.core.next_deadline(), deadline);
    assert_eq!(rig.core.hard(), in_term(4));
}

/// B09: a leader that no quorum answers steps down, so that its followers may elect.
#[test]
fn a_leader_without_a_quorum_of_answers_steps_down() {
    let mut rig = Rig::leader(5, 5, &[(4, 1)]);
    for _ in 0..20 {
        rig.after(20_000);
        let round = 1_000;
        rig.deliver(B, ack(5, round, (4, 1)));
    }
    assert_eq!(rig.core.role(), RoleKind::Follower);
    assert_eq!(rig.core.hard().term, Term(5));
    assert_eq!(rig.core.leader(), None);
}

/// B10: learners' answers keep nobody in power.
#[test]
fn check_quorum_counts_voters_only() {
    let mut membership = voters(3);
    membership.learners = vec![D, E];
    let log = recovered(in_term(4), &membership, &[(4, 1)]);
    let mut rig = Rig::with(CoreConfig::new(ME), log);
    rig.elect(3, 5);
    rig.sync();
    let mut out = Vec::new();
    for _ in 0..20 {
        out.extend(rig.after(20_000));
        let round = appends(&out, D).last().map_or(1, |a| a.0);
        out.extend(rig.deliver(D, ack(5, round, (5, 2))));
        out.extend(rig.deliver(E, ack(5, round, (5, 2))));
    }
    assert_eq!(rig.core.role(), RoleKind::Follower);
    let why = StepDown::LostQuorum;
    assert!(events(&out).contains(&Event::SteppedDown { term: Term(5), why }));
    assert_eq!(rig.core.commit(), Index(0), "and they commit nothing");
}

/// B11: no vote while a leader is in contact, unless that leader asked for it.
#[test]
fn a_vote_request_does_not_disturb_a_living_leader() {
    let mut rig = Rig::follower(3, 5, &[(4, 1)]);
    rig.deliver(B, append(5, 1, (4, 1), 0, &[]));
    for pre in [true, false] {
        let out = rig.deliver(C, ask(9, pre, (8, 8), false));
        assert_eq!(sent_to(&out, C), [vote(5, pre, 9, false)]);
        assert_eq!(rig.core.hard(), in_term(5));
    }
    let mut other = Rig::follower(3, 5, &[(4, 1)]);
    other.deliver(B, append(5, 1, (4, 1), 0, &[]));
    other.now += 150_000;
    let out = other.deliver(C, ask(9, true, (8, 8), false));
    assert_eq!(sent_to(&out, C), [vote(9, true, 9, true)], "but only for so long");

    rig.deliver(C, ask(9, false, (8, 8), true));
    assert_eq!(sent_to(&rig.sync(), C), [vote(9, false, 9, true)]);

    let mut leader = Rig::leader(3, 5, &[(4, 1)]);
    leader.deliver(C, ask(9, false, (8, 8), false));
    assert_eq!(leader.core.role(), RoleKind::Leader);
}

/// R42: any member grants by log and term, but stands only as a voter of its configuration.
#[test]
fn a_learner_votes_and_never_stands() {
    let mut membership = voters(3);
    membership.voters.retain(|m| *m != ME);
    membership.learners = vec![ME];
    let log = recovered(in_term(4), &membership, &[(4, 1)]);
    let mut rig = Rig::with(CoreConfig::new(ME), log);
    rig.after(10_000_000);
    assert_eq!((rig.core.role(), rig.core.next_deadline()), (RoleKind::Follower, None));
    rig.deliver(B, ask(5, false, (4, 1), false));
    assert_eq!(sent(&rig.sync()), [(B, vote(5, false, 5, true))]);

    let mut empty = Rig::with(CoreConfig::new(ME), Recovered::default());
    empty.after(10_000_000);
    assert_eq!((empty.core.role(), empty.core.next_deadline()), (RoleKind::Follower, None));
}

#[test]
fn a_sole_voter_waits_for_nobody_but_its_disk() {
    let mut rig = Rig::follower(1, 4, &[(4, 1)]);
    rig.step(Input::Wake);
    assert_eq!(rig.core.role(), RoleKind::Candidate);
    rig.sync();
    assert_eq!(rig.core.role(), RoleKind::Leader);
    assert_eq!(rig.core.commit(), Index(0));
    assert_eq!(commits(&rig.sync()), [2]);
}

#[test]
fn a_missing_quorum_is_named_about_once_a_second() {
    let mut rig = Rig::follower(3, 4, &[(4, 1)]);
    let mut reports = Vec::new();
    for _ in 0..10 {
        rig.deliver(B, vote(4, true, 5, false));
        reports.extend(events(&rig.expire()).into_iter().filter_map(|event| match event {
            Event::WaitingForQuorum { missing, .. } => Some((rig.now, missing)),
            _ => None,
        }));
    }
    assert!(reports.len() >= 2, "{reports:?}");
    assert!(reports.windows(2).all(|w| w[1].0 - w[0].0 >= 1_000_000), "{reports:?}");
    assert!(reports.iter().all(|(_, missing)| *missing == [C]), "{reports:?}");
}

#[test]
fn evidence_of_a_dead_leader_starts_a_pre_vote_once_per_timeout() {
    let mut rig = Rig::follower(3, 5, &[(4, 1)]);
    rig.deliver(B, append(5, 1, (4, 1), 0, &[]));
    rig.step(Input::PeerReset { peer: C });
    assert!(rig.core.next_deadline() >= Some(rig.now + 150_000), "C does not lead");
    rig.step(Input::PeerReset { peer: B });
    let soon = rig.core.next_deadline().expect("a follower waits");
    assert!(soon < rig.now + 25_000);
    // The evidence lifts our own stickiness towards others' pre-votes too.
    let out = rig.deliver(C, ask(6, true, (4, 1), false));
    assert_eq!(sent_to(&out, C), [vote(6, true, 6, true)]);
    // The leader lives: the next evidence within the timeout is not believed.
    rig.deliver(B, append(5, 2, (4, 1), 0, &[]));
    rig.step(Input::PeerReset { peer: B });
    assert!(rig.core.next_deadline() >= Some(rig.now + 150_000));
}

#[test]
fn a_transfer_asks_a_complete_follower_to_stand_and_it_does_at_once() {
    let mut rig = Rig::leader(3, 5, &[(4, 1)]);
    let out = rig.step(Input::Transfer { to: B });
    assert_eq!(sent_to(&out, B), [], "B does not hold the last entry yet");
    let out = rig.propose(1..2);
    assert!(out.iter().any(|e| matches!(e, Effect::Refused { .. })), "{out:?}");
    let out = rig.deliver(B, ack(5, 1, (5, 2)));
    let asked = sent_to(&out, B);
    let Some(Message::TimeoutNow { term, last, within }) = asked.last().cloned() else {
        panic!("{asked:?}");
    };
    assert_eq!((term, last), (Term(5), LogId::new(5, 2)));

    let now = |last: LogId, term: u64| Message::TimeoutNow { term: Term(term), last, within };
    let mut target = Rig::follower(3, 5, &[(4, 1), (5, 2)]);
    target.deliver(B, append(5, 1, (5, 2), 0, &[]));
    target.deliver(B, now(last, 4));
    target.deliver(B, now(LogId::new(5, 3), 5));
    target.deliver(C, now(last, 5));
    assert_eq!(target.core.role(), RoleKind::Follower, "stale, incomplete, or not the leader");
}

#[test]
fn a_target_of_a_transfer_overrides_stickiness() {
    let mut rig = Rig::follower(3, 5, &[(4, 1), (5, 2)]);
    rig.deliver(B, append(5, 1, (5, 2), 0, &[]));
    let last = LogId::new(5, 2);
    rig.deliver(B, Message::TimeoutNow { term: Term(5), last, within: 100_000 });
    assert_eq!((rig.core.role(), rig.core.hard().term), (RoleKind::Candidate, Term(6)));
    let out = rig.sync();
    assert_eq!(sent_to(&out, C), [ask(6, false, (5, 2), true)]);
}
