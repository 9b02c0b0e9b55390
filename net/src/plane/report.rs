//! What the keeper of the data plane last found, for status and metrics.

use holdfast_fsm::guard::Keep;
use serde::Serialize;

/// Most kept copies that are listed one by one.
pub(crate) const LISTED: usize = 100;

/// A copy that stays for another reason than that it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Kept {
    /// Name of its directory.
    pub(crate) place: String,
    /// A stable word.
    pub(crate) reason: &'static str,
    /// A sentence that a person can act on.
    pub(crate) why: String,
    /// True if no answer of this cluster will ever let it go: a person must look.
    pub(crate) quarantined: bool,
}

impl Kept {
    pub(crate) fn new(place: &str, keep: &Keep) -> Self {
        Self {
            place: place.to_owned(),
            reason: keep.code(),
            why: keep.to_string(),
            quarantined: keep.is_quarantine(),
        }
    }
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// The disk's id in hex; empty before the data plane is open.
    pub(crate) volume: String,
    /// True once new copies are made: the sweep at the start is over, or was skipped.
    pub(crate) gate_open: bool,
    /// Copies that live.
    pub(crate) live: usize,
    /// Copies that went to the trash since the start.
    pub(crate) trashed: u64,
    /// Entries of the trash.
    pub(crate) in_trash: usize,
    /// Copies that stay for another reason.
    pub(crate) kept: Vec<Kept>,
}

impl Report {
    /// How many of the kept ones a person must look at.
    pub(crate) fn quarantined(&self) -> usize {
        self.kept.iter().filter(|kept| kept.quarantined).count()
    }

    /// For `status`: the first [`LISTED`] kept copies one by one, and counts.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "volume": self.volume,
            "gate_open": self.gate_open,
            "live": self.live,
            "trashed": self.trashed,
            "in_trash": self.in_trash,
            "kept": self.kept.len(),
            "quarantined": self.quarantined(),
            "kept_list": self.kept.iter().take(LISTED).collect::<Vec<_>>(),
        })
    }
}
