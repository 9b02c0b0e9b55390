//! Tests of the choices.

use super::*;
use crate::profile::Profile;
use crate::tape::Tape;

const NODE: Actor = Actor::Node(0);

#[test]
fn places_do_not_disturb_each_other() {
    let (mut a, mut b) = (Choices::new(7), Choices::new(7));
    a.enter(Stream::Job, NODE, "persist");
    for _ in 0..10 {
        a.bits("more");
    }
    a.leave();
    for choices in [&mut a, &mut b] {
        choices.enter(Stream::Job, NODE, "apply");
    }
    assert_eq!(a.bits("takes"), b.bits("takes"));
    a.bits("another name");
    assert_eq!(a.bits("takes"), b.bits("takes"));
    a.leave();
    a.enter(Stream::Job, NODE, "apply");
    assert_ne!(a.bits("takes"), b.bits("takes"), "the next place of its kind is another");
}

#[test]
fn places_are_numbered_as_they_come_or_by_their_caller() {
    let mut choices = Choices::new(1);
    let mut at = |number: Option<u64>| {
        match number {
            Some(number) => choices.enter_at(Stream::Crash, NODE, number),
            None => choices.enter(Stream::Crash, NODE, ""),
        }
        let value = choices.bits("x");
        choices.leave();
        value
    };
    let (zero, one) = (at(None), at(None));
    assert_eq!([at(Some(0)), at(Some(1))], [zero, one]);
    assert_ne!(zero, one);
}

#[test]
fn only_what_is_not_calm_is_recorded_and_it_comes_back() {
    let mut choices = Choices::new(3);
    choices.record();
    let draw = |choices: &mut Choices| {
        choices.enter(Stream::Message, Actor::Link(0, 1), "append");
        let drawn = (
            choices.chance("lost", 400),
            choices.between("delay", 10, 13),
            choices.among("kind", &[("none", 1), ("some", 3)]),
            choices.wait("wait", 1000),
            choices.when("when", 50, 1000),
            choices.choose("size", (1, 9), &[3, 5, 7]),
            choices.observe("due", true),
            choices.bits("seed"),
        );
        choices.leave();
        drawn
    };
    let first: Vec<_> = (0..50).map(|_| draw(&mut choices)).collect();
    let tape = Tape { decisions: choices.take_tape(), ..Tape::calm(Profile::Default) };
    let count = |name| tape.decisions.iter().filter(|d| d.name == name).count();
    assert_eq!(count("lost"), first.iter().filter(|d| d.0).count());
    assert_eq!(count("delay"), first.iter().filter(|d| d.1 > 10).count());
    assert!(count("lost") > 0 && count("lost") < 50);
    let mut again = Choices::replay(tape.index());
    assert_eq!((0..50).map(|_| draw(&mut again)).collect::<Vec<_>>(), first);
    let calm = draw(&mut again);
    assert_eq!((calm.0, calm.1, calm.2, calm.6), (false, 10, 0, false), "behind its end");
    assert_eq!((calm.3, calm.4, calm.5), (250, 300, 3));
}

#[test]
fn values_out_of_bounds_are_clamped_and_unknown_words_are_calm() {
    let text = "holdfast-tape 1\nprofile default\nrun: delay=5000 kind=gone low=1 node=2 lost=7\n";
    let mut choices = Choices::replay(Tape::parse(text).expect("a tape").index());
    assert_eq!(choices.between("delay", 10, 100), 99);
    assert_eq!(choices.between("low", 10, 100), 10);
    assert_eq!(choices.among("kind", &[("none", 1), ("some", 3)]), 0);
    assert_eq!(choices.among("node", &[("none", 1), ("some", 3)]), 0, "a number is no word");
    assert!(choices.chance("lost", 0), "a tape needs no chance");
}

#[test]
fn weights_are_kept() {
    let mut choices = Choices::new(5);
    let mut seen = [0; 3];
    for _ in 0..4000 {
        seen[choices.among("kind", &[("a", 0), ("b", 1), ("c", 3)])] += 1;
    }
    assert_eq!(seen[0], 0);
    assert!((800..1200).contains(&seen[1]), "{seen:?}");
}

#[test]
fn waits_are_near_their_mean_and_bounded() {
    let mut choices = Choices::new(3);
    let waits: Vec<u64> = (0..4000).map(|_| choices.wait("wait", 1000)).collect();
    let mean = waits.iter().sum::<u64>() / 4000;
    assert!((600..1700).contains(&mean), "{mean}");
    assert!(waits.iter().all(|w| *w <= 8_008));
}
