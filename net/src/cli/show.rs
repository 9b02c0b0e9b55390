//! `holdfast status`, and tables for people.

use super::ask::{Ask, ask, expect_success};
use super::{ClientArgs, Failure, print_line};
use crate::http::ClusterStatus;

/// Kept directories shown for each member; the JSON lists more.
const KEPT_SHOWN: usize = 5;

/// Lays out rows in columns; the first row is the heading.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(super) async fn status(args: ClientArgs) -> Result<(), Failure> {
    let answer = expect_success(ask(&args, Ask::get("/v1/status")).await?)?;
    let status: ClusterStatus = serde_json::from_slice(&answer.body)
        .map_err(|e| Failure::environment(format!("the endpoint answers no status: {e}")))?;
    if args.json {
        print_line(&String::from_utf8_lossy(&answer.body));
    } else {
        print_line(&render(&status));
    }
    Ok(())
}

fn render(status: &ClusterStatus) -> String {
    let heading = [
        "NAME", "ROLE", "HEALTH", "APPLIED", "COMMIT", "LAST", "LAG", "SNAPSHOT", "DIGEST", "PID",
        "HTTP", "MEMBER",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let front = status.members.iter().filter_map(|m| m.commit).max();
    let number = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
    for m in &status.members {
        let lag = front.zip(m.applied).map(|(front, applied)| front.saturating_sub(applied));
        let digest = m.digest.as_ref().map_or("-", |d| d.get(..12).unwrap_or(d));
        rows.push(vec![
            m.name.clone(),
            m.role.clone(),
            match (&m.disk_full, m.healthy) {
                (Some(_), _) => "FULL",
                (None, true) => "ok",
                (None, false) => "BAD",
            }
            .to_owned(),
            number(m.applied),
            number(m.commit),
            number(m.last),
            number(lag),
            number(m.snapshot_index),
            digest.to_owned(),
            m.pid.map_or("-".to_owned(), |p| p.to_string()),
            m.http.clone(),
            m.member.clone(),
        ]);
    }
    let leader = status.leader.as_deref().unwrap_or("none");
    let mut text = format!("leader {leader}, term {}\n\n{}", status.term, table(&rows));
    let mut unwell: Vec<_> = status
        .members
        .iter()
        .filter_map(|m| m.reason.as_ref().map(|why| format!("\n{}: {why}", m.name)))
        .collect();
    for m in &status.members {
        for kept in m.data["kept_list"].as_array().into_iter().flatten().take(KEPT_SHOWN) {
            let part = |key: &str| kept[key].as_str().unwrap_or_default().to_owned();
            unwell.push(format!("\n{} keeps {}: {}", m.name, part("place"), part("why")));
        }
    }
    if !unwell.is_empty() {
        text.push('\n');
        text.push_str(&unwell.concat());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let row = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        let text = table(&[row("A", "B"), row("long", "x")]);
        assert_eq!(text, "A     B\nlong  x");
    }
}
