//! The receiving side of AppendEntries: Raft 5.3 and figure 2.

use crate::rig::*;
use holdfast_consensus::fault::StopReason;
use holdfast_consensus::io::Effect;
use holdfast_consensus::message::Conflict;
use holdfast_consensus::types::*;

const LOG: [(u64, u64); 5] = [(1, 1), (1, 2), (3, 3), (3, 4), (3, 5)];

#[test]
fn an_append_of_an_older_term_is_answered_with_ours() {
    let mut rig = Rig::follower(3, 6, &LOG);
    let out = rig.deliver(B, append(5, 9, (3, 5), 5, &[(5, 6)]));
    let conflict = Conflict {
        prev: LogId::new(3, 5),
        last: Index(5),
        term: Some(Term(3)),
        first_of_term: Index(3),
    };
    assert_eq!(sent(&out), [(B, reject(6, 9, conflict))]);
    assert_eq!(
        (rig.core.last(), rig.core.commit(), rig.core.leader()),
        (LogId::new(3, 5), Index(0), None)
    );
}

#[test]
fn a_missing_entry_is_unknown_and_never_term_zero() {
    let mut rig = Rig::follower(3, 3, &LOG);
    let out = rig.deliver(B, append(3, 1, (3, 9), 0, &[]));
    let conflict =
        Conflict { prev: LogId::new(3, 9), last: Index(5), term: None, first_of_term: Index(6) };
    assert_eq!(conflicts(&out), [conflict]);
}

#[test]
fn a_conflict_names_the_first_entry_of_its_term() {
    let mut rig = Rig::follower(3, 4, &LOG);
    let out = rig.deliver(B, append(4, 1, (2, 4), 5, &[(4, 5)]));
    let conflict = Conflict {
        prev: LogId::new(2, 4),
        last: Index(5),
        term: Some(Term(3)),
        first_of_term: Index(3),
    };
    assert_eq!(conflicts(&out), [conflict]);
    assert_eq!((rig.core.last(), rig.core.commit()), (LogId::new(3, 5), Index(0)));
    assert_eq!(persist(&out), None);
}

/// B16: an old, shorter append cuts nothing.
#[test]
fn a_delayed_shorter_append_cuts_nothing() {
    let mut rig = Rig::follower(3, 3, &LOG);
    let out = rig.deliver(B, append(3, 1, (1, 2), 0, &[(3, 3)]));
    assert_eq!(persist(&out), None);
    assert_eq!(rig.core.last(), LogId::new(3, 5));
    assert_eq!(acks(&out), [(3, 3)]);
}

/// B17: a real conflict cuts everything behind it.
#[test]
fn a_conflicting_suffix_is_removed_whole() {
    let mut rig = Rig::follower(3, 4, &LOG);
    let out = rig.deliver(B, append(4, 1, (1, 2), 0, &[(4, 3)]));
    let persist = persist(&out).expect("a write");
    assert_eq!(persist.truncate_from, Some(Index(3)));
    assert_eq!(persist.append, entries(&[(4, 3)]));
    assert_eq!(rig.core.last(), LogId::new(4, 3));
    assert_eq!(rig.core.term_at(Index(4)), None);
    assert!(out.contains(&Effect::Lost { from: Index(3) }));
    assert_eq!(acks(&out), []);
    assert_eq!(acks(&rig.sync()), [(4, 3)]);
}

/// B14: commit is bounded by what this message matched, heartbeats included.
#[test]
fn commit_never_passes_what_the_message_matched() {
    let mut rig = Rig::follower(3, 4, &LOG);
    let out = rig.deliver(B, append(4, 1, (1, 2), 5, &[]));
    assert_eq!(commits(&out), [2]);
    let out = rig.deliver(B, append(4, 2, (1, 2), 5, &[(3, 3)]));
    assert_eq!(commits(&out), [3]);
    let out = rig.deliver(B, append(4, 3, (3, 5), 4, &[]));
    assert_eq!(commits(&out), [4], "nor the leader's own commit");
}

/// B15: the answer reports what the message matched, not our own longer tail.
#[test]
fn an_acknowledgement_is_capped_at_the_match() {
    let mut rig = Rig::follower(3, 4, &LOG);
    assert_eq!(acks(&rig.deliver(B, append(4, 1, (1, 2), 0, &[]))), [(1, 2)]);
    assert_eq!(acks(&rig.deliver(B, append(4, 2, (1, 1), 0, &[(1, 2), (3, 3)]))), [(3, 3)]);
}

/// B21: what lies at or below the commit index is skipped as matching, compacted or not.
#[test]
fn an_append_below_the_compaction_point_changes_nothing() {
    let mut rig = Rig::follower(3, 3, &LOG);
    rig.deliver(B, append(3, 1, (3, 5), 5, &[]));
    rig.step(holdfast_consensus::io::Input::Compacted { first: Index(5) });
    assert_eq!((rig.core.first(), rig.core.term_at(Index(3))), (Index(5), None));
    for (prev, ids) in [((0, 0), &[(1, 1), (1, 2), (3, 3)][..]), ((1, 1), &[(1, 2)]), ((1, 2), &[])]
    {
        let out = rig.deliver(B, append(3, 1, prev, 3, ids));
        assert_eq!(persist(&out), None);
        assert_eq!(acks(&out), [ids.last().copied().unwrap_or(prev)]);
        assert_eq!(rig.core.last(), LogId::new(3, 5));
    }
    // A message that begins below and ends beyond brings only what is new.
    let ids = [(1, 2), (3, 3), (3, 4), (3, 5), (3, 6)];
    let out = rig.deliver(B, append(3, 2, (1, 1), 3, &ids));
    let write = persist(&out).expect("a write");
    assert_eq!((write.truncate_from, write.append), (None, entries(&[(3, 6)])));
}

/// R18: committed history is never cut; the replica stops with evidence.
#[test]
fn a_contradiction_below_the_commit_index_stops_the_replica() {
    for (prev, ids) in [((1, 2), &[(4, 3)][..]), ((4, 3), &[]), ((4, 5), &[])] {
        let mut rig = Rig::follower(3, 4, &LOG);
        rig.deliver(B, append(4, 1, (3, 5), 5, &[]));
        assert_eq!(rig.core.commit(), Index(5));
        let out = rig.deliver(B, append(4, 2, prev, 5, ids));
        let stopped = |e: &Effect| matches!(e, Effect::Stop(StopReason::Diverged { .. }));
        assert!(out.iter().any(stopped), "{out:?}");
        assert_eq!((persist(&out), rig.core.last()), (None, LogId::new(3, 5)));
        assert_eq!(rig.deliver(B, append(4, 3, (3, 5), 5, &[])), [], "and it stays stopped");
    }
}

#[test]
fn malformed_appends_are_dropped() {
    let mut rig = Rig::follower(3, 4, &LOG);
    for message in [append(4, 1, (3, 5), 5, &[(4, 8)]), append(4, 1, (3, 5), 5, &[(9, 6)])] {
        let out = rig.deliver(B, message);
        assert_eq!((sent(&out), persist(&out), commits(&out)), (vec![], None, vec![]));
    }
}

#[test]
fn the_configuration_in_force_is_the_last_in_the_log_and_rolls_back() {
    let mut rig = Rig::follower(3, 4, &LOG);
    let mut change = entry(4, 6);
    change.body = Body::Membership(voters(5).into());
    let bring = holdfast_consensus::message::Message::Append {
        term: Term(4),
        round: 1,
        prev: LogId::new(3, 5),
        commit: Index(0),
        commit_own_term: false,
        entries: holdfast_consensus::Entries::new(vec![change]).expect("one"),
    };
    rig.deliver(B, bring);
    assert_eq!(rig.core.membership(), (Index(6), &voters(5)), "uncommitted, but in force");
    rig.deliver(C, append(5, 1, (3, 5), 0, &[(5, 6)]));
    assert_eq!(rig.core.membership(), (Index(1), &voters(3)));
}

#[test]
fn contact_is_what_the_current_leader_itself_said() {
    let mut rig = Rig::follower(3, 4, &LOG);
    assert_eq!(rig.core.contact(), None);
    rig.deliver(B, append(4, 1, (1, 2), 77, &[]));
    let contact = rig.core.contact().expect("heard");
    assert_eq!((contact.leader, contact.term, contact.commit), (B, Term(4), Index(77)));
    assert!(contact.own_term);
    rig.deliver(C, ask(5, false, (3, 5), true));
    assert_eq!(rig.core.contact(), None, "another term, another leader");
}
