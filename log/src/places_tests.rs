use super::*;
use holdfast_consensus::Term;
use proptest::prelude::*;

fn at(offset: u64) -> EntryAt {
    EntryAt { segment: 1, offset, size: 64, weight: 1, crc: 0, term: Term(1), time: 0 }
}

fn filled(count: u64) -> Places {
    let mut places = Places::default();
    (0..count).for_each(|n| places.push(at(n)));
    places
}

fn offsets(places: &Places, from: usize) -> Vec<u64> {
    places.from(from).map(|at| at.offset).collect()
}

#[test]
fn lists_share_whole_chunks_until_one_of_them_changes_one() {
    let mut writer = filled(2500);
    let mut readers = writer.clone();
    assert_eq!(readers.shared_with(&writer), 2);
    (2500..5000).for_each(|n| writer.push(at(n)));
    assert_eq!(readers.len(), 2500);
    readers.follow(&writer);
    assert_eq!((readers.shared_with(&writer), offsets(&readers, 0)), (4, (0..5000).collect()));
    // A hole is filled: the readers see it when they are told.
    writer.get_mut(1030).unwrap().offset = 99_999;
    assert_eq!(readers.get(1030), Some(&at(1030)));
    assert_eq!((writer.get(1030).unwrap().offset, readers.shared_with(&writer)), (99_999, 3));
    // What was cut and replaced is shown until the readers are told.
    writer.truncate(2000);
    (0..3000).for_each(|n| writer.push(at(70_000 + n)));
    assert_eq!(readers.get(2000), Some(&at(2000)));
    readers.truncate(2000);
    readers.follow(&writer);
    assert_eq!(offsets(&readers, 2000), (70_000..73_000).collect::<Vec<_>>());
}

#[test]
fn a_list_of_which_less_was_shown_than_is_given_up_follows() {
    let mut writer = filled(10);
    let mut readers = writer.clone();
    (10..3000).for_each(|n| writer.push(at(n)));
    writer.give_up(2500);
    readers.give_up(2500);
    assert_eq!(readers.len(), 0);
    readers.follow(&writer);
    assert_eq!(offsets(&readers, 0), (2500..3000).collect::<Vec<_>>());
    (3000..9000).for_each(|n| writer.push(at(n)));
    readers.follow(&writer);
    assert_eq!(offsets(&readers, 0), (2500..9000).collect::<Vec<_>>());
}

#[test]
#[should_panic(expected = "what is shown is held")]
fn nothing_is_shown_that_is_not_held() {
    filled(3).follow(&filled(2));
}

/// Something that is done to a list.
#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Truncate(usize),
    GiveUp(usize),
    Change(usize),
    Follow,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..3000usize).prop_map(Step::Push),
        (0..6000usize).prop_map(Step::Truncate),
        (0..2500usize).prop_map(Step::GiveUp),
        (0..6000usize).prop_map(Step::Change),
        Just(Step::Follow),
    ];
    prop::collection::vec(step, 1..20)
}

proptest! {
    /// Beside a plain queue, and with a second list that follows, as the readers' does.
    #[test]
    fn a_list_is_a_queue(steps in steps(), asked in 0..7000usize) {
        let (mut places, mut queue, mut next) = (Places::default(), VecDeque::new(), 0);
        let (mut readers, mut cut) = (Places::default(), usize::MAX);
        for step in steps {
            match step {
                Step::Push(count) => for _ in 0..count {
                    next += 1;
                    places.push(at(next));
                    queue.push_back(at(next));
                },
                Step::Truncate(keep) => {
                    places.truncate(keep);
                    queue.truncate(keep);
                    cut = cut.min(keep);
                }
                Step::GiveUp(gone) => {
                    // As the log does it: only of what is shown, in both.
                    let gone = gone.min(readers.len()).min(queue.len()).min(cut);
                    places.give_up(gone);
                    queue.drain(..gone);
                    readers.give_up(gone);
                    cut = cut.saturating_sub(gone);
                }
                Step::Change(number) => {
                    next += 1;
                    let (one, other) = (places.get_mut(number), queue.get_mut(number));
                    prop_assert_eq!(one.is_some(), other.is_some());
                    for place in [one, other].into_iter().flatten() {
                        place.offset = next;
                    }
                    cut = cut.min(number);
                }
                Step::Follow => {
                    readers.truncate(cut);
                    readers.follow(&places);
                    cut = usize::MAX;
                    prop_assert!(readers.from(0).eq(&queue));
                }
            }
            prop_assert_eq!(places.len(), queue.len());
            prop_assert_eq!(places.back(), queue.back());
            prop_assert_eq!(places.get(asked), queue.get(asked));
            prop_assert!(places.from(asked).eq(queue.range(asked.min(queue.len())..)));
            prop_assert!(places.room() <= queue.len() + 3 * CHUNK);
        }
    }
}
