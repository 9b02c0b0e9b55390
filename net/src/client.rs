//! A small HTTP client: one keep-alive connection to one endpoint. Used by the command line and
//! by nodes that ask each other for their status.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Largest answer that is read, in bytes.
const ANSWER_MAX: usize = 64 << 20;
/// How long a connect may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// Why a request has no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The endpoint is no URL of ours.
    #[error("{0:?} is no endpoint; write http://HOST:PORT with a port from 1 to 65535")]
    Endpoint(String),
    /// Nobody answers there: the request was not sent.
    #[error("cannot reach {endpoint}: {why}")]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// What the system said.
        why: String,
    },
    /// The connection broke or the time ran out: the request may have been carried out.
    #[error("no answer from {endpoint}: {why}")]
    NoAnswer {
        /// The endpoint.
        endpoint: String,
        /// What happened.
        why: String,
    },
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Answer {
    /// A header as a number.
    #[must_use]
    pub fn number(&self, header: &str) -> Option<u64> {
        self.headers.get(header)?.to_str().ok()?.parse().ok()
    }

    /// The body as JSON; `Null` if it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Host and port of `http://HOST:PORT`.
///
/// # Errors
/// [`ClientError::Endpoint`].
pub fn authority(endpoint: &str) -> Result<&str, ClientError> {
    let rest = endpoint.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let good = |rest: &&str| match rest.rsplit_once(':') {
        Some((host, port)) => !host.is_empty() && !host.contains('/') && is_port(port),
        None => false,
    };
    rest.filter(good).ok_or_else(|| ClientError::Endpoint(endpoint.to_owned()))
}

/// A connection to one endpoint.
pub struct Client {
    endpoint: String,
    host: String,
    sender: SendRequest<Full<Bytes>>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// [`ClientError::Endpoint`] or [`ClientError::Unreachable`].
    pub async fn connect(endpoint: &str) -> Result<Self, ClientError> {
        let host = authority(endpoint)?.to_owned();
        let unreachable =
            |why: String| ClientError::Unreachable { endpoint: endpoint.to_owned(), why };
        let stream = timeout(CONNECT_WITHIN, TcpStream::connect(&host))
            .await
            .map_err(|_| unreachable("no connection within 2 s".to_owned()))?
            .map_err(|e| unreachable(e.to_string()))?;
        stream.set_nodelay(true).map_err(|e| unreachable(e.to_string()))?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|e| unreachable(e.to_string()))?;
        tokio::spawn(async move {
            if let Err(e) = connection.await {
                tracing::debug!("an HTTP connection ended: {e}");
            }
        });
        Ok(Self { endpoint: endpoint.to_owned(), host, sender })
    }

    /// Sends a request and reads the whole answer within `within`.
    ///
    /// # Errors
    /// [`ClientError::NoAnswer`], or [`ClientError::Unreachable`] if the connection is closed already; it
    /// should then be dropped.
    pub async fn request(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<Answer, ClientError> {
        let no_answer =
            |why: String| ClientError::NoAnswer { endpoint: self.endpoint.clone(), why };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.host.as_str())
            .body(Full::new(body))
            .map_err(|e| no_answer(e.to_string()))?;
        let exchange = async {
            // Closed before: not a byte of this is sent.
            self.sender.ready().await.map_err(|e| ClientError::Unreachable {
                endpoint: self.endpoint.clone(),
                why: e.to_string(),
            })?;
            let answer = self.sender.send_request(request).await;
            let (parts, body) = answer.map_err(|e| no_answer(e.to_string()))?.into_parts();
            let body = Limited::new(body, ANSWER_MAX).collect().await;
            let body = body.map_err(|e| no_answer(e.to_string()))?.to_bytes();
            Ok(Answer { status: parts.status, headers: parts.headers, body })
        };
        timeout(within, exchange)
            .await
            .unwrap_or_else(|_| Err(no_answer(format!("nothing within {} ms", within.as_millis()))))
    }
}

/// Connects, asks once, and closes.
///
/// # Errors
/// [`ClientError`].
pub async fn once(
    endpoint: &str,
    method: Method,
    path: &str,
    body: Bytes,
    within: Duration,
) -> Result<Answer, ClientError> {
    Client::connect(endpoint).await?.request(method, path, body, within).await
}

/// Escapes a path segment or query value.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_http_urls_with_a_port() {
        assert_eq!(authority("http://127.0.0.1:7600/").expect("good"), "127.0.0.1:7600");
        for bad in [
            "127.0.0.1:7600",
            "https://x:1",
            "http://x",
            "http://x:1/y",
            "http://x:99999",
            "http://x:0",
            "http://:1",
        ] {
            assert!(authority(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn everything_but_unreserved_characters_is_escaped() {
        assert_eq!(escape("a/b c-d.e~f_g"), "a%2Fb%20c-d.e~f_g");
    }
}
