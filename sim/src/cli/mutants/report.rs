//! The fates of mutants as a table for people, for the book, and as JSON.

use super::{Fate, Row, Sighting};
use holdfast_sim::mutants::Mutant;
use serde_json::{Value, json};

/// What a run came to.
pub(super) struct Report {
    /// Each mutant with its fate, by name.
    pub(super) rows: Vec<Row>,
    /// What failed without a mutant.
    pub(super) unclean: Vec<Sighting>,
    /// Seconds in all.
    pub(super) wall: f64,
}

/// One line of the table.
pub(super) fn line(mutant: &Mutant, fate: &Fate) -> String {
    let name = &mutant.name;
    match fate {
        Fate::Killed { by, expected, ranges } => {
            let seen = if *expected { String::new() } else { "seen by ".to_owned() };
            let seeds = by.seeds.map_or_else(|| "-".to_owned(), |n| n.to_string());
            format!(
                "{name:<36} killed    {:<34} {seeds:>6} {:>7.1} s  {ranges}x\n",
                format!("{seen}{}", by.property),
                by.seconds
            )
        }
        Fate::Survived { seen_in } => {
            format!(
                "{name:<36} SURVIVED  expected {} (seen in {seen_in} ranges)\n",
                mutant.properties.join(" or ")
            )
        }
        Fate::Broken(why) => format!("{name:<36} BROKEN    {why}\n"),
    }
}

fn counts(rows: &[Row]) -> [usize; 4] {
    let count = |f: &dyn Fn(&Fate) -> bool| rows.iter().filter(|row| f(&row.fate)).count();
    [
        count(&|fate| matches!(fate, Fate::Killed { expected: true, .. })),
        count(&|fate| matches!(fate, Fate::Killed { expected: false, .. })),
        count(&|fate| matches!(fate, Fate::Survived { .. })),
        count(&|fate| matches!(fate, Fate::Broken(_))),
    ]
}

impl Report {
    /// True if every one was killed, and nothing failed without them.
    pub(super) fn is_good(&self) -> bool {
        let killed = |row: &Row| matches!(row.fate, Fate::Killed { .. });
        self.rows.iter().all(killed) && self.unclean.is_empty()
    }

    /// A sentence with the counts, and what failed without a mutant.
    fn summary(&self) -> String {
        let [killed, otherwise, survived, broken] = counts(&self.rows);
        let mut text = format!(
            "{} mutants: {killed} killed, {otherwise} seen by another checker, {survived} survived, {broken} broken; {:.0} s\n",
            self.rows.len(),
            self.wall,
        );
        if self.unclean.is_empty() {
            text += "without a mutant: every property held on the same seeds\n";
        }
        for s in &self.unclean {
            text += &format!("without a mutant: {} FAILED in {}\n", s.property, s.command);
        }
        text
    }

    pub(super) fn as_table(&self) -> String {
        let mut text = format!(
            "{:<36} {:<9} {:<34} {:>6} {:>9}\n",
            "mutant", "fate", "checker", "seeds", "time"
        );
        for row in &self.rows {
            text += &line(&row.mutant, &row.fate);
        }
        text + &self.summary()
    }

    /// As the book holds it.
    pub(super) fn as_markdown(&self) -> String {
        let mut text = "| mutant | source | seen by | seeds | seconds |\n".to_owned();
        text += "|---|---|---|---|---|\n";
        for Row { mutant, fate } in &self.rows {
            let [by, seeds, seconds] = match fate {
                Fate::Killed { by, expected, .. } => {
                    let other = if *expected { "" } else { " (another was expected)" };
                    let seeds = by.seeds.map_or_else(|| "-".to_owned(), |n| n.to_string());
                    [format!("`{}`{other}", by.property), seeds, format!("{:.1}", by.seconds)]
                }
                Fate::Survived { .. } => ["**survived**".to_owned(), "-".into(), "-".into()],
                Fate::Broken(_) => ["**broken**".to_owned(), "-".into(), "-".into()],
            };
            let (name, source) = (&mutant.name, &mutant.source);
            text += &format!("| `{name}` | {source} | {by} | {seeds} | {seconds} |\n");
        }
        format!("{text}\n{}", self.summary())
    }

    pub(super) fn as_json(&self) -> Value {
        let [killed, otherwise, survived, broken] = counts(&self.rows);
        let unclean: Vec<Value> = self
            .unclean
            .iter()
            .map(|s| json!({ "property": s.property, "again": s.command }))
            .collect();
        json!({
            "mutants": self.rows.iter().map(as_object).collect::<Vec<_>>(),
            "killed": killed, "seen_by_another": otherwise, "survived": survived, "broken": broken,
            "unmutated_failures": unclean, "wall_seconds": self.wall,
        })
    }
}

fn as_object(row: &Row) -> Value {
    let mut object = json!({
        "name": row.mutant.name, "source": row.mutant.source, "what": row.mutant.what,
        "expected": row.mutant.properties,
    });
    let more = match &row.fate {
        Fate::Killed { by, expected, .. } => json!({
            "fate": "killed", "checker": by.property, "as_expected": expected,
            "seeds": by.seeds, "seconds": by.seconds, "again": by.command,
        }),
        Fate::Survived { seen_in } => json!({ "fate": "survived", "ranges": seen_in }),
        Fate::Broken(why) => json!({ "fate": "broken", "why": why }),
    };
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}
