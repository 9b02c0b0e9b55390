//! Places in the log, and the names of its files.

use holdfast_consensus::Index;

/// Size of a sector as the log assumes it: every sync is padded to it, so that no later write
/// touches a sector that holds acknowledged bytes (R13).
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

/// [`BLOCK`] for lengths in memory.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// The directory of the log.
pub(crate) const LOG_DIR: &str = "log";

/// The next multiple of [`BLOCK`].
pub(crate) const fn align_up(offset: u64) -> u64 {
    offset.next_multiple_of(BLOCK)
}

/// A place in the log: everything before it in its segment, and all earlier segments of the chain.
/// Ordered by segment (a counter) and offset; the sequence number is for people (R9).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    pub(crate) seq: u64,
}

impl Position {
    pub(crate) const fn new(segment: u64, offset: u64) -> Self {
        Self { segment, offset, seq: 0 }
    }

    /// True if `self` lies before `other`, whatever their sequence numbers.
    pub(crate) fn before(self, other: Self) -> bool {
        (self.segment, self.offset) < (other.segment, other.offset)
    }
}

/// What a file name in the log's directory stands for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// A segment: first index and unique id.
    Segment { first: u64, unique: u64 },
    /// A complete spare. Its number only keeps unique ids from being used twice.
    Spare { number: u64 },
    /// A spare that was not completed.
    Unfinished { number: u64 },
}

impl Name {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let number = |s: &str| {
            let digits = !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
            // One below the maximum, so that the next number always exists.
            if digits { s.parse().ok().filter(|n| *n < u64::MAX - 1) } else { None }
        };
        let parsed = if let Some(rest) = name.strip_prefix("spare-") {
            match rest.strip_suffix(".tmp") {
                Some(rest) => Self::Unfinished { number: number(rest)? },
                None => Self::Spare { number: number(rest)? },
            }
        } else {
            let (first, unique) = name.split_once('-')?;
            Self::Segment { first: number(first)?, unique: number(unique)? }
        };
        // Only the canonical spelling is ours.
        (parsed.file_name() == name).then_some(parsed)
    }

    pub(crate) fn file_name(self) -> String {
        match self {
            Self::Segment { first, unique } => format!("{first:020}-{unique:010}"),
            Self::Spare { number } => format!("spare-{number:010}"),
            Self::Unfinished { number } => format!("spare-{number:010}.tmp"),
        }
    }

    /// Path relative to the data directory.
    pub(crate) fn path(self) -> String {
        format!("{LOG_DIR}/{}", self.file_name())
    }

    /// The unique id or number in the name.
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Segment { unique, .. } => unique,
            Self::Spare { number } | Self::Unfinished { number } => number,
        }
    }
}

/// Name of the segment with this header data.
pub(crate) const fn segment_name(first: Index, unique: u64) -> Name {
    Name::Segment { first: first.0, unique }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_a_round_trip_and_foreign_names_are_not_ours() {
        for name in [
            Name::Segment { first: 1, unique: 1 },
            Name::Segment { first: u64::MAX - 2, unique: 12_345_678_901 },
            Name::Spare { number: 7 },
            Name::Unfinished { number: 0 },
        ] {
            assert_eq!(Name::parse(&name.file_name()), Some(name));
        }
        for foreign in ["", "x", "1-1", "spare-", "spare-1", "lost+found", "-", "+1-+2", "a-b"] {
            assert_eq!(Name::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn positions_order_by_segment_then_offset() {
        assert!(Position::new(1, 9000).before(Position::new(2, 0)));
        assert!(Position::new(2, 1).before(Position::new(2, 2)));
        assert!(!Position { segment: 1, offset: 1, seq: 0 }.before(Position {
            segment: 1,
            offset: 1,
            seq: 9
        }));
    }
}
