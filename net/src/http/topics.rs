//! `/v1/topics`.

use super::kv::DeleteQuery;
use super::{APPLIED, ApiError, Level, number_header, unexpected, view, write};
use crate::clock;
use crate::node::Node;
use axum::Json;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bytes::Bytes;
use holdfast_fsm::records::{Assignment, Topic};
use holdfast_fsm::{Answer, Command, CreateTopic, DeleteTopic, ReadError, View, rules};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Topics in one page unless the caller asks for fewer.
const PAGE: usize = 1000;
/// Longest wait for owners, and the pause between two looks.
const OWNERS_WITHIN_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    after: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    level: Level,
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadQuery {
    #[serde(default)]
    level: Level,
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateQuery {
    timeout_ms: Option<u64>,
    /// Wait this long for the leader to give every partition an owner, and show them.
    owners_within_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateBody {
    name: String,
    partitions: u32,
    retention_ms: Option<u64>,
}

fn render(topic: &Topic) -> Value {
    json!({
        "name": topic.stamp.name,
        "incarnation": topic.stamp.incarnation,
        "partitions": topic.partitions,
        "retention_ms": topic.retention_ms,
        "created_at_ms": topic.created_at_ms,
    })
}

pub(super) async fn list(
    State(node): State<Arc<Node>>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<impl IntoResponse, ApiError> {
    let Query(query) = query?;
    if query.limit == Some(0) {
        return Err(ApiError::invalid("limit must be at least 1"));
    }
    let limit = query.limit.unwrap_or(PAGE).min(PAGE);
    let view = view(&node, query.level, query.timeout_ms).await?;
    let found = view.topics(query.after.as_deref(), limit)?;
    let full = found.value.len() == limit;
    let next = found.value.last().filter(|_| full).map(|t| t.stamp.name.clone());
    let topics: Vec<_> = found.value.iter().map(render).collect();
    let body = json!({ "topics": topics, "next": next, "applied": found.applied.0 });
    Ok(([number_header(APPLIED, found.applied.0)], Json(body)))
}

/// Owners of the first [`PAGE`] partitions of exactly this incarnation; a partition that has none
/// yet is not in it.
fn owners(view: &View, name: &str, incarnation: u64) -> Result<Vec<Value>, ReadError> {
    let rows = view.assignments(name, None, PAGE)?.value.into_iter();
    let render = |row: Assignment| {
        json!({
            "partition": row.partition,
            "node": row.owner.node,
            "volume": row.owner.volume.to_string(),
            "placed": row.stamp.incarnation,
            "moving_to": row.target.map(|target| target.owner.node),
        })
    };
    Ok(rows.filter(|row| row.topic.incarnation == incarnation).map(render).collect())
}

/// As [`owners`], once there are `partitions` of them, or the time is up.
async fn owners_within(
    node: &Node,
    name: &str,
    incarnation: u64,
    partitions: u32,
    within_ms: u64,
) -> Result<Vec<Value>, ApiError> {
    let wanted = PAGE.min(partitions as usize);
    let until = Instant::now() + Duration::from_millis(within_ms).min(OWNERS_WITHIN_MAX);
    loop {
        let view = node.view().ok_or_else(|| ApiError::not_ready("the store is not open"))?;
        let found = owners(view, name, incarnation)?;
        if found.len() >= wanted || Instant::now() >= until {
            return Ok(found);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

pub(super) async fn create(
    State(node): State<Arc<Node>>,
    query: Result<Query<CreateQuery>, QueryRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<impl IntoResponse, ApiError> {
    let (Query(query), body) = (query?, body?);
    // Whatever the content type says: `curl -d` sends none of ours.
    let body: CreateBody = serde_json::from_slice(&body).map_err(|e| {
        ApiError::invalid(format!(
            "the body must be {{\"name\", \"partitions\", \"retention_ms\"?}}: {e}"
        ))
    })?;
    let name = body.name.clone();
    let command = Command::CreateTopic(CreateTopic {
        name: body.name,
        partitions: body.partitions,
        retention_ms: body.retention_ms,
        created_at_ms: clock::wall_millis(),
    });
    let (at, answer) = write(&node, &command, query.timeout_ms).await?;
    match answer {
        Answer::TopicCreated { incarnation } => {
            let mut answer = json!({
                "name": name,
                "incarnation": incarnation,
                "partitions": body.partitions,
                "retention_ms": body.retention_ms,
                "index": at.index.0,
            });
            if let Some(within) = query.owners_within_ms {
                // The topic is created whether or not its owners can be shown.
                let found = owners_within(&node, &name, incarnation, body.partitions, within);
                answer["owners"] = found.await.map(Value::from).unwrap_or_default();
            }
            let body = answer;
            Ok((StatusCode::CREATED, Json(body)))
        }
        Answer::TopicExists { incarnation } => Err(ApiError::new(
            StatusCode::CONFLICT,
            "topic_exists",
            format!("topic {name} exists already; choose another name or delete it first"),
        )
        .with("incarnation", incarnation)),
        other => Err(unexpected(&other)),
    }
}

fn not_found(name: &str) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "topic_not_found",
        format!("there is no topic {name} in the state that this node has applied"),
    )
}

pub(super) async fn describe(
    State(node): State<Arc<Node>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<ReadQuery>, QueryRejection>,
) -> Result<impl IntoResponse, ApiError> {
    let (Path(name), Query(query)) = (path?, query?);
    rules::topic_name(&name).map_err(ApiError::broken)?;
    let view = view(&node, query.level, query.timeout_ms).await?;
    let found = view.topic(&name)?;
    let topic = found.value.ok_or_else(|| not_found(&name).with("applied", found.applied.0))?;
    let mut body = render(&topic);
    let incarnation = topic.stamp.incarnation;
    body["owners"] = owners(&view, &name, incarnation)?.into();
    Ok(([number_header(APPLIED, found.applied.0)], Json(body)))
}

pub(super) async fn delete(
    State(node): State<Arc<Node>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<DeleteQuery>, QueryRejection>,
) -> Result<impl IntoResponse, ApiError> {
    let (Path(name), Query(query)) = (path?, query?);
    let command = Command::DeleteTopic(DeleteTopic { name: name.clone(), incarnation: None });
    let (at, answer) = write(&node, &command, query.timeout_ms).await?;
    match answer {
        Answer::TopicDeleted { incarnation } => {
            Ok(Json(json!({ "name": name, "incarnation": incarnation, "index": at.index.0 })))
        }
        Answer::NotFound => Err(not_found(&name)),
        other => Err(unexpected(&other)),
    }
}
