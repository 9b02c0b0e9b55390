//! The ledger of acknowledged writes, and the check that demands them.
//!
//! A line with an index was acknowledged at that place of the log; a line without may or may not
//! have taken effect. For each key the acknowledged write with the highest index must have
//! survived: a node holds exactly it, or a value written by a later entry, and then that value is
//! one whose outcome was unknown.

use super::{Failure, print_line};
use crate::client::Client;
use crate::http::MODIFIED;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Connections per endpoint while checking.
const LANES: usize = 8;
/// How long an endpoint may take to catch up.
const CATCH_UP: Duration = Duration::from_secs(60);
/// Losses that are shown one by one.
const SHOWN: usize = 20;

/// One line of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    /// `put` or `create`.
    pub(super) op: String,
    /// The key, or the topic.
    pub(super) key: String,
    /// The value of a put.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<String>,
    /// The acknowledged place in the log; absent if the outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) index: Option<u64>,
}

/// The file that a run writes.
pub(super) struct Ledger {
    path: PathBuf,
    file: Mutex<BufWriter<File>>,
}

impl Ledger {
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|e| failed(path, &e))?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(BufWriter::new(file)) })
    }

    pub(super) fn write(&self, line: &Line) -> Result<(), Failure> {
        let mut text = serde_json::to_string(line).map_err(|e| failed(&self.path, &e))?;
        text.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(text.as_bytes()).map_err(|e| failed(&self.path, &e))
    }

    pub(super) fn finish(&self) -> Result<(), Failure> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.flush().map_err(|e| failed(&self.path, &e))
    }
}

fn failed(path: &Path, e: &dyn std::fmt::Display) -> Failure {
    Failure::environment(format!("{}: {e}", path.display()))
}

/// What a key or topic must be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Demand {
    /// Highest acknowledged index.
    index: u64,
    /// The value written there; `None` for a topic.
    value: Option<String>,
    /// Values whose outcome is unknown.
    unknown: BTreeSet<String>,
}

/// Demands by operation and key.
type Demands = BTreeMap<(String, String), Demand>;

fn read(path: &Path) -> Result<(Demands, u64), Failure> {
    let file = File::open(path).map_err(|e| failed(path, &e))?;
    let mut demands = Demands::new();
    let mut acknowledged = 0;
    for (number, text) in BufReader::new(file).lines().enumerate() {
        let text = text.map_err(|e| failed(path, &e))?;
        let line: Line = serde_json::from_str(&text)
            .map_err(|e| Failure::usage(format!("{} line {}: {e}", path.display(), number + 1)))?;
        acknowledged += u64::from(line.index.is_some());
        note(&mut demands, line);
    }
    demands.retain(|_, demand| demand.index > 0);
    Ok((demands, acknowledged))
}

fn note(demands: &mut Demands, line: Line) {
    let demand = demands.entry((line.op, line.key)).or_default();
    match line.index {
        Some(index) if index >= demand.index => {
            demand.index = index;
            demand.value = line.value;
        }
        Some(_) => {}
        None => demand.unknown.extend(line.value),
    }
}

/// What a node holds of a key or topic.
struct Found {
    modified: u64,
    value: Option<String>,
}

/// `None` if the demand is met, else the loss in words.
fn judge(name: &str, demand: &Demand, found: Option<&Found>) -> Option<String> {
    let Some(found) = found else {
        return Some(format!("{name}: acknowledged at {}, but absent", demand.index));
    };
    if found.modified == demand.index {
        let same = demand.value.is_none() || demand.value == found.value;
        return (!same)
            .then(|| format!("{name}: the value acknowledged at {} differs", demand.index));
    }
    if found.modified < demand.index {
        return Some(format!(
            "{name}: acknowledged at {}, but last written at {}",
            demand.index, found.modified
        ));
    }
    let attempted = found.value.as_ref().is_some_and(|value| demand.unknown.contains(value));
    (!attempted).then(|| {
        format!(
            "{name}: acknowledged at {}, but written at {} by somebody else (another run since?)",
            demand.index, found.modified
        )
    })
}

pub(super) async fn run(path: &Path, endpoints: &[String], json: bool) -> Result<(), Failure> {
    let (demands, acknowledged) = read(path)?;
    let demands = Arc::new(demands.into_iter().collect::<Vec<_>>());
    let mut lost = Vec::new();
    for endpoint in endpoints {
        let losses = endpoint_losses(endpoint, &demands).await?;
        lost.extend(losses.into_iter().map(|loss| format!("{endpoint}: {loss}")));
    }
    if json {
        let body = json!({
            "acknowledged": acknowledged,
            "checked": demands.len(),
            "endpoints": endpoints.len(),
            "lost": lost.len(),
            "losses": lost.iter().take(SHOWN).collect::<Vec<_>>(),
        });
        print_line(&body.to_string());
    } else {
        lost.iter().take(SHOWN).for_each(|loss| print_line(loss));
        print_line(&format!(
            "{acknowledged} acknowledged writes, {} keys or topics, {} endpoints: {} lost",
            demands.len(),
            endpoints.len(),
            lost.len()
        ));
    }
    if acknowledged == 0 {
        return Err(Failure::check(format!("{} holds no acknowledged write", path.display())));
    }
    if lost.is_empty() {
        Ok(())
    } else {
        Err(Failure::check(format!("{} acknowledged writes are lost", lost.len())))
    }
}

async fn endpoint_losses(
    endpoint: &str,
    demands: &Arc<Vec<((String, String), Demand)>>,
) -> Result<Vec<String>, Failure> {
    let unreachable = |e: crate::client::ClientError| Failure::environment(e.to_string());
    let mut first = Client::connect(endpoint).await.map_err(unreachable)?;
    // Afterwards this node has applied everything that was committed before.
    let path = format!("/v1/topics?limit=1&level=linearizable&timeout_ms={}", CATCH_UP.as_millis());
    let answer =
        first.request(Method::GET, &path, Bytes::new(), CATCH_UP).await.map_err(unreachable)?;
    super::ask::expect_success(answer)?;
    let mut lanes = Vec::new();
    for lane in 0..LANES {
        let (endpoint, demands) = (endpoint.to_owned(), Arc::clone(demands));
        lanes.push(tokio::spawn(async move {
            let mut client = Client::connect(&endpoint).await?;
            let mut losses = Vec::new();
            for ((op, key), demand) in demands.iter().skip(lane).step_by(LANES) {
                let found = look(&mut client, op, key).await?;
                losses.extend(judge(key, demand, found.as_ref()));
            }
            Ok::<_, crate::client::ClientError>(losses)
        }));
    }
    let mut losses = Vec::new();
    for lane in lanes {
        let lane = lane.await.map_err(|e| Failure::environment(e.to_string()))?;
        losses.extend(lane.map_err(unreachable)?);
    }
    Ok(losses)
}

async fn look(
    client: &mut Client,
    op: &str,
    key: &str,
) -> Result<Option<Found>, crate::client::ClientError> {
    let kind = if op == "create" { "topics" } else { "kv" };
    let path = format!("/v1/{kind}/{}", crate::client::escape(key));
    let answer = client.request(Method::GET, &path, Bytes::new(), CATCH_UP).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    if !answer.status.is_success() {
        return Err(crate::client::ClientError::NoAnswer {
            endpoint: path,
            why: super::ask::describe(&answer),
        });
    }
    Ok(Some(if op == "create" {
        Found { modified: answer.json()["incarnation"].as_u64().unwrap_or(0), value: None }
    } else {
        Found {
            modified: answer.number(MODIFIED).unwrap_or(0),
            value: Some(String::from_utf8_lossy(&answer.body).into_owned()),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(value: &str, index: Option<u64>) -> Line {
        Line { op: "put".into(), key: "k".into(), value: Some(value.into()), index }
    }

    fn verdict(lines: &[Line], found: Option<(u64, &str)>) -> Option<String> {
        let mut demands = Demands::new();
        lines.iter().cloned().for_each(|l| note(&mut demands, l));
        let found = found.map(|(modified, v)| Found { modified, value: Some(v.into()) });
        judge("k", &demands[&("put".to_owned(), "k".to_owned())], found.as_ref())
    }

    #[test]
    fn the_last_acknowledged_value_meets_the_demand() {
        let lines = [line("a", Some(5)), line("b", Some(9))];
        assert_eq!(verdict(&lines, Some((9, "b"))), None);
        assert!(verdict(&lines, Some((5, "a"))).is_some());
        assert!(verdict(&lines, Some((9, "a"))).is_some());
        assert!(verdict(&lines, None).is_some());
    }

    #[test]
    fn an_unknown_write_may_come_later_but_never_in_place_of_the_acknowledged_one() {
        let lines = [line("a", Some(5)), line("b", None)];
        assert_eq!(verdict(&lines, Some((5, "a"))), None);
        assert_eq!(verdict(&lines, Some((7, "b"))), None);
        assert!(verdict(&lines, Some((4, "b"))).is_some());
        assert!(verdict(&lines, Some((7, "c"))).is_some());
    }
}
