//! Which configuration is in force, and what it lets this member do.

use super::log_view::LogView;
use super::shared::Shared;
use crate::types::{Index, Membership};
use std::collections::BTreeMap;

/// The configuration of a member that has none.
static NONE: Membership = Membership {
    voters: Vec::new(),
    outgoing: Vec::new(),
    learners: Vec::new(),
    names: BTreeMap::new(),
};

impl LogView {
    /// The configuration in force: the last one in the log, committed or not (dissertation 4.1).
    pub(crate) fn membership(&self) -> (Index, &Membership) {
        self.memberships().last().map_or((Index(0), &NONE), |(index, m)| (*index, m))
    }
}

impl Shared {
    /// True if this member may stand: only as a voter of its latest configuration (R42; a member
    /// without one never does), only while its own vote could become durable (R41), and never while
    /// an entry of its log is damaged (R15): what it leads with must be what it voted by.
    pub(crate) fn may_stand(&self) -> bool {
        let (_, membership) = self.log.membership();
        membership.is_voter(self.config.member)
            && !self.disk.poisoned()
            && !self.write_stalled()
            && !self.damaged()
    }

    /// True if this member is the only voter: it waits for nobody.
    pub(crate) fn sole_voter(&self) -> bool {
        let (_, membership) = self.log.membership();
        let mut others = membership.voters.iter().chain(&membership.outgoing);
        membership.is_voter(self.config.member) && others.all(|m| *m == self.config.member)
    }
}
