//! Asking a cluster: one endpoint after the other, until one answers.

use super::{ClientArgs, Failure};
use crate::client::{Answer, Client, ClientError, authority};
use bytes::Bytes;
use hyper::{Method, StatusCode};
use std::time::{Duration, Instant};

/// Pause between two rounds over all endpoints.
const PAUSE: Duration = Duration::from_millis(100);

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
    let until = Instant::now() + args.timeout()?;
    loop {
        let mut last = String::new();
        for endpoint in &endpoints {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match one(endpoint, &ask, left).await {
                Ok(answer) if !is_harmless_refusal(&answer) => return Ok(answer),
                Ok(answer) => last = describe(&answer),
                Err(e @ ClientError::NoAnswer { .. }) if ask.method != Method::GET => {
                    return Err(Failure::environment(format!(
                        "{e}; the write may or may not have taken effect: read before trying again"
                    )));
                }
                Err(e) => last = e.to_string(),
            }
        }
        if Instant::now() + PAUSE >= until {
            let tried = endpoints.join(", ");
            let last = if last.is_empty() { "the time is up".to_owned() } else { last };
            return Err(Failure::environment(format!(
                "{last} (tried {tried}; --endpoint and --timeout change that)"
            )));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn one(endpoint: &str, ask: &Ask<'_>, left: Duration) -> Result<Answer, ClientError> {
    let mut client = Client::connect(endpoint).await?;
    if ask.method != Method::GET {
        // A process that was just killed may still accept connections for a moment. Asking for a
        // sign of life first keeps a write from having an unknown outcome there.
        let alive = client.request(Method::GET, "/livez", Bytes::new(), left).await;
        alive.map_err(|e| ClientError::Unreachable {
            endpoint: endpoint.to_owned(),
            why: e.to_string(),
        })?;
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

/// The answer if it is a success, else a failure with the exit status that fits.
pub(super) fn expect_success(answer: Answer) -> Result<Answer, Failure> {
    if answer.status.is_success() {
        return Ok(answer);
    }
    let text = describe(&answer);
    Err(if answer.status.is_server_error() || answer.status == StatusCode::TOO_MANY_REQUESTS {
        Failure::environment(text)
    } else {
        Failure::check(text)
    })
}
