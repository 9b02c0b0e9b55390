//! What the whole cluster has done so far, as no member knows it: who led which term, what is
//! committed and since which term, and what open reads must cover. And the properties that are
//! judged by it.

use super::catalog::{Catalog, Cell, Outcome, View, number};
use crate::check::{
    Verdict, Violation, commit_safety, durability, election_safety, leader_completeness,
    log_matching, reads,
};
use std::collections::BTreeMap;

/// The history that matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ghost {
    /// Who led a term, sorted by term.
    leaders: Vec<(u64, u8)>,
    /// The committed log, each place with the term in which it was first known committed.
    committed: Vec<(Cell, u64)>,
    /// Open reads: number, and how much was committed when it came.
    reads: Vec<(u64, u64)>,
}

/// Every history met, each once.
#[derive(Debug)]
pub(super) struct Ghosts {
    all: Vec<Ghost>,
    ids: BTreeMap<Ghost, u32>,
}

impl Ghosts {
    /// A formed cluster: its first entry is committed.
    pub(super) fn new(first: Cell) -> Self {
        let mut ghosts = Self { all: Vec::new(), ids: BTreeMap::new() };
        ghosts.intern(Ghost { committed: vec![(first, 1)], ..Ghost::default() });
        ghosts
    }

    /// A history.
    pub(super) fn get(&self, id: u32) -> &Ghost {
        &self.all[id as usize]
    }

    fn intern(&mut self, ghost: Ghost) -> u32 {
        if let Some(known) = self.ids.get(&ghost) {
            return *known;
        }
        let id = number(self.all.len());
        self.all.push(ghost.clone());
        self.ids.insert(ghost, id);
        id
    }

    /// A read was asked for.
    pub(super) fn on_read(&mut self, id: u32, ticket: u32) -> u32 {
        let mut ghost = self.get(id).clone();
        let covered = ghost.committed.len() as u64;
        ghost.reads.push((u64::from(ticket), covered));
        self.intern(ghost)
    }

    /// What a member did goes into the history.
    ///
    /// # Errors
    /// Election safety (Raft figure 3), commit safety, or a read that misses what was committed
    /// before it came (dissertation 6.4).
    pub(super) fn on_outcome(
        &mut self,
        id: u32,
        member: u8,
        outcome: &Outcome,
        catalog: &Catalog,
    ) -> Result<u32, Violation> {
        if outcome.leads.is_none() && outcome.commit.is_none() && outcome.reads.is_empty() {
            return Ok(id);
        }
        let mut ghost = self.get(id).clone();
        if let Some(term) = outcome.leads {
            ghost.lead(term.0, member)?;
        }
        if let Some(through) = outcome.commit {
            let log = catalog.log(catalog.view(outcome.next).mirror);
            let count = usize::try_from(through.index.0).unwrap_or(usize::MAX);
            ghost.commit(member, &log[..count.min(log.len())], outcome.term.0)?;
        }
        for (ticket, index) in &outcome.reads {
            let at = ghost.reads.iter().position(|(t, _)| *t == ticket.0);
            let Some(at) = at else { continue };
            let (_, covers) = ghost.reads.remove(at);
            if let Some(index) = index
                && index.0 < covers
            {
                let what =
                    format!("n{member} serves a read at {index} although i{covers} was committed");
                return Err(Violation::new(reads::PROPERTY, what));
            }
        }
        Ok(self.intern(ghost))
    }
}

impl Ghost {
    /// Commands that are committed.
    #[cfg(test)]
    pub(super) fn commands(&self) -> usize {
        self.committed.iter().filter(|((_, payload), _)| (1..255).contains(payload)).count()
    }

    /// Terms that somebody led.
    #[cfg(test)]
    pub(super) fn terms_led(&self) -> usize {
        self.leaders.len()
    }

    fn lead(&mut self, term: u64, member: u8) -> Verdict {
        match self.leaders.binary_search_by_key(&term, |(t, _)| *t) {
            Ok(at) if self.leaders[at].1 != member => {
                let what = format!("both n{} and n{member} led in term {term}", self.leaders[at].1);
                Err(Violation::new(election_safety::PROPERTY, what))
            }
            Ok(_) => Ok(()),
            Err(at) => {
                self.leaders.insert(at, (term, member));
                Ok(())
            }
        }
    }

    fn commit(&mut self, member: u8, prefix: &[Cell], term: u64) -> Verdict {
        let known = self.committed.iter().map(|(cell, _)| cell);
        if let Some(at) = known.zip(prefix).position(|(a, b)| a != b) {
            let what = format!(
                "n{member} commits {} at i{}, committed before was {}",
                show(prefix[at]),
                at + 1,
                show(self.committed[at].0),
            );
            return Err(Violation::new(commit_safety::PROPERTY, what));
        }
        let news = prefix.iter().skip(self.committed.len());
        self.committed.extend(news.map(|cell| (*cell, term)));
        Ok(())
    }

    /// The properties of one state of the cluster.
    ///
    /// # Errors
    /// Log matching, leader completeness (Raft figure 3), or durability: a majority of the disks
    /// holds everything that is committed.
    pub(super) fn judge(&self, views: &[View], catalog: &Catalog) -> Verdict {
        let logs: Vec<(usize, &[Cell])> = views
            .iter()
            .enumerate()
            .flat_map(|(n, view)| [(n + 1, view.mirror), (n + 1, view.image)])
            .map(|(n, id)| (n, catalog.log(id)))
            .collect();
        for (n, (who, log)) in logs.iter().enumerate() {
            for (other, theirs) in &logs[n + 1..] {
                matching((*who, log), (*other, theirs))?;
            }
        }
        for (n, view) in views.iter().enumerate().filter(|(_, view)| view.leads > 0) {
            self.complete(n + 1, view.leads, catalog.log(view.mirror))?;
        }
        for (at, (cell, _)) in self.committed.iter().enumerate() {
            let holds = |view: &&View| catalog.log(view.image).get(at) == Some(cell);
            let held = views.iter().filter(holds).count();
            if held * 2 <= views.len() {
                let what = format!(
                    "{} at i{} is committed, but durable on {held} of {}",
                    show(*cell),
                    at + 1,
                    views.len()
                );
                return Err(Violation::new(durability::PROPERTY, what));
            }
        }
        Ok(())
    }

    fn complete(&self, who: usize, term: u64, log: &[Cell]) -> Verdict {
        let missing = self
            .committed
            .iter()
            .enumerate()
            .find(|(at, (cell, since))| *since < term && log.get(*at) != Some(cell));
        let Some((at, (cell, since))) = missing else { return Ok(()) };
        let what = format!(
            "n{who} leads term {term} without {} at i{}, committed in term {since}",
            show(*cell),
            at + 1
        );
        Err(Violation::new(leader_completeness::PROPERTY, what))
    }
}

/// Two logs that agree on a term in some place agree up to there (Raft figure 3).
fn matching((who, log): (usize, &[Cell]), (other, theirs): (usize, &[Cell])) -> Verdict {
    let mut differs = None;
    for (at, (a, b)) in log.iter().zip(theirs).enumerate() {
        if a != b {
            differs = differs.or(Some(at));
        }
        let Some(before) = differs.filter(|_| a.0 == b.0) else { continue };
        let what = format!(
            "n{who} and n{other} both hold an entry of term {} at i{}, and differ at i{}: {} and {}",
            a.0,
            at + 1,
            before + 1,
            show(log[before]),
            show(theirs[before]),
        );
        return Err(Violation::new(log_matching::PROPERTY, what));
    }
    Ok(())
}

/// A place of a log, for people.
pub(super) fn show((term, payload): Cell) -> String {
    match payload {
        0 => format!("t{term} blank"),
        255 => format!("t{term} configuration"),
        n => format!("t{term} command {n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_leaders_of_one_term_are_seen() {
        let mut ghost = Ghost::default();
        assert_eq!(ghost.lead(2, 1), Ok(()));
        assert_eq!(ghost.lead(3, 2), Ok(()));
        assert_eq!(ghost.lead(2, 1), Ok(()));
        assert_eq!(ghost.lead(2, 3).expect_err("two").property, election_safety::PROPERTY);
    }

    #[test]
    fn two_committed_entries_in_one_place_are_seen() {
        let mut ghost = Ghost::default();
        assert_eq!(ghost.commit(1, &[(1, 255), (2, 0)], 2), Ok(()));
        assert_eq!(ghost.commit(2, &[(1, 255)], 3), Ok(()));
        assert!(ghost.commit(2, &[(1, 255), (3, 0)], 3).is_err());
    }

    #[test]
    fn logs_that_meet_again_after_a_difference_are_seen() {
        let a: &[Cell] = &[(1, 255), (2, 0), (3, 1)];
        let b: &[Cell] = &[(1, 255), (2, 7), (4, 1)];
        assert!(matching((1, a), (2, b)).is_err(), "same term, other content");
        let b: &[Cell] = &[(1, 255), (1, 0), (3, 1)];
        assert!(matching((1, a), (2, b)).is_err(), "same last entry, other history");
        let b: &[Cell] = &[(1, 255), (1, 0), (1, 1), (4, 0)];
        assert_eq!(matching((1, a), (2, b)), Ok(()));
    }

    #[test]
    fn a_leader_without_what_an_older_term_committed_is_seen() {
        let ghost = Ghost { committed: vec![((1, 255), 1), ((2, 0), 2)], ..Ghost::default() };
        assert!(ghost.complete(1, 3, &[(1, 255)]).is_err());
        assert_eq!(ghost.complete(1, 2, &[(1, 255)]), Ok(()), "its own term committed it");
        assert_eq!(ghost.complete(1, 3, &[(1, 255), (2, 0), (3, 0)]), Ok(()));
    }
}
