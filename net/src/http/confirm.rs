//! `/v1/confirm`: what is known for certain of an incarnation, for brokers in any language that
//! are about to destroy something because of metadata.
//!
//! An answer is definite or none. *Gone* needs the word of a leader that proved itself and a second
//! look at this node's own state, which must hold the same tombstone; *live* needs the leader's
//! word. Everything else is *unknown*, with a reason: keep the data and ask again (SCENARIOS 5).

use super::{ApiError, deadline};
use crate::node::Node;
use axum::Json;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use bytes::Bytes;
use holdfast_consensus::ClusterId;
use holdfast_consensus::message::{Confirmation, Outcome};
use holdfast_fsm::guard::inquiry::{Question, Reply};
use holdfast_fsm::guard::{Claim, Keep, Verdict, local};
use holdfast_fsm::records::{ResourceKind, Stamp};
use holdfast_fsm::{Held, Trust, View};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfirmQuery {
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfirmBody {
    kind: String,
    name: String,
    incarnation: u64,
    /// Cluster and state epoch of the stamp in hexadecimal; those of now if they are absent.
    cluster: Option<String>,
    epoch: Option<String>,
}

/// No definite answer, and why.
fn unknown(why: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unknown", why).with("verdict", "unknown")
}

fn kept(keep: &Keep) -> ApiError {
    unknown(keep.to_string()).with("reason", keep.code())
}

pub(super) async fn confirm(
    State(node): State<Arc<Node>>,
    query: Result<Query<ConfirmQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<Value>, ApiError> {
    let (Query(query), body) = (query?, body?);
    let body: ConfirmBody = serde_json::from_slice(&body).map_err(|e| {
        ApiError::invalid(format!("the body must be {{\"kind\", \"name\", \"incarnation\"}}: {e}"))
    })?;
    let not_open = || node.published().not_ready().unwrap_or_default();
    let view = node.view().ok_or_else(|| unknown(not_open()).with("may_commit", false))?;
    let held = view.held().map_err(|e| unknown(e.to_string()).with("may_commit", false))?;
    let claim = Claim::Gone(stamp(body, &held)?);
    let question = Question {
        cluster: held.cluster,
        epoch: held.state_epoch,
        asker: node.member(),
        nonce: node.nonce(),
        claim,
    };
    let bytes = question.encode().map_err(|keep| ApiError::invalid(keep.to_string()))?;
    let outcome = node.confirm(bytes, deadline(&node, query.timeout_ms)).await;
    let answered = judge(view, &question, &outcome);
    node.metrics().count(
        "holdfast_confirmations_total",
        "verdict",
        match &answered {
            Ok((_, Verdict::Gone { .. })) => "gone",
            Ok(_) => "live",
            Err(_) => "unknown",
        },
    );
    let (said, verdict) = answered?;
    Ok(Json(render(&node, question.claim.subject(), &said, &verdict)))
}

/// The stamp that is asked about.
fn stamp(body: ConfirmBody, held: &Held) -> Result<Stamp, ApiError> {
    let kind = [ResourceKind::Topic, ResourceKind::Attachment, ResourceKind::Move]
        .into_iter()
        .find(|kind| kind.word() == body.kind);
    let kind = kind.ok_or_else(|| {
        ApiError::invalid(format!("kind: {:?} is not topic, attachment or move", body.kind))
    })?;
    let bad = |key: &str, text: &str| ApiError::invalid(format!("{key}: {text:?} is no hex id"));
    let cluster = match &body.cluster {
        None => held.cluster,
        Some(text) => {
            u128::from_str_radix(text, 16).map(ClusterId).map_err(|_| bad("cluster", text))?
        }
    };
    let epoch = match &body.epoch {
        None => held.state_epoch,
        Some(text) => u64::from_str_radix(text, 16).map_err(|_| bad("epoch", text))?,
    };
    Ok(Stamp { cluster, epoch, group: 0, kind, name: body.name, incarnation: body.incarnation })
}

/// The definite verdict, if there is one.
fn judge(
    view: &View,
    question: &Question,
    outcome: &Outcome,
) -> Result<(Confirmation, Verdict), ApiError> {
    let said = match outcome {
        Outcome::Confirmed(said) => said,
        Outcome::NotCommitted(why) | Outcome::Unknown(why) => {
            return Err(unknown(format!("the leader gave no answer: {why}"))
                .with("reason", "no-answer")
                .with("may_commit", false));
        }
        Outcome::Committed { .. } | Outcome::Ready { .. } => {
            return Err(ApiError::internal("a question was answered with something else"));
        }
    };
    let reply = Reply::decode(&said.answer).map_err(|keep| kept(&keep))?;
    if reply.to != *question {
        return Err(kept(&Keep::StrangeReply));
    }
    match reply.verdict {
        Verdict::Gone { .. } => agrees(view, question, &reply.verdict)?,
        Verdict::Live { .. } => {}
        Verdict::Moved { .. } | Verdict::Unknown => return Err(kept(&Keep::LeaderUnknown)),
    }
    Ok((said.clone(), reply.verdict))
}

/// The own state, read again behind the answer, must hold the same tombstone.
fn agrees(view: &View, question: &Question, verdict: &Verdict) -> Result<(), ApiError> {
    let evidence = view.evidence(&question.claim).map_err(|e| unknown(e.to_string()))?;
    let trusted = match evidence.trust {
        Trust::Walked => Ok(()),
        Trust::Unwalked => Err(Keep::Unwalked),
        Trust::Rebuilt => Err(Keep::Rebuilt),
    };
    trusted.map_err(|keep| kept(&keep).with("may_commit", false))?;
    match local::judge(&question.claim, &evidence) {
        Ok(mine) if mine == *verdict => Ok(()),
        Ok(_) => Err(kept(&Keep::Disagreement)),
        Err(keep) => Err(kept(&keep)),
    }
}

fn render(node: &Node, stamp: &Stamp, said: &Confirmation, verdict: &Verdict) -> Value {
    let leader = match &node.published().replica {
        Some(replica) => replica.membership.name_of(said.leader),
        None => said.leader.to_string(),
    };
    let mut body = json!({
        "verdict": "live",
        "kind": stamp.kind.word(),
        "name": stamp.name,
        "incarnation": stamp.incarnation,
        "leader": leader,
        "term": said.term.0,
        "index": said.index.0,
    });
    if let Verdict::Gone { deleted_at } = verdict {
        body["verdict"] = "gone".into();
        body["deleted_at"] = (*deleted_at).into();
    }
    body
}
