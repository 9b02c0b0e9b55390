//! Errors of the API: JSON with a stable `code` and a sentence for people.

use crate::node::Published;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use holdfast_consensus::event::RoleKind;
use holdfast_consensus::fault::Refusal;
use holdfast_consensus::message::Outcome;
use holdfast_fsm::ReadError;
use holdfast_fsm::rules::Rule;
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

    /// The request breaks this rule of the metastore.
    #[must_use]
    pub fn broken(rule: Rule) -> Self {
        if rule == Rule::KvValue {
            return Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", rule.to_string());
        }
        Self::invalid(rule.to_string())
    }

    /// The node may not serve yet.
    #[must_use]
    pub fn not_ready(why: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", why).with("may_commit", false)
    }

    pub(super) fn too_large() -> Self {
        let text = format!("the body is larger than {} KiB", super::BODY_MAX >> 10);
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text)
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

    /// What an outcome that is no success means to a client of a node that says `published` of
    /// itself.
    pub(super) fn from_outcome(outcome: Outcome, write: bool, published: &Published) -> Self {
        match outcome {
            Outcome::NotCommitted(refusal) => Self::refused(&refusal, write, published),
            Outcome::Unknown(refusal) if write => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "unavailable",
                format!(
                    "{refusal}; the write may still commit later: read before trying again, and expect that a create then answers topic_exists"
                ),
            )
            .with("may_commit", true),
            Outcome::Unknown(refusal) => Self::refused(&refusal, write, published),
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

    fn refused(refusal: &Refusal, write: bool, published: &Published) -> Self {
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
                unavailable(refusal, write, published),
            ),
        };
        Self::new(status, code, message).with("may_commit", false)
    }
}

/// Why a call that was certainly not carried out was not: the fault of this node where it is one,
/// else that of the cluster as this node sees it.
fn unavailable(refusal: &Refusal, write: bool, published: &Published) -> String {
    let replica = published.replica.as_ref();
    let leader = replica.and_then(|r| r.leader.map(|id| r.membership.name_of(id)));
    let leads = replica.is_some_and(|r| r.role == RoleKind::Leader);
    let why = match (published.disk_full(), leader) {
        _ if replica.is_some_and(|r| r.held.is_some()) => {
            "this member is held (`holdfast status` says why): ask another node".to_owned()
        }
        (Some(full), Some(leader)) => format!(
            "{leader} leads, but this node cannot follow: {full}; ask another node meanwhile"
        ),
        (None, Some(_)) if leads => {
            "this node leads, but no quorum answered it in time; try again".to_owned()
        }
        (None, Some(leader)) => {
            format!("{leader} leads, but this node had no answer of it in time; try again")
        }
        (_, None) => "no leader with a quorum is known here now; try again".to_owned(),
    };
    let nothing = if write { "nothing was written; " } else { "" };
    format!("{refusal}; {nothing}{why}")
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
        ApiError::too_large()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Phase;
    use holdfast_consensus::replica::ReplicaStatus;
    use holdfast_consensus::traits::Applied;
    use holdfast_consensus::{HardState, Index, LogId, MemberId, Membership};

    /// A follower of n1, with whatever `change` makes of it.
    fn follower(change: impl FnOnce(&mut ReplicaStatus)) -> Published {
        let mut replica = ReplicaStatus {
            member: MemberId(2),
            role: RoleKind::Follower,
            hard: HardState::default(),
            leader: Some(MemberId(1)),
            commit: Index(0),
            last: LogId::default(),
            durable: LogId::default(),
            proved: LogId::default(),
            first: Index(1),
            applied: Applied::default(),
            snapshot: Index(0),
            membership: Membership::of_voters([(MemberId(1), "n1".to_owned())]),
            peers: Vec::new(),
            contact: None,
            not_ready: None,
            no_space: None,
            damaged: None,
            held: None,
        };
        change(&mut replica);
        Published { phase: Phase::Running, replica: Some(replica), caught_up: true }
    }

    type Change = fn(&mut ReplicaStatus);

    fn words(write: bool, published: &Published) -> String {
        let error =
            ApiError::from_outcome(Outcome::NotCommitted(Refusal::Deadline), write, published);
        assert_eq!((error.code, &error.extra["may_commit"]), ("unavailable", &json!(false)));
        error.message
    }

    #[test]
    fn a_call_that_failed_is_blamed_on_what_failed() {
        let none = follower(|r| r.leader = None);
        assert!(words(true, &none).contains("no leader with a quorum"), "{}", words(true, &none));
        let cases: [(Change, &str); 4] = [
            (|_| {}, "n1 leads, but this node had no answer"),
            (|r| r.no_space = Some("0 bytes".into()), "the disk is full: 0 bytes; free some space"),
            (|r| r.held = Some("row P8".into()), "this member is held"),
            (|r| r.role = RoleKind::Leader, "this node leads, but no quorum answered"),
        ];
        for (change, expected) in cases {
            let text = words(false, &follower(change));
            assert!(text.contains(expected), "{text}");
            assert!(!text.contains("no leader with"), "{text}");
        }
    }

    #[test]
    fn only_a_write_is_told_that_nothing_was_written() {
        let node = follower(|_| {});
        assert!(words(true, &node).contains("nothing was written"));
        assert!(!words(false, &node).contains("written"));
    }
}
