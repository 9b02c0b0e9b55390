//! Who is to blame when a run is stuck: the faults that are still there, or the code. Decided from
//! ground truth, as TigerBeetle's simulator does: if some majority of voters runs, has space,
//! reaches one another and holds everything that is committed, then Raft promises progress (5.6,
//! 9.1) and nothing but the code explains why there is none.

/// What is true of one voter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fact {
    /// Its name.
    pub name: String,
    /// A process runs on it and does not stand still.
    pub runs: bool,
    /// Its disk takes writes.
    pub has_space: bool,
    /// It durably holds everything that is committed.
    pub holds: bool,
    /// By voter: messages pass in both directions.
    pub reaches: Vec<bool>,
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
    let able: Vec<usize> =
        (0..voters.len()).filter(|v| voters[*v].runs && voters[*v].has_space).collect();
    let needed = voters.len() / 2 + 1;
    let names = |group: &[usize]| {
        group.iter().map(|v| voters[*v].name.as_str()).collect::<Vec<_>>().join(", ")
    };
    if able.len() < needed {
        let unable = (0..voters.len()).filter(|v| !able.contains(v));
        let why = unable.map(|v| {
            let what = if voters[v].runs { "has no space" } else { "does not run" };
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
        if let Some(holder) = group.iter().find(|v| voters[**v].holds) {
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
