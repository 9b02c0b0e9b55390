use super::*;

/// Every combination of the numbers below `shape`.
fn combinations(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |all, size| {
        let with = |one: &Vec<usize>| {
            let one = one.clone();
            (0..*size).map(move |value| [one.clone(), vec![value]].concat())
        };
        all.iter().flat_map(with).collect()
    })
}

/// Names of the rows that cover a combination, by the rows alone.
fn covering<V, const N: usize>(rows: &[Row<V, N>], facts: &[usize]) -> Vec<&'static str> {
    let covers =
        |row: &&Row<V, N>| row.covers.iter().zip(facts).all(|(set, value)| set >> value & 1 == 1);
    rows.iter().filter(covers).map(|row| row.name).collect()
}

const REACH: [Reach; 2] = [Reach::Below, Reach::Above];
const BYTES: [Bytes; 4] = [Bytes::Good, Bytes::Unchained, Bytes::Bad, Bytes::Blank];
const BEFORE: [Before; 3] = [Before::Verified, Before::Lost, Before::Cut];
const LISTED: [Listed; 4] = [Listed::Entry, Listed::Control, Listed::Hard, Listed::Nothing];
const LATERS: [Later; 2] = [Later::Hard, Later::None];
const HEADS: [Head; 6] = [Head::Both, Head::One, Head::Bad, Head::Zero, Head::Newer, Head::None];

fn place_of(facts: &[usize]) -> PlaceFacts {
    PlaceFacts {
        reach: REACH[facts[0]],
        bytes: BYTES[facts[1]],
        before: BEFORE[facts[2]],
        listed: LISTED[facts[3]],
        later: LATERS[facts[4]],
    }
}

fn segment_of(facts: &[usize]) -> SegmentFacts {
    SegmentFacts {
        head: HEADS[facts[0]],
        stand: [Stand::Inside, Stand::Newest][facts[1]],
        written: [Written::Something, Written::Nothing][facts[2]],
        named: [Named::Yes, Named::No][facts[3]],
        length: [Length::Whole, Length::Short][facts[4]],
        copying: [Copying::Complete, Copying::Partial][facts[5]],
    }
}

#[test]
fn every_combination_of_facts_about_a_place_has_exactly_one_row() {
    let all = combinations(&PLACE_SHAPE);
    assert_eq!(all.len(), 192);
    for facts in &all {
        assert_eq!(covering(PLACES, facts), [place(place_of(facts)).name], "{:?}", place_of(facts));
    }
    let used = |name| all.iter().any(|facts| place(place_of(facts)).name == name);
    assert!(PLACES.iter().all(|row| used(row.name)), "no row is superfluous");
}

#[test]
fn every_combination_of_facts_about_a_segment_has_exactly_one_row() {
    let all = combinations(&SEGMENT_SHAPE);
    assert_eq!(all.len(), 192);
    for facts in &all {
        let (facts, rows) = (segment_of(facts), covering(SEGMENTS, facts));
        assert_eq!(rows, [segment(facts).name], "{facts:?}");
    }
    let used = |name| all.iter().any(|facts| segment(segment_of(facts)).name == name);
    assert!(SEGMENTS.iter().all(|row| used(row.name)), "no row is superfluous");
}

#[test]
fn the_check_for_exactly_one_row_sees_a_gap_and_an_overlap() {
    let row = |covers| Row { name: "X", covers, verdict: Place::Keep, why: "" };
    assert_eq!(rows_of(&[row([1])], &[2], 1).1, 0, "a gap");
    assert_eq!(rows_of(&[row([1]), row([3])], &[2], 0).1, 2, "an overlap");
    assert_eq!(rows_of(&[row([1]), row([2])], &[2], 1), (1, 1));
}

/// The rules, each as a sentence over all combinations.
#[test]
fn the_table_of_places_keeps_the_rules() {
    for facts in combinations(&PLACE_SHAPE) {
        let facts = place_of(&facts);
        let row = place(facts);
        let below = facts.reach == Reach::Below;
        let verifies = facts.bytes == Bytes::Good;
        match row.verdict {
            // R9: below D nothing is torn, and above it nothing is damage.
            Place::Cut | Place::Behind => assert!(!below, "{facts:?}"),
            Place::LostEntry | Place::LostUnknown | Place::Restored | Place::Replaced => {
                assert!(below && facts.before != Before::Cut, "{facts:?}");
                assert!(!verifies, "{facts:?}");
            }
            // R14: held exactly if nothing proves a hard state behind it.
            Place::Held => assert!(below && facts.later == Later::None, "{facts:?}"),
            Place::Keep => assert!(facts.before != Before::Cut, "{facts:?}"),
            Place::Impossible => {
                assert!(facts.before != Before::Verified, "{facts:?}");
            }
        }
        // R14: a hole that may have been a hard state never passes without a later one.
        let hard = matches!(facts.listed, Listed::Hard | Listed::Nothing);
        let lost = !verifies && below && facts.before == Before::Verified;
        if lost && hard && facts.later == Later::None && facts.bytes != Bytes::Unchained {
            assert_eq!(row.verdict, Place::Held, "{facts:?}");
        }
    }
}

#[test]
fn the_table_of_segments_keeps_the_rules() {
    for facts in combinations(&SEGMENT_SHAPE) {
        let facts = segment_of(&facts);
        let row = segment(facts);
        let header = matches!(facts.head, Head::Both | Head::One);
        match row.verdict {
            // R16: empty only without a record, without a name elsewhere, and as the last.
            Whole::Empty => assert!(
                facts.head == Head::Zero
                    && facts.length == Length::Whole
                    && facts.stand == Stand::Newest
                    && facts.written == Written::Nothing
                    && facts.named == Named::No,
                "{facts:?}"
            ),
            // R12: a copy is void only while nothing was reported from it.
            Whole::Void => assert!(
                facts.copying == Copying::Partial
                    && facts.named == Named::No
                    && facts.stand == Stand::Newest,
                "{facts:?}"
            ),
            Whole::Refuse => assert_eq!(facts.head, Head::Newer),
            Whole::Lost => assert!(facts.head == Head::None && facts.stand == Stand::Inside),
            Whole::Read | Whole::ReadHalf => assert!(header, "{facts:?}"),
            Whole::ReadByName => assert!(!header && facts.stand == Stand::Inside, "{facts:?}"),
            Whole::Held | Whole::Impossible => {}
        }
        // A newest segment that became shorter may have held anything (R5).
        if header && facts.stand == Stand::Newest && facts.length == Length::Short {
            assert_eq!(row.verdict, Whole::Held, "{facts:?}");
        }
    }
}

/// The tables as the book prints them.
fn pages() -> String {
    let mut text = String::from(
        "| row | below or above D | bytes | before it | side index | later hard state | verdict | why |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in PLACES {
        let cells = [
            names(&REACH, row.covers[0]),
            names(&BYTES, row.covers[1]),
            names(&BEFORE, row.covers[2]),
            names(&LISTED, row.covers[3]),
            names(&LATERS, row.covers[4]),
        ];
        let (name, verdict) = (row.name, words(&format!("{:?}", row.verdict)));
        text += &format!("| {name} | {} | {verdict} | {} |\n", cells.join(" | "), row.why);
    }
    text += "\n| row | header | stands | records | D in or behind it | file | copy | verdict | why |\n|---|---|---|---|---|---|---|---|---|\n";
    for row in SEGMENTS {
        let cells = [
            names(&HEADS, row.covers[0]),
            names(&[Stand::Inside, Stand::Newest], row.covers[1]),
            names(&[Written::Something, Written::Nothing], row.covers[2]),
            names(&[Named::Yes, Named::No], row.covers[3]),
            names(&[Length::Whole, Length::Short], row.covers[4]),
            names(&[Copying::Complete, Copying::Partial], row.covers[5]),
        ];
        let (name, verdict) = (row.name, words(&format!("{:?}", row.verdict)));
        text += &format!("| {name} | {} | {verdict} | {} |\n", cells.join(" | "), row.why);
    }
    text
}

fn names<T: std::fmt::Debug>(values: &[T], set: u8) -> String {
    let covered = values.iter().enumerate().filter(|(n, _)| set >> n & 1 == 1);
    let words: Vec<String> = covered.map(|(_, v)| words(&format!("{v:?}"))).collect();
    if words.len() == values.len() { "any".into() } else { words.join(", ") }
}

/// `LostEntry` as `lost entry`.
fn words(name: &str) -> String {
    let spaced =
        |c: char| if c.is_uppercase() { format!(" {}", c.to_lowercase()) } else { c.into() };
    name.chars().map(spaced).collect::<String>().trim().to_owned()
}

#[test]
fn the_book_prints_the_tables() {
    let page = include_str!("../../book/src/recovery.md");
    assert!(page.contains(&pages()), "book/src/recovery.md must hold these tables:\n{}", pages());
}
