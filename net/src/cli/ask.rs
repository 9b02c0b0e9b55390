//! Asking a cluster: one endpoint after the other, until one answers.

use super::{ClientArgs, Failure};
use crate::client::{Answer, Client, ClientError, authority};
use crate::stderr::say;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Pause between two rounds over all endpoints.
const PAUSE: Duration = Duration::from_millis(100);
/// What an endpoint gets at least before the next one is asked, if there is another.
const SHARE_MIN: Duration = Duration::from_secs(1);
/// How long a process that takes connections may take for a sign of life, if there is another one.
const ALIVE_WITHIN: Duration = Duration::from_secs(2);
/// A person who waits for longer is told why.
const SILENT: Duration = Duration::from_secs(1);

/// A request.
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) body: Bytes,
}

impl<'a> Ask<'a> {
    pub(super) fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, body: Bytes::new() }
    }
}

/// Asks until somebody answers. What is certain to have had no effect (nobody there, or refused
/// before the log) is tried at the next endpoint until the time is up; what may have taken effect
/// is reported at once.
pub(super) async fn ask(args: &ClientArgs, ask: Ask<'_>) -> Result<Answer, Failure> {
    let endpoints = args.endpoints();
    for endpoint in &endpoints {
        authority(endpoint).map_err(|e| Failure::usage(e.to_string()))?;
    }
    let begun = Instant::now();
    let until = begun + args.timeout()?;
    let writes = ask.method != Method::GET;
    let (mut told, mut tried) = (false, BTreeSet::new());
    loop {
        let mut last = Failure::environment("the time is up");
        for (n, endpoint) in endpoints.iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let time = Share::of(left, endpoints.len() - n, writes);
            tried.insert(endpoint);
            match one(endpoint, &ask, time).await {
                Ok(answer) if !is_harmless_refusal(&answer) => return Ok(answer),
                Ok(answer) => last = refused(&answer),
                Err(e @ ClientError::NoAnswer { .. }) if writes => return Err(uncertain(&e)),
                // What somebody answered says more than that somebody else is away.
                Err(e) if last.answer.is_none() => last = Failure::environment(e.to_string()),
                Err(_) => {}
            }
        }
        if Instant::now() + PAUSE >= until {
            let tried = tried.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            last.message = format!("{last} (tried {tried}; --endpoint and --timeout change that)");
            // Whatever may have taken effect has returned above.
            let said = if writes && last.answer.is_none() { no_effect(&last) } else { last.json() };
            return Err(last.with(said));
        }
        if !told && begun.elapsed() >= SILENT {
            told = true;
            let left = until.saturating_duration_since(Instant::now()).as_secs_f64().ceil();
            say(format_args!("{last}; trying for {left} s more"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Nobody knows whether the write took effect.
fn uncertain(error: &ClientError) -> Failure {
    let failure = Failure::environment(format!(
        "{error}; the write may or may not have taken effect: read before trying again"
    ));
    let said = json!({ "code": "no_answer", "message": failure.message, "may_commit": true });
    failure.with(said)
}

/// What a program reads if a write reached nobody.
fn no_effect(failure: &Failure) -> Value {
    let mut said = failure.json();
    said["may_commit"] = false.into();
    said
}

/// The time that one endpoint gets.
#[derive(Copy, Clone)]
struct Share {
    /// For a sign of life.
    alive: Duration,
    /// For the answer.
    answer: Duration,
}

impl Share {
    /// Of what is left, with so many endpoints still to ask. A node that hangs must not use up the time
    /// of the others. A write that somebody has taken is waited for: nobody else may be asked then.
    fn of(left: Duration, endpoints: usize, writes: bool) -> Self {
        if endpoints <= 1 {
            return Self { alive: left, answer: left };
        }
        let parts = u32::try_from(endpoints).unwrap_or(u32::MAX);
        let share = (left / parts).max(SHARE_MIN).min(left);
        let answer = if writes { left } else { share };
        Self { alive: share.min(ALIVE_WITHIN), answer }
    }
}

async fn one(endpoint: &str, ask: &Ask<'_>, time: Share) -> Result<Answer, ClientError> {
    let left = time.answer;
    let mut client = Client::connect(endpoint).await?;
    if ask.method != Method::GET {
        // A process that was just killed may still accept connections for a moment. Asking for a
        // sign of life first keeps a write from having an unknown outcome there.
        let alive = client.request(Method::GET, "/livez", Bytes::new(), time.alive).await;
        let alive = alive.map_err(|e| ClientError::Unreachable {
            endpoint: endpoint.to_owned(),
            why: e.to_string(),
        })?;
        // One connection too many is answered whatever it asks.
        if is_harmless_refusal(&alive) {
            return Ok(alive);
        }
    }
    // The server gives up a little earlier, so that its own words arrive.
    let server = left.mul_f64(0.9).as_millis().max(1);
    let joint = if ask.path.contains('?') { '&' } else { '?' };
    let path = if ["/v1/kv", "/v1/topics", "/v1/confirm"].iter().any(|p| ask.path.starts_with(p)) {
        format!("{}{joint}timeout_ms={server}", ask.path)
    } else {
        ask.path.to_owned()
    };
    client.request(ask.method.clone(), &path, ask.body.clone(), left).await
}

fn is_harmless_refusal(answer: &Answer) -> bool {
    matches!(answer.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)
        && answer.json()["may_commit"] == false
}

/// An error answer in one line.
pub(super) fn describe(answer: &Answer) -> String {
    let json = answer.json();
    match (json["code"].as_str(), json["message"].as_str()) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        _ => format!("{}: {}", answer.status, String::from_utf8_lossy(&answer.body).trim()),
    }
}

/// The answer if it is a success, else the failure.
pub(super) fn expect_success(answer: Answer) -> Result<Answer, Failure> {
    if answer.status.is_success() { Ok(answer) } else { Err(refused(&answer)) }
}

/// The failure that an error answer is: exit 1 if the request itself cannot succeed as things are,
/// 3 if the cluster cannot serve now (no quorum, a full disk, too much work) and the same request may
/// succeed later.
fn refused(answer: &Answer) -> Failure {
    let text = describe(answer);
    let later = answer.status.is_server_error() || answer.status == StatusCode::TOO_MANY_REQUESTS;
    let failure = if later { Failure::environment(text) } else { Failure::check(text) };
    failure.with(answer.json())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_hangs_leaves_time_for_the_others() {
        let secs = Duration::from_secs;
        let read = Share::of(secs(10), 3, false);
        assert!(read.answer < secs(4), "{:?}", read.answer);
        let write = Share::of(secs(10), 3, true);
        assert_eq!((write.alive, write.answer), (secs(2), secs(10)));
        // The last one has all that is left, and nobody gets next to nothing.
        assert_eq!(Share::of(secs(3), 1, false).answer, secs(3));
        assert_eq!(Share::of(secs(2), 8, false).answer, secs(1));
        assert_eq!(
            Share::of(Duration::from_millis(300), 8, false).answer,
            Duration::from_millis(300)
        );
    }
}
