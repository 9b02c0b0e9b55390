//! The decision of recovery as data: facts about a place in a segment, and about a segment as a
//! whole, give exactly one row each. The walk collects facts and carries out what the row says; it
//! decides nothing by itself.
//!
//! A table with a gap or an overlap does not compile: it is folded into an array while compiling,
//! and a combination that no row or more than one row covers stops that. Combinations that cannot
//! occur are rows of their own, with the reason; meeting one means that the walk broke its own
//! rules, and nothing is touched.
//!
//! Sources: R9 to R18, "Protocol-Aware Recovery" (FAST'18) sections 3.3 and 3.4.

/// Where a place lies.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Below the proved durable position D.
    Below,
    /// At D or above.
    Above,
}

/// What reading the place gave.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    /// A record that verifies and continues the chain, as far as that can be told.
    Good,
    /// A record that verifies but does not follow the verified one before it.
    Unchained,
    /// Something that does not verify.
    Bad,
    /// Zeros, or the end of the file.
    Blank,
}

/// What lies directly before it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// A record that verifies, or the start of the segment.
    Verified,
    /// A place that is lost.
    Lost,
    /// The cut.
    Cut,
}

/// What the side index, in another sector, says was written there.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// An entry: its term, index and CRC are known.
    Entry,
    /// Something else than an entry and than a hard state: its content is known, or it has none.
    Control,
    /// A batch header, which carries the hard state.
    Hard,
    /// Nothing.
    Nothing,
}

/// Whether a batch header that verifies, and with it a newer hard state, follows (R14).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    Hard,
    None,
}

/// What becomes of a place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It counts; above D only once it was copied (R12).
    Keep,
    /// The torn tail begins here.
    Cut,
    /// It lies behind the cut and is not judged.
    Behind,
    /// An entry of known identity is damaged.
    LostEntry,
    /// The record is damaged; its content is taken from the side index.
    Restored,
    /// A hard state is damaged that a later one replaced: nothing is missing.
    Replaced,
    /// Something of unknown identity is damaged.
    LostUnknown,
    /// The hard state, or the last identity, is not proved: the member is held (R5, R14).
    Held,
    /// It cannot be.
    Impossible,
}

/// Facts about a place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlaceFacts {
    pub(crate) reach: Reach,
    pub(crate) bytes: Bytes,
    pub(crate) before: Before,
    pub(crate) listed: Listed,
    pub(crate) later: Later,
}

/// The two copies of a segment's header.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Both verify.
    Both,
    /// One verifies.
    One,
    /// None verifies; at least one is not zero.
    Bad,
    /// Both are zero.
    Zero,
    /// None verifies, and one was written by a newer build.
    Newer,
    /// There is no file.
    None,
}

/// Where a segment stands in the chain.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// A later segment names it as its predecessor.
    Inside,
    /// It is the newest.
    Newest,
}

/// Whether any record verifies under the unique id in the file's name.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Something,
    Nothing,
}

/// Whether D lies in the segment or behind it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Yes,
    No,
}

/// The length of the file against the length that its header names.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Whole,
    Short,
}

/// The copy of an unproved tail with which the segment may begin (R12).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    /// It begins with none, or with one that verifies to its end.
    Complete,
    /// It does not verify to the end that its header names.
    Partial,
}

/// What becomes of a segment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whole {
    /// Its places are judged one by one.
    Read,
    /// As `Read`; one copy of the header is damaged and the other is used.
    ReadHalf,
    /// As `Read`, with the header that its successor repeats.
    ReadByName,
    /// Everything in it is lost: a hole of unknown identity.
    Lost,
    /// Nothing was ever written into it: removed (R16).
    Empty,
    /// A copy that was cut short: removed, and copied again from its source (R12).
    Void,
    /// What it held last cannot be proved: the member is held.
    Held,
    /// A newer build wrote it: refused.
    Refuse,
    /// It cannot be.
    Impossible,
}

/// Facts about a segment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentFacts {
    pub(crate) head: Head,
    pub(crate) stand: Stand,
    pub(crate) written: Written,
    pub(crate) named: Named,
    pub(crate) length: Length,
    pub(crate) copying: Copying,
}

/// A row: for each fact the set of values that it covers, one bit a value.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Row<V, const N: usize> {
    /// Name, as in the book.
    pub(crate) name: &'static str,
    pub(crate) covers: [u8; N],
    pub(crate) verdict: V,
    /// Why it is safe, or why it cannot be.
    pub(crate) why: &'static str,
}

/// Every value of a fact.
const ANY: u8 = u8::MAX;

const fn bit(value: usize) -> u8 {
    1 << value
}

const BELOW: u8 = bit(Reach::Below as usize);
const ABOVE: u8 = bit(Reach::Above as usize);
const GOOD: u8 = bit(Bytes::Good as usize);
const UNCHAINED: u8 = bit(Bytes::Unchained as usize);
const UNREADABLE: u8 = bit(Bytes::Bad as usize) | bit(Bytes::Blank as usize);
const VERIFIED: u8 = bit(Before::Verified as usize);
const LOST: u8 = bit(Before::Lost as usize);
const CUT: u8 = bit(Before::Cut as usize);
const ENTRY: u8 = bit(Listed::Entry as usize);
const CONTROL: u8 = bit(Listed::Control as usize);
const HARD: u8 = bit(Listed::Hard as usize);
const UNLISTED: u8 = bit(Listed::Nothing as usize);
const LATER: u8 = bit(Later::Hard as usize);
const NO_LATER: u8 = bit(Later::None as usize);

const fn row<V: Copy, const N: usize>(
    name: &'static str,
    covers: [u8; N],
    verdict: V,
    why: &'static str,
) -> Row<V, N> {
    Row { name, covers, verdict, why }
}

/// The rows for places: reach, bytes, before, listed, later.
pub(crate) const PLACES: &[Row<Place, 5>] = &[
    row(
        "P1",
        [BELOW, GOOD, VERIFIED | LOST, ANY, ANY],
        Place::Keep,
        "acknowledged and whole; what is lost before it does not touch it, since every record is salted with its own place",
    ),
    row(
        "P2",
        [BELOW, UNCHAINED, VERIFIED, ENTRY | CONTROL | HARD, ANY],
        Place::Keep,
        "the side index names this very record at this place",
    ),
    row(
        "P3",
        [BELOW, UNCHAINED, VERIFIED, UNLISTED, LATER],
        Place::LostUnknown,
        "two records verify and do not follow one another: something between them is missing",
    ),
    row(
        "P4",
        [BELOW, UNCHAINED, VERIFIED, UNLISTED, NO_LATER],
        Place::Held,
        "what is missing may have been the last hard state (R14)",
    ),
    row(
        "P5",
        [BELOW, UNREADABLE, VERIFIED | LOST, ENTRY, ANY],
        Place::LostEntry,
        "below D everything was acknowledged: damaged, never torn (R9); known to be an entry, so the hard state stays proved (R14)",
    ),
    row(
        "P6",
        [BELOW, UNREADABLE, VERIFIED | LOST, CONTROL, ANY],
        Place::Restored,
        "the side index repeats it in another sector",
    ),
    row(
        "P7",
        [BELOW, UNREADABLE, VERIFIED | LOST, HARD, LATER],
        Place::Replaced,
        "only the newest hard state counts, and a later one verifies (R14)",
    ),
    row(
        "P8",
        [BELOW, UNREADABLE, VERIFIED | LOST, HARD, NO_LATER],
        Place::Held,
        "the last hard state is damaged (R14)",
    ),
    row(
        "P9",
        [BELOW, UNREADABLE, VERIFIED | LOST, UNLISTED, LATER],
        Place::LostUnknown,
        "both the record and the side index are damaged; a later hard state verifies, the entries are known by range only (R15)",
    ),
    row(
        "P10",
        [BELOW, UNREADABLE, VERIFIED | LOST, UNLISTED, NO_LATER],
        Place::Held,
        "it may have been the last hard state or the last entry (R5, R14)",
    ),
    row(
        "P11",
        [ABOVE, GOOD, VERIFIED | LOST, ANY, ANY],
        Place::Keep,
        "the unbroken run above D: readable, counts once it is copied and synced (R12)",
    ),
    row(
        "P12",
        [ABOVE, UNCHAINED, VERIFIED, ANY, ANY],
        Place::Cut,
        "never acknowledged, and not the continuation of what is (R9)",
    ),
    row(
        "P13",
        [ABOVE, UNREADABLE, VERIFIED | LOST, ANY, ANY],
        Place::Cut,
        "never acknowledged: torn, whatever follows it (R9)",
    ),
    row(
        "P14",
        [ABOVE, ANY, CUT, ANY, ANY],
        Place::Behind,
        "what lies behind the cut is never judged (R12, R13)",
    ),
    row("P15", [BELOW, ANY, CUT, ANY, ANY], Place::Impossible, "the cut is never below D"),
    row(
        "P16",
        [BELOW | ABOVE, UNCHAINED, LOST, ANY, ANY],
        Place::Impossible,
        "behind a lost record there is nothing that the chain could be compared with",
    ),
];

const BOTH: u8 = bit(Head::Both as usize);
const ONE: u8 = bit(Head::One as usize);
const BAD: u8 = bit(Head::Bad as usize);
const ZERO: u8 = bit(Head::Zero as usize);
const NO_HEADER: u8 = BAD | ZERO;
const NEWER: u8 = bit(Head::Newer as usize);
const NO_FILE: u8 = bit(Head::None as usize);
const INSIDE: u8 = bit(Stand::Inside as usize);
const NEWEST: u8 = bit(Stand::Newest as usize);
const SOMETHING: u8 = bit(Written::Something as usize);
const NOTHING: u8 = bit(Written::Nothing as usize);
const NAMED: u8 = bit(Named::Yes as usize);
const UNNAMED: u8 = bit(Named::No as usize);
const WHOLE: u8 = bit(Length::Whole as usize);
const SHORT: u8 = bit(Length::Short as usize);
const COMPLETE: u8 = bit(Copying::Complete as usize);
const PARTIAL: u8 = bit(Copying::Partial as usize);

/// The rows for segments: head, stand, written, named, length, copying.
pub(crate) const SEGMENTS: &[Row<Whole, 6>] = &[
    row(
        "S1",
        [NEWER, ANY, ANY, ANY, ANY, ANY],
        Whole::Refuse,
        "an older build must not judge a newer format",
    ),
    row(
        "S2",
        [BOTH, ANY, ANY, ANY, WHOLE, COMPLETE],
        Whole::Read,
        "every place is judged by the other table",
    ),
    row(
        "S3",
        [ONE, ANY, ANY, ANY, WHOLE, COMPLETE],
        Whole::ReadHalf,
        "the header stands twice, in sectors of their own",
    ),
    row(
        "S4",
        [BOTH | ONE, ANY, ANY, NAMED, WHOLE, PARTIAL],
        Whole::Read,
        "D lies behind the copy: it was complete once, what is bad in it is damage",
    ),
    row(
        "S5",
        [BOTH | ONE, NEWEST, ANY, UNNAMED, WHOLE, PARTIAL],
        Whole::Void,
        "nothing was reported from it, and its source was never touched (R12)",
    ),
    row(
        "S19",
        [BOTH | ONE, INSIDE, ANY, UNNAMED, WHOLE, PARTIAL],
        Whole::Held,
        "a later segment goes on behind it, so it was reported; what proved how much is gone",
    ),
    row(
        "S6",
        [BOTH | ONE, INSIDE, ANY, ANY, SHORT, ANY],
        Whole::Read,
        "the bytes that are gone are places that do not verify",
    ),
    row(
        "S7",
        [BOTH | ONE, NEWEST, ANY, ANY, SHORT, ANY],
        Whole::Held,
        "a file has its whole length before its header is written: it became shorter, and nothing tells what it held last",
    ),
    row(
        "S8",
        [NO_HEADER, INSIDE, ANY, ANY, ANY, COMPLETE],
        Whole::ReadByName,
        "the successor's header repeats what is needed to read on",
    ),
    row(
        "S9",
        [ZERO, NEWEST, NOTHING, UNNAMED, WHOLE, COMPLETE],
        Whole::Empty,
        "no record verifies under its id, nothing names it, it is the last (R16)",
    ),
    row(
        "S20",
        [BAD, NEWEST, NOTHING, UNNAMED, WHOLE, COMPLETE],
        Whole::Held,
        "a segment gets its name when its header is durable: this one was damaged, and nothing tells what it held",
    ),
    row(
        "S21",
        [NO_HEADER, NEWEST, NOTHING, UNNAMED, SHORT, COMPLETE],
        Whole::Held,
        "the file became shorter, header and all, and nothing tells what it held",
    ),
    row(
        "S10",
        [NO_HEADER, NEWEST, SOMETHING, ANY, ANY, COMPLETE],
        Whole::Held,
        "records verify under its id but nothing says where they belong",
    ),
    row(
        "S11",
        [NO_HEADER, NEWEST, NOTHING, NAMED, ANY, COMPLETE],
        Whole::Held,
        "something known durable lay in it (R5)",
    ),
    row(
        "S12",
        [NO_FILE, INSIDE, NOTHING, ANY, WHOLE, COMPLETE],
        Whole::Lost,
        "segments are given up oldest first: with an older one there, this one was lost, not compacted",
    ),
    row(
        "S13",
        [NO_FILE, NEWEST, NOTHING, NAMED, WHOLE, COMPLETE],
        Whole::Held,
        "something known durable lay in it (R5)",
    ),
    row(
        "S14",
        [NO_FILE, NEWEST, NOTHING, UNNAMED, WHOLE, COMPLETE],
        Whole::Impossible,
        "nothing tells of such a segment",
    ),
    row(
        "S15",
        [NO_HEADER, ANY, ANY, ANY, ANY, PARTIAL],
        Whole::Impossible,
        "only a header tells of a copy",
    ),
    row(
        "S16",
        [NO_FILE, ANY, SOMETHING, ANY, ANY, ANY],
        Whole::Impossible,
        "nothing verifies where there is no file",
    ),
    row(
        "S17",
        [NO_FILE, ANY, NOTHING, ANY, SHORT, ANY],
        Whole::Impossible,
        "only a header tells the length that a file had",
    ),
    row(
        "S18",
        [NO_FILE, ANY, NOTHING, ANY, WHOLE, PARTIAL],
        Whole::Impossible,
        "only a header tells of a copy",
    ),
];

const PLACE_SHAPE: [usize; 5] = [2, 4, 3, 4, 2];
const PLACE_COUNT: usize = 2 * 4 * 3 * 4 * 2;
const SEGMENT_SHAPE: [usize; 6] = [6, 2, 2, 2, 2, 2];
const SEGMENT_COUNT: usize = 6 * 2 * 2 * 2 * 2 * 2;

/// Which row covers the combination with this number, and how many do.
const fn rows_of<V: Copy, const N: usize>(
    rows: &[Row<V, N>],
    shape: &[usize; N],
    number: usize,
) -> (usize, usize) {
    let (mut found, mut count, mut row) = (0, 0, 0);
    while row < rows.len() {
        let (mut rest, mut fact, mut covered) = (number, 0, true);
        while fact < N {
            covered = covered && rows[row].covers[fact] & bit(rest % shape[fact]) != 0;
            rest /= shape[fact];
            fact += 1;
        }
        if covered {
            found = row;
            count += 1;
        }
        row += 1;
    }
    (found, count)
}

const fn fold<V: Copy, const N: usize, const COUNT: usize>(
    rows: &[Row<V, N>],
    shape: &[usize; N],
) -> [usize; COUNT] {
    let (mut table, mut number) = ([0; COUNT], 0);
    while number < COUNT {
        let (row, count) = rows_of(rows, shape, number);
        assert!(count == 1, "every combination of facts has exactly one row");
        table[number] = row;
        number += 1;
    }
    table
}

static PLACE_TABLE: [usize; PLACE_COUNT] = fold(PLACES, &PLACE_SHAPE);
static SEGMENT_TABLE: [usize; SEGMENT_COUNT] = fold(SEGMENTS, &SEGMENT_SHAPE);

const fn number<const N: usize>(facts: [usize; N], shape: [usize; N]) -> usize {
    let (mut number, mut fact) = (0, N);
    while fact > 0 {
        fact -= 1;
        number = number * shape[fact] + facts[fact];
    }
    number
}

impl PlaceFacts {
    const fn numbers(self) -> [usize; 5] {
        [
            self.reach as usize,
            self.bytes as usize,
            self.before as usize,
            self.listed as usize,
            self.later as usize,
        ]
    }
}

impl SegmentFacts {
    const fn numbers(self) -> [usize; 6] {
        [
            self.head as usize,
            self.stand as usize,
            self.written as usize,
            self.named as usize,
            self.length as usize,
            self.copying as usize,
        ]
    }
}

/// The one row for a place.
pub(crate) fn place(facts: PlaceFacts) -> &'static Row<Place, 5> {
    &PLACES[PLACE_TABLE[number(facts.numbers(), PLACE_SHAPE)]]
}

/// The one row for a segment.
pub(crate) fn segment(facts: SegmentFacts) -> &'static Row<Whole, 6> {
    &SEGMENTS[SEGMENT_TABLE[number(facts.numbers(), SEGMENT_SHAPE)]]
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
