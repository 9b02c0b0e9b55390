//! `/v1/kv/{key}`: values are raw bodies; compare-and-set is a PUT with a condition.

use super::{
    APPLIED, ApiError, Level, MODIFIED, hex, number_header, unexpected, unhex, view, write,
};
use crate::node::Node;
use axum::Json;
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use bytes::Bytes;
use holdfast_fsm::{Answer, Command, Current, rules};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadQuery {
    #[serde(default)]
    level: Level,
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PutQuery {
    /// Store only if the key holds this text.
    expected: Option<String>,
    /// Store only if the key holds these bytes.
    expected_hex: Option<String>,
    /// Store only if the key is absent.
    #[serde(default)]
    absent: bool,
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteQuery {
    pub(super) timeout_ms: Option<u64>,
}

fn not_found(key: &str) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "key_not_found",
        format!("there is no key {key} in the state that this node has applied"),
    )
}

pub(super) async fn read(
    State(node): State<Arc<Node>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<ReadQuery>, QueryRejection>,
) -> Result<impl IntoResponse, ApiError> {
    let (Path(key), Query(query)) = (path?, query?);
    rules::kv_key(key.as_bytes()).map_err(ApiError::broken)?;
    let view = view(&node, query.level, query.timeout_ms).await?;
    let found = view.kv_get(key.as_bytes())?;
    let applied = found.applied.0;
    let held = found.value.ok_or_else(|| not_found(&key).with("applied", applied))?;
    let headers = [number_header(APPLIED, applied), number_header(MODIFIED, held.modified)];
    Ok(([(CONTENT_TYPE, "application/octet-stream")], headers, held.value))
}

pub(super) async fn put(
    State(node): State<Arc<Node>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<PutQuery>, QueryRejection>,
    value: Result<Bytes, BytesRejection>,
) -> Result<impl IntoResponse, ApiError> {
    let (Path(key), Query(query), value) = (path?, query?, value?);
    let timeout_ms = query.timeout_ms;
    let key_bytes = Bytes::from(key.clone());
    let command = match condition(query)? {
        None => Command::KvPut { key: key_bytes, value },
        Some(expected) => Command::KvCas { key: key_bytes, expected, value },
    };
    let (at, answer) = write(&node, &command, timeout_ms).await?;
    match answer {
        Answer::KvStored => Ok(Json(json!({ "key": key, "index": at.index.0 }))),
        Answer::CasMissed { current } => Err(ApiError::new(
            StatusCode::PRECONDITION_FAILED,
            "cas_mismatch",
            format!("key {key} does not hold the expected value; read it and decide again"),
        )
        .with("current", render(&current))
        .with("index", at.index.0)),
        other => Err(unexpected(&other)),
    }
}

/// `None` to store unconditionally, else what the key must hold (`None` inside: nothing).
fn condition(query: PutQuery) -> Result<Option<Option<Bytes>>, ApiError> {
    match (query.expected, query.expected_hex, query.absent) {
        (None, None, false) => Ok(None),
        (None, None, true) => Ok(Some(None)),
        (Some(text), None, false) => Ok(Some(Some(Bytes::from(text)))),
        (None, Some(digits), false) => match unhex(&digits) {
            Some(bytes) => Ok(Some(Some(bytes))),
            None => Err(ApiError::invalid("expected_hex must be pairs of hexadecimal digits")),
        },
        _ => Err(ApiError::invalid("give only one of expected, expected_hex and absent")),
    }
}

fn render(current: &Current) -> Value {
    match current {
        Current::Absent => Value::Null,
        Current::Large { bytes } => json!({ "bytes": bytes }),
        Current::Value(value) => match std::str::from_utf8(value) {
            Ok(text) => json!({ "text": text }),
            Err(_) => json!({ "hex": hex(value) }),
        },
    }
}

pub(super) async fn delete(
    State(node): State<Arc<Node>>,
    path: Result<Path<String>, PathRejection>,
    query: Result<Query<DeleteQuery>, QueryRejection>,
) -> Result<impl IntoResponse, ApiError> {
    let (Path(key), Query(query)) = (path?, query?);
    let command = Command::KvDelete { key: Bytes::from(key.clone()) };
    let (at, answer) = write(&node, &command, query.timeout_ms).await?;
    match answer {
        Answer::KvDeleted => Ok(Json(json!({ "key": key, "index": at.index.0 }))),
        Answer::NotFound => Err(not_found(&key)),
        other => Err(unexpected(&other)),
    }
}
