//! What each command does, and what it is answered.
#![forbid(unsafe_code)]

mod common;

use bytes::Bytes;
use common::*;
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::traits::StateMachine;
use holdfast_consensus::{Body, Index};
use holdfast_fsm::{Answer, Command, Current, Rule, SESSION_TTL, SESSIONS_MAX};

#[test]
fn a_topic_is_created_once_and_carries_the_index_of_its_entry() {
    let mut machine = fresh();
    assert_eq!(
        apply_one(&mut machine, None, &create("a")),
        Answer::TopicCreated { incarnation: 1 }
    );
    assert_eq!(apply_one(&mut machine, None, &create("a")), Answer::TopicExists { incarnation: 1 });
    assert_eq!(
        apply_one(&mut machine, None, &create("b")),
        Answer::TopicCreated { incarnation: 3 }
    );
    let topic = machine.view().topic("b").unwrap();
    assert_eq!(topic.applied, Index(3));
    let topic = topic.value.unwrap();
    assert_eq!((topic.stamp.incarnation, topic.stamp.cluster), (3, CLUSTER));
    assert_eq!((topic.stamp.name.as_str(), topic.partitions), ("b", 3));
    let names: Vec<_> = machine.view().topics(None, 10).unwrap().value;
    assert_eq!(names.iter().map(|t| t.stamp.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(machine.view().topics(Some("a"), 10).unwrap().value.len(), 1);
}

#[test]
fn a_deletion_leaves_a_tombstone_with_the_full_stamp_and_the_name_is_free_again() {
    let mut machine = fresh();
    apply_one(&mut machine, None, &create("a"));
    let stamp = machine.view().topic("a").unwrap().value.unwrap().stamp;
    assert!(machine.view().tombstone(&stamp).unwrap().value.is_none());
    let wrong = apply_one(&mut machine, None, &delete("a", Some(9)));
    assert_eq!(wrong, Answer::WrongIncarnation { current: 1 });
    let gone = apply_one(&mut machine, None, &delete("a", Some(1)));
    assert_eq!(gone, Answer::TopicDeleted { incarnation: 1 });
    assert_eq!(apply_one(&mut machine, None, &delete("a", None)), Answer::NotFound);
    let tombstone = machine.view().tombstone(&stamp).unwrap().value.unwrap();
    assert_eq!((&tombstone.stamp, tombstone.deleted_at), (&stamp, 3));
    let again = apply_one(&mut machine, None, &create("a"));
    assert_eq!(again, Answer::TopicCreated { incarnation: 5 });
    let new = machine.view().topic("a").unwrap().value.unwrap().stamp;
    assert!(machine.view().tombstone(&new).unwrap().value.is_none(), "the new one lives");
    let other = holdfast_fsm::records::Stamp { epoch: 7, ..stamp };
    assert!(machine.view().tombstone(&other).unwrap().value.is_none(), "equal stamps only");
}

#[test]
fn a_broken_limit_is_an_answer_and_moves_the_index() {
    let mut machine = fresh();
    let invalid = |rule| Answer::Invalid(rule);
    assert_eq!(apply_one(&mut machine, None, &create("a b")), invalid(Rule::TopicName));
    let empty = Command::KvPut { key: Bytes::new(), value: Bytes::new() };
    assert_eq!(apply_one(&mut machine, None, &empty), invalid(Rule::KvKey));
    let large = Command::KvPut { key: bytes("k"), value: vec![0; 65_537].into() };
    assert_eq!(apply_one(&mut machine, None, &large), invalid(Rule::KvValue));
    assert_eq!(apply_one(&mut machine, None, &member(0)), invalid(Rule::Member));
    let garbage = entry(5, Body::Command(Bytes::from_static(&[1, 0, 0, 9])));
    assert_eq!(apply_entry(&mut machine, garbage), Answer::Undecodable);
    let empty = entry(6, Body::Command(Bytes::new()));
    assert_eq!(apply_entry(&mut machine, empty), Answer::Undecodable);
    assert_eq!(machine.applied().last.index, Index(6));
    assert_eq!(machine.counts().total(), 0);
}

#[test]
fn compare_and_set_needs_the_expected_value() {
    let mut machine = fresh();
    let cas = |expected: Option<&str>, value: &str| Command::KvCas {
        key: bytes("k"),
        expected: expected.map(bytes),
        value: bytes(value),
    };
    let missed = apply_one(&mut machine, None, &cas(Some("x"), "a"));
    assert_eq!(missed, Answer::CasMissed { current: Current::Absent });
    assert_eq!(apply_one(&mut machine, None, &cas(None, "a")), Answer::KvStored);
    let missed = apply_one(&mut machine, None, &cas(None, "b"));
    assert_eq!(missed, Answer::CasMissed { current: Current::Value(bytes("a")) });
    assert_eq!(apply_one(&mut machine, None, &cas(Some("a"), "b")), Answer::KvStored);
    let found = machine.view().kv_get(b"k").unwrap().value.unwrap();
    assert_eq!((found.value, found.modified), (bytes("b"), 4));
    let large = Command::KvPut { key: bytes("k"), value: vec![1; 5000].into() };
    apply_one(&mut machine, None, &large);
    let missed = apply_one(&mut machine, None, &cas(None, "b"));
    assert_eq!(missed, Answer::CasMissed { current: Current::Large { bytes: 5000 } });
    let delete = Command::KvDelete { key: bytes("k") };
    assert_eq!(apply_one(&mut machine, None, &delete), Answer::KvDeleted);
    assert_eq!(apply_one(&mut machine, None, &delete), Answer::NotFound);
}

#[test]
fn a_retry_is_answered_with_the_first_result_and_not_executed() {
    let mut machine = fresh();
    let Answer::SessionRegistered { client } =
        apply_one(&mut machine, None, &Command::RegisterSession)
    else {
        panic!("registered")
    };
    let first = apply_one(&mut machine, session(client, 1), &create("a"));
    assert_eq!(first, Answer::TopicCreated { incarnation: 2 });
    apply_one(&mut machine, None, &delete("a", None));
    assert_eq!(apply_one(&mut machine, session(client, 1), &create("a")), first);
    assert!(machine.view().topic("a").unwrap().value.is_none(), "the retry created nothing");
    let refused = apply_one(&mut machine, session(client, 5), &delete("a", None));
    assert_eq!(refused, Answer::NotFound);
    apply_one(&mut machine, None, &create("a"));
    assert_eq!(apply_one(&mut machine, session(client, 5), &delete("a", None)), refused);
    let stale = apply_one(&mut machine, session(client, 2), &delete("a", None));
    assert_eq!(stale, Answer::StaleSequence { last: 5 });
    let zero = apply_one(&mut machine, session(client, 0), &delete("a", None));
    assert_eq!(zero, Answer::Invalid(Rule::Sequence));
    assert!(machine.view().topic("a").unwrap().value.is_some());
}

#[test]
fn an_unknown_closed_or_expired_session_executes_nothing() {
    let mut machine = fresh();
    let expired = Answer::SessionExpired;
    assert_eq!(apply_one(&mut machine, session(77, 1), &create("a")), expired);
    apply_one(&mut machine, None, &Command::RegisterSession);
    let close = Command::CloseSession { client: 2 };
    assert_eq!(apply_one(&mut machine, session(2, 1), &close), Answer::SessionClosed);
    assert_eq!(apply_one(&mut machine, session(2, 2), &create("a")), expired);
    assert_eq!(apply_one(&mut machine, None, &close), Answer::NotFound);
    apply_one(&mut machine, None, &Command::RegisterSession);
    let registered = machine.view().held().unwrap().time;
    let mut late = command(7, session(6, 1), &create("a"));
    late.time = registered + SESSION_TTL;
    assert_eq!(apply_entry(&mut machine, late), Answer::TopicCreated { incarnation: 7 });
    let mut later = command(8, session(6, 2), &create("b"));
    later.time = registered + 2 * SESSION_TTL + 1;
    assert_eq!(apply_entry(&mut machine, later), expired);
    assert!(machine.view().topic("b").unwrap().value.is_none());
    assert_eq!(machine.counts().0[3], 0, "the expired row is gone");
}

#[test]
fn expired_sessions_are_swept_by_log_time_even_by_a_blank_entry() {
    let mut machine = fresh();
    apply_one(&mut machine, None, &Command::RegisterSession);
    assert_eq!(machine.counts().0[3], 1);
    let mut blank = entry(2, Body::Blank);
    blank.time = SESSION_TTL + 3_600_000_000;
    machine.apply(&run(vec![blank]), &mut Vec::new()).unwrap();
    assert_eq!(machine.counts().0[3], 0);
    machine.view().verify_digest().unwrap();
}

#[test]
fn the_longest_unused_sessions_make_room_for_new_ones() {
    let mut machine = fresh();
    let register = Command::RegisterSession.encode(None).unwrap();
    let all = (1..=SESSIONS_MAX).map(|i| entry(i, Body::Command(register.clone()))).collect();
    machine.apply(&run(all), &mut Vec::new()).unwrap();
    assert_eq!(machine.counts().0[3], SESSIONS_MAX);
    assert_eq!(
        apply_one(&mut machine, session(1, 1), &create("a")),
        Answer::TopicCreated { incarnation: SESSIONS_MAX + 1 }
    );
    apply_one(&mut machine, None, &Command::RegisterSession);
    assert_eq!(machine.counts().0[3], SESSIONS_MAX - SESSIONS_MAX / 16 + 1);
    let expired = apply_one(&mut machine, session(2, 1), &create("b"));
    assert_eq!(expired, Answer::SessionExpired, "the longest unused one went");
    let kept = apply_one(&mut machine, session(1, 2), &create("b"));
    assert!(matches!(kept, Answer::TopicCreated { .. }), "the one just used stayed");
}

#[test]
fn an_unknown_type_stops_before_anything_of_the_batch_is_applied() {
    let mut machine = fresh();
    apply_one(&mut machine, None, &create("a"));
    let before = machine.applied();
    let unknown = entry(3, Body::Command(Bytes::from_static(&[0xff, 0xff, 0])));
    let batch = run(vec![command(2, None, &create("b")), unknown]);
    let fault = machine.apply(&batch, &mut Vec::new()).unwrap_err();
    assert_eq!(fault, StoreFault::UnknownType { at: Index(3), kind: 0xffff });
    assert_eq!(machine.applied(), before);
    machine.apply(&batch.take(1), &mut Vec::new()).unwrap();
    assert_eq!(machine.applied().last.index, Index(2), "the store is still open");
}

#[test]
fn another_entry_at_the_applied_index_is_evidence_and_not_skipped() {
    let mut machine = fresh();
    apply_one(&mut machine, None, &create("a"));
    let mut other = command(1, None, &create("b"));
    other.id.term = holdfast_consensus::Term(2);
    let fault = machine.apply(&run(vec![other]), &mut Vec::new()).unwrap_err();
    assert!(matches!(&fault, StoreFault::Untrusted(why) if why.contains("t1.i1")), "{fault}");
}

#[test]
fn members_and_keys_are_listed_in_order_and_in_pages() {
    let mut machine = fresh();
    for id in [3, 1, 2, 1] {
        assert_eq!(apply_one(&mut machine, None, &member(id)), Answer::MemberStored);
    }
    let members = machine.view().members().unwrap().value;
    assert_eq!(members.iter().map(|m| m.member.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(members[0].updated, 4, "the record was replaced");
    for key in ["a/1", "a/2", "a/3", "b/1"] {
        apply_one(&mut machine, None, &put(key, "v"));
    }
    let view = machine.view();
    let keys = |prefix: &str, after: Option<&str>, limit| -> Vec<Bytes> {
        let rows = view.kv_scan(prefix.as_bytes(), after.map(str::as_bytes), limit).unwrap();
        rows.value.into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(keys("a/", None, 2), [bytes("a/1"), bytes("a/2")]);
    assert_eq!(keys("a/", Some("a/2"), 2), [bytes("a/3")]);
    assert_eq!(keys("", None, 100).len(), 4);
    assert_eq!(keys("c", None, 100).len(), 0);
}

#[test]
fn a_request_id_makes_the_bytes_unique_and_changes_nothing_else() {
    let command = put("k", "v");
    let (one, two) =
        (command.encode_unique(None, 1).unwrap(), command.encode_unique(None, 2).unwrap());
    assert_ne!(one, two);
    assert_eq!(one[..3], [0xf2, 0x03, 2]);
    assert_eq!(one[3..19], 1u128.to_le_bytes());
    assert_eq!(one[19..], command.encode(None).unwrap()[3..]);
    let session = holdfast_fsm::SessionRef { client: 7, sequence: 9 };
    let both = command.encode_unique(Some(session), 1).unwrap();
    assert_eq!(both[2], 3);
    assert_eq!(holdfast_fsm::command::decode(&both).unwrap(), (Some(session), command));
    assert!(holdfast_fsm::command::decode(&both[..30]).is_err(), "cut inside the request id");
    let mut strange = one.to_vec();
    strange[2] = 4;
    assert!(holdfast_fsm::command::decode(&strange).is_err(), "an unknown flag");
}
