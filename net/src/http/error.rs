//! Errors of the API: JSON with a stable `code` and a sentence for people.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use holdfast_consensus::fault::Refusal;
use holdfast_consensus::message::Outcome;
use holdfast_fsm::ReadError;
use serde_json::{Map, Value, json};

/// An error answer.
#[derive(Clone, Debug)]
pub struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    extra: Map<String, Value>,
}

impl ApiError {
    /// An error with a status, a stable code and a sentence.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), extra: Map::new() }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(key.to_owned(), value.into());
        self
    }

    /// The request breaks a rule.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_argument", message)
    }

    /// The node may not serve yet.
    #[must_use]
    pub fn not_ready(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", why).with("may_commit", false)
    }

    /// A fault of ours.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    pub(super) fn no_route() -> Self {
        Self::new(StatusCode::NOT_FOUND, "no_such_route", "there is no such route; see /v1/status")
    }

    pub(super) fn no_method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "the route does not take this method",
        )
    }

    /// What an outcome that is no success means to a client.
    pub(super) fn from_outcome(outcome: Outcome, write: bool) -> Self {
        match outcome {
            Outcome::NotCommitted(refusal) => Self::refused(&refusal),
            Outcome::Unknown(refusal) if write => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                format!(
                    "{refusal}; the write may still commit later: read before trying again, and expect that a create then answers topic_exists"
                ),
            )
            .with("may_commit", true),
            Outcome::Unknown(refusal) => Self::refused(&refusal),
            Outcome::Committed { at, .. } => {
                Self::internal(format!("entry {at} answered a call that writes nothing"))
            }
            Outcome::Ready { applied, .. } => {
                Self::internal(format!("a read at {applied} answered a write"))
            }
            Outcome::Confirmed(confirmation) => Self::internal(format!(
                "an answer read at {} answered another call",
                confirmation.index
            )),
        }
    }

    fn refused(refusal: &Refusal) -> Self {
        let (status, code, message) = match refusal {
            Refusal::Busy => (
                StatusCode::TOO_MANY_REQUESTS,
                "busy",
                "too much work is in flight; try again in a moment".to_owned(),
            ),
            Refusal::DiskFull => (
                StatusCode::INSUFFICIENT_STORAGE,
                "disk_full",
                "the disk of the leader, or of a majority of the members, is full, and nothing was written: free \
                 some space (`holdfast status` names the members), then try again; deletes are taken as long as there is room for them"
                    .to_owned(),
            ),
            Refusal::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                "the command is larger than an entry may be".to_owned(),
            ),
            Refusal::NotVoter => (
                StatusCode::CONFLICT,
                "not_a_voter",
                "leadership can only go to a voter".to_owned(),
            ),
            Refusal::NoAnswer => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", format!("{refusal}; ask again"))
            }
            Refusal::Stopping => (
                StatusCode::SERVICE_UNAVAILABLE,
                "not_ready",
                "the node is stopping; ask another one".to_owned(),
            ),
            Refusal::NotLeader { .. } | Refusal::LostLeadership | Refusal::Deadline => (
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                format!(
                    "{refusal}: there is no leader with a quorum now; nothing was written, try again"
                ),
            ),
        };
        Self::new(status, code, message).with("may_commit", false)
    }
}

impl From<ReadError> for ApiError {
    fn from(error: ReadError) -> Self {
        Self::not_ready(error.to_string())
    }
}

impl From<axum::extract::rejection::BytesRejection> for ApiError {
    fn from(rejection: axum::extract::rejection::BytesRejection) -> Self {
        rejected(rejection.status(), rejection.body_text())
    }
}

impl From<axum::extract::rejection::QueryRejection> for ApiError {
    fn from(rejection: axum::extract::rejection::QueryRejection) -> Self {
        rejected(rejection.status(), rejection.body_text())
    }
}

impl From<axum::extract::rejection::PathRejection> for ApiError {
    fn from(rejection: axum::extract::rejection::PathRejection) -> Self {
        rejected(rejection.status(), rejection.body_text())
    }
}

fn rejected(status: StatusCode, text: String) -> ApiError {
    if status == StatusCode::PAYLOAD_TOO_LARGE {
        ApiError::new(status, "too_large", "the body is larger than 256 KiB")
    } else {
        ApiError::invalid(text)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut body = self.extra;
        body.insert("code".to_owned(), json!(self.code));
        body.insert("message".to_owned(), json!(self.message));
        (self.status, Json(Value::Object(body))).into_response()
    }
}
