//! The listener of the HTTP API. What strangers can hold of a node is bounded: connections by number,
//! and each of them by time until a whole request is there. File descriptors that they could take
//! are those that the log writes with.

use crate::metrics::Metrics;
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// How long a connection may be silent before and between requests, and how long the head of a
/// request may take.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of a connection's read buffer: no head of ours is larger.
const HEAD_MAX: usize = 32 << 10;
/// File descriptors that are left to the log, the store, the peers and whatever else a node opens.
const RESERVED: u64 = 256;
/// Connections too many that are told so at once, of the reserved ones.
const PARTINGS: usize = 32;
/// How long that may take.
const PART_WITHIN: Duration = Duration::from_secs(2);
/// A request has been sent if nothing came for so long.
const PAUSE: Duration = Duration::from_millis(50);
/// Connections that are served however few file descriptors there are.
const FEW: usize = 8;
/// What one connection too many reads.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
    connection: close\r\ncontent-length: 114\r\n\r\n\
    {\"code\":\"too_many_connections\",\"message\":\"this node has as many as http_connections allows\",\
    \"may_commit\":false}   ";

/// The HTTP API at work.
pub struct Server {
    listener: TcpListener,
    app: Router,
    metrics: Arc<Metrics>,
    places: Arc<Semaphore>,
    partings: Arc<Semaphore>,
}

impl Server {
    /// Serves `app` to at most `connections` at once, or to as many as the limit of open files
    /// leaves room for.
    #[must_use]
    pub fn new(
        listener: TcpListener,
        app: Router,
        metrics: Arc<Metrics>,
        connections: usize,
    ) -> Self {
        let places = Arc::new(Semaphore::new(allowed(connections, open_files())));
        let partings = Arc::new(Semaphore::new(PARTINGS));
        Self { listener, app, metrics, places, partings }
    }

    /// Serves until `stop`, and then until the requests under way are answered.
    pub async fn run(self, mut stop: oneshot::Receiver<()>) {
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = &mut stop => break,
            };
            match accepted {
                Ok((stream, _)) => self.take(stream, &graceful),
                Err(e) if is_of_one_connection(&e) => {}
                Err(e) => {
                    // Out of file descriptors, for example: others may free some.
                    tracing::warn!("the HTTP listener cannot accept: {e}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(self.listener);
        graceful.shutdown().await;
    }

    /// A few are told in peace, within a moment; the others what fits into an empty buffer.
    fn refuse(&self, stream: TcpStream) {
        let Ok(place) = Arc::clone(&self.partings).try_acquire_owned() else {
            if let Err(e) = stream.try_write(TOO_MANY) {
                tracing::debug!("a refused HTTP connection was not told: {e}");
            }
            return;
        };
        tokio::spawn(async move {
            match tokio::time::timeout(PART_WITHIN, part(stream)).await {
                Ok(Ok(())) => {}
                Ok(Err(e)) => tracing::debug!("a refused HTTP connection was not told: {e}"),
                Err(_) => tracing::debug!("a refused HTTP connection did not ask in time"),
            }
            drop(place);
        });
    }

    fn take(&self, stream: TcpStream, graceful: &GracefulShutdown) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            self.metrics.count("holdfast_http_refused_total", "reason", "connections");
            return self.refuse(stream);
        };
        if let Err(e) = stream.set_nodelay(true) {
            tracing::debug!("an HTTP connection keeps its delay: {e}");
        }
        let service = TowerToHyperService::new(self.app.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .max_buf_size(HEAD_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let open = Open::new(&self.metrics, place);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(e) = connection.await {
                tracing::debug!("an HTTP connection ended: {e}");
            }
            drop(open);
        });
    }
}

/// Tells a connection too many why, and closes it. The answer comes behind the request, since a client
/// takes what comes before it for a fault; and the rest is read until the client closes too, since a
/// connection that is closed with bytes unread is reset, and its answer lost (RFC 9112, section 9.6).
async fn part(mut stream: TcpStream) -> io::Result<()> {
    let (mut request, mut length, mut whole) = (vec![0; HEAD_MAX], 0, false);
    while length < HEAD_MAX && !whole {
        let read = stream.read(&mut request[length..]).await?;
        if read == 0 {
            return Ok(());
        }
        // Only what is new is searched: whoever sends byte by byte costs no more than others.
        let from = length.saturating_sub(3);
        length += read;
        whole = request[from..length].windows(4).any(|end| end == b"\r\n\r\n");
    }
    // A body comes right behind its head, or not at all.
    while matches!(tokio::time::timeout(PAUSE, stream.read(&mut request)).await, Ok(Ok(1..))) {}
    stream.write_all(TOO_MANY).await?;
    stream.shutdown().await?;
    while stream.read(&mut request).await? > 0 {}
    Ok(())
}

/// A connection that is counted for as long as it is open.
struct Open {
    metrics: Arc<Metrics>,
    _place: OwnedSemaphorePermit,
}

impl Open {
    fn new(metrics: &Arc<Metrics>, place: OwnedSemaphorePermit) -> Self {
        metrics.http_connections.fetch_add(1, Ordering::Relaxed);
        Self { metrics: Arc::clone(metrics), _place: place }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.metrics.http_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// True if only the connection that was to be accepted has failed.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// How many connections are served of those that the configuration allows.
fn allowed(wanted: usize, files: Option<u64>) -> usize {
    // More than a semaphore counts: it would panic.
    let wanted = wanted.min(Semaphore::MAX_PERMITS);
    let Some(files) = files else { return wanted };
    let room = usize::try_from(files.saturating_sub(RESERVED)).unwrap_or(usize::MAX).max(FEW);
    if room < wanted {
        tracing::warn!(
            "the process may have {files} files open, which leaves {room} HTTP connections of the \
             {wanted} that http_connections allows; raise the limit (`ulimit -n`, or LimitNOFILE of \
             the service)"
        );
    }
    wanted.min(room)
}

/// How many files this process may have open, after asking for as many as it may ask for. `None` if
/// there is no limit.
fn open_files() -> Option<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(e) => {
            tracing::debug!("the limit of open files stays as it is: {e}");
            limit.current
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_one_connection_too_many_is_whole() {
        let text = std::str::from_utf8(TOO_MANY).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        let said: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(
            (&said["code"], &said["may_commit"]),
            (&"too_many_connections".into(), &false.into())
        );
    }

    #[test]
    fn connections_leave_file_descriptors_to_the_log() {
        assert_eq!(allowed(512, None), 512);
        assert_eq!(
            Semaphore::new(allowed(usize::MAX, None)).available_permits(),
            Semaphore::MAX_PERMITS
        );
        assert_eq!(allowed(512, Some(1 << 20)), 512);
        assert_eq!(allowed(2000, Some(1024)), 768);
        assert_eq!(allowed(512, Some(100)), FEW);
    }
}
