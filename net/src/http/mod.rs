//! The HTTP/JSON API.
//!
//! | route | what it does |
//! |---|---|
//! | `GET /v1/topics?after=&limit=` | topics in the order of their names |
//! | `POST /v1/topics` | create: `{"name", "partitions", "retention_ms"?}` |
//! | `GET /v1/topics/{name}`, `DELETE` | one topic |
//! | `GET /v1/kv/{key}` | the raw value; `Holdfast-Modified` is the index that wrote it |
//! | `PUT /v1/kv/{key}` | store the raw body; `?expected=TEXT`, `?expected_hex=` or `?absent=true` compare first |
//! | `DELETE /v1/kv/{key}` | delete |
//! | `POST /v1/confirm` | what a proven leader knows of an incarnation: `{"kind", "name", "incarnation"}` |
//! | `GET /v1/status` | every member; `?scope=local` this one alone |
//! | `GET /livez`, `/readyz`, `/metrics` | probes and Prometheus text |
//!
//! Every read carries `Holdfast-Applied`, the index of the state that it was read from.
//! `?level=linearizable` confirms leadership first. `?timeout_ms=` bounds a write or such a read.

mod confirm;
mod error;
mod intake;
mod kv;
mod probes;
mod server;
mod status;
mod topics;

pub use error::ApiError;
pub use server::Server;
pub use status::{ClusterStatus, LocalStatus, MemberStatus, PeerView};

use crate::node::{Node, Phase};
use axum::Router;
use axum::http::{HeaderName, HeaderValue};
use axum::routing::{any, get, post};
use bytes::Bytes;
use holdfast_consensus::LogId;
use holdfast_consensus::message::Outcome;
use holdfast_fsm::rules::Rule;
use holdfast_fsm::{Answer, Command, View};
use std::sync::Arc;
use std::time::Duration;

/// Header with the applied index of the state that an answer was read from.
pub const APPLIED: &str = "holdfast-applied";
/// Header with the index of the entry that wrote a value.
pub const MODIFIED: &str = "holdfast-modified";
/// Largest request body in bytes: a value and some room for JSON.
const BODY_MAX: usize = 256 << 10;
/// Longest deadline that a caller may ask for.
const LONGEST: Duration = Duration::from_secs(300);

/// All routes.
pub fn router(node: Arc<Node>) -> Router {
    Router::new()
        .route("/v1/topics", get(topics::list).post(topics::create))
        .route("/v1/topics/{name}", get(topics::describe).delete(topics::delete))
        .route("/v1/kv/{key}", get(kv::read).put(kv::put).delete(kv::delete))
        .route("/v1/topics/", any(|| async { ApiError::broken(Rule::TopicName) }))
        .route("/v1/kv/", any(|| async { ApiError::broken(Rule::KvKey) }))
        .route("/v1/confirm", post(confirm::confirm))
        .route("/v1/status", get(status::status))
        .route("/livez", get(probes::live))
        .route("/readyz", get(probes::ready))
        .route("/metrics", get(probes::metrics))
        .fallback(|| async { ApiError::no_route() })
        .method_not_allowed_fallback(|| async { ApiError::no_method() })
        .layer(axum::middleware::from_fn(intake::intake))
        .with_state(node)
}

/// How fresh a read must be.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// What this node has applied.
    #[default]
    Local,
    /// Everything that was committed before the call.
    Linearizable,
}

fn deadline(node: &Node, timeout_ms: Option<u64>) -> Duration {
    timeout_ms.map_or(node.config().write_timeout, Duration::from_millis).min(LONGEST)
}

/// Proposes a command and returns its place and answer.
async fn write(
    node: &Node,
    command: &Command,
    timeout_ms: Option<u64>,
) -> Result<(LogId, Answer), ApiError> {
    command.validate().map_err(ApiError::broken)?;
    let bytes = command
        .encode_unique(None, node.request_id())
        .map_err(|e| ApiError::invalid(e.to_string()))?;
    refuse_if_out(node)?;
    match node.propose(bytes, deadline(node, timeout_ms)).await {
        Outcome::Committed { at, result } => match Answer::decode(&result) {
            Ok(answer) => Ok((at, answer)),
            Err(e) => Err(ApiError::internal(format!("undecodable answer of entry {at}: {e}"))),
        },
        other => Err(ApiError::from_outcome(other, true, &node.published())),
    }
}

/// A held member takes no call (R5), nor does a node without a cluster, and waiting for the deadline
/// would not change that.
fn refuse_if_out(node: &Node) -> Result<(), ApiError> {
    let published = node.published();
    if matches!(published.phase, Phase::Waiting(_)) {
        let why = "this node belongs to no cluster (`/readyz` and its log say why); ask another";
        return Err(ApiError::not_ready(why));
    }
    match published.replica.as_ref().and_then(|replica| replica.held.as_ref()) {
        Some(why) => Err(ApiError::not_ready(format!("this member is held: {why}; ask another"))),
        None => Ok(()),
    }
}

/// The view to read from, fresh enough for `level`.
async fn view(node: &Node, level: Level, timeout_ms: Option<u64>) -> Result<View, ApiError> {
    if level == Level::Linearizable {
        refuse_if_out(node)?;
        match node.barrier(deadline(node, timeout_ms)).await {
            Outcome::Ready { .. } => {}
            other => return Err(ApiError::from_outcome(other, false, &node.published())),
        }
    }
    let published = node.published();
    // A linearizable read has proved more than `serves_reads` asks for.
    let may = level == Level::Linearizable || published.serves_reads();
    match node.view() {
        Some(view) if may => Ok(view.clone()),
        _ => Err(ApiError::not_ready(published.not_ready().unwrap_or_default())),
    }
}

fn number_header(name: &'static str, value: u64) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static(name), HeaderValue::from(value))
}

/// An answer that the state machine may give to some commands, but not to this one.
fn unexpected(answer: &Answer) -> ApiError {
    match answer {
        Answer::Invalid(rule) => ApiError::broken(*rule),
        other => ApiError::internal(format!("unexpected answer {other:?}")),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Bytes> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    let digits = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(digits).collect::<Option<Vec<u8>>>().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_refuses_everything_else() {
        assert_eq!(unhex(&hex(&[0, 255, 16])).expect("good"), Bytes::from_static(&[0, 255, 16]));
        for bad in ["0", "0g", "\u{e4}\u{e4}"] {
            assert_eq!(unhex(bad), None, "{bad}");
        }
    }
}
