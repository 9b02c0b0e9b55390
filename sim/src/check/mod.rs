//! The properties that every run is held to, one file for each, with its source in the header.
//!
//! Checkers see what happens (effects, jobs, answers, states); they decide nothing, and they hold
//! their own model of what must be true.

pub mod commit_rule;
pub mod commit_safety;
pub mod disk_images;
pub mod durability;
pub mod durable_promises;
pub mod election_safety;
pub mod ground;
pub mod leader_completeness;
pub mod linearizable;
pub mod log_matching;
pub mod memory;
pub mod model;
pub mod placement;
pub mod progress;
pub mod promises;
pub mod read_your_writes;
pub mod reads;
pub mod results;
pub mod state_machine;
pub mod stuck;
pub mod watermarks;

use std::fmt;

/// A property that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the property.
    pub property: &'static str,
    /// What was seen, in a sentence or more.
    pub evidence: String,
}

impl Violation {
    /// A violation.
    pub fn new(property: &'static str, evidence: impl Into<String>) -> Self {
        Self { property, evidence: evidence.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.evidence)
    }
}

/// A checker's verdict.
pub type Verdict = Result<(), Violation>;
