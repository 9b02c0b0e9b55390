//! Who is to blame when a run is stuck: the faults that are still there, or the code. Decided from
//! ground truth, as TigerBeetle's simulator does: if some majority of voters runs, has space,
//! reaches one another and holds everything that is committed, then Raft promises progress (5.6,
//! 9.1) and nothing but the code explains why there is none.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// What is true of one voter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fact {
    /// Its name.
    pub name: String,
    /// A process runs on it and does not stand still.
    pub runs: bool,
    /// It proves too little to promise anything (R5), or refused to start over damage.
    pub held: bool,
    /// Its disk takes writes.
    pub has_space: bool,
    /// It durably holds everything that is committed, damaged entries included.
    pub holds: bool,
    /// What its log holds, as far as it is committed; empty by default.
    pub keeps: Option<RangeInclusive<u64>>,
    /// Entries of it that are damaged: others must give them back before it may lead (R15).
    pub damaged: BTreeSet<u64>,
    /// By voter: messages pass in both directions.
    pub reaches: Vec<bool>,
}

impl Fact {
    /// True if it can take part in a majority.
    const fn can_vote(&self) -> bool {
        self.runs && self.has_space && !self.held
    }

    /// True if it can read this entry.
    fn gives(&self, index: u64) -> bool {
        self.keeps.as_ref().is_some_and(|keeps| keeps.contains(&index))
            && !self.damaged.contains(&index)
    }
}

/// The judgement, with its reason in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blame {
    /// No majority could make progress.
    Faults(String),
    /// This majority could.
    Code(String),
}

/// Judges the facts about all voters (at most sixteen).
#[must_use]
pub fn blame(voters: &[Fact]) -> Blame {
    let able: Vec<usize> = (0..voters.len()).filter(|v| voters[*v].can_vote()).collect();
    let needed = voters.len() / 2 + 1;
    let names = |group: &[usize]| {
        group.iter().map(|v| voters[*v].name.as_str()).collect::<Vec<_>>().join(", ")
    };
    if able.len() < needed {
        let unable = (0..voters.len()).filter(|v| !able.contains(v));
        let why = unable.map(|v| {
            let what = match (voters[v].held, voters[v].runs) {
                (true, _) => "is held",
                (false, true) => "has no space",
                (false, false) => "does not run",
            };
            format!("{} {what}", voters[v].name)
        });
        let why = why.collect::<Vec<_>>().join(", ");
        return Blame::Faults(format!(
            "faults alone explain it: {} of {} voters are needed, {why}",
            needed,
            voters.len()
        ));
    }
    let mut connected = false;
    for mask in 0u32..1 << able.len() {
        let group: Vec<usize> =
            (0..able.len()).filter(|n| mask >> n & 1 == 1).map(|n| able[n]).collect();
        let reach = |a: usize, b: usize| voters[a].reaches.get(b).copied().unwrap_or(a == b);
        let together = group.iter().all(|a| group.iter().all(|b| reach(*a, *b)));
        if group.len() < needed || !together {
            continue;
        }
        connected = true;
        let healed = |v: usize| {
            let given = |index: &u64| group.iter().any(|other| voters[*other].gives(*index));
            voters[v].holds && voters[v].damaged.iter().all(given)
        };
        if let Some(holder) = group.iter().find(|v| healed(**v)) {
            return Blame::Code(format!(
                "nothing but the code explains it: {} run, have space and reach one another, and {} \
                 holds everything that is committed",
                names(&group),
                voters[*holder].name
            ));
        }
    }
    Blame::Faults(match connected {
        true => format!(
            "faults alone explain it: of {}, nobody in a majority that is connected holds everything \
             that is committed",
            names(&able)
        ),
        false => format!("faults alone explain it: no majority of {} is connected", names(&able)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(count: usize) -> Vec<Fact> {
        let fact = |n: usize| Fact {
            name: format!("n{}", n + 1),
            runs: true,
            has_space: true,
            holds: n == 0,
            reaches: vec![true; count],
            ..Fact::default()
        };
        (0..count).map(fact).collect()
    }

    fn excused(voters: &[Fact]) -> bool {
        matches!(blame(voters), Blame::Faults(_))
    }

    #[test]
    fn a_healthy_majority_leaves_no_excuse() {
        let mut three = voters(3);
        assert!(!excused(&three));
        three[2].runs = false;
        let Blame::Code(why) = blame(&three) else { panic!("two of three suffice") };
        assert!(why.contains("n1, n2 run") && why.contains("n1 holds"), "{why}");
        three[1].has_space = false;
        let Blame::Faults(why) = blame(&three) else { panic!("one of three cannot") };
        assert!(why.contains("n2 has no space, n3 does not run"), "{why}");
    }

    #[test]
    fn a_held_voter_is_none_and_damage_that_nobody_can_mend_is_an_excuse() {
        let mut three = voters(3);
        three[2].held = true;
        assert!(!excused(&three), "two of three suffice");
        three[0].damaged = [4, 6].into();
        assert!(excused(&three), "nobody has what n1 lost");
        three[1].keeps = Some(1..=5);
        assert!(excused(&three), "nobody has entry 6");
        three[1].keeps = Some(1..=6);
        assert!(!excused(&three), "n2 gives both back");
        three[1].damaged = [6].into();
        assert!(excused(&three), "both have lost entry 6");
        three[1].damaged.clear();
        three[1].held = true;
        let Blame::Faults(why) = blame(&three) else { panic!("one of three cannot") };
        assert!(why.contains("n2 is held, n3 is held"), "{why}");
    }

    #[test]
    fn a_majority_that_is_not_connected_or_holds_nothing_is_an_excuse() {
        let mut three = voters(3);
        for (a, b) in [(0, 1), (1, 2), (0, 2)] {
            three[a].reaches[b] = false;
        }
        assert!(excused(&three), "no two reach each other");
        three[0].reaches[1] = true;
        three[1].reaches[0] = true;
        assert!(!excused(&three));
        let mut lost = voters(3);
        lost[0].runs = false;
        assert!(excused(&lost), "only n1 holds it");
        lost[1].holds = true;
        assert!(!excused(&lost));
    }
}
