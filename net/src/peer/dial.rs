//! Outgoing connections: one task per peer and lane, for the life of the node.

use super::fault::PeerFault;
use super::session::{self, Standing};
use super::{Peer, PeerEvent, Shared, has_cluster};
use bytes::{BufMut, BytesMut};
use holdfast_consensus::MemberId;
use holdfast_consensus::handshake::Hello;
use holdfast_consensus::message::SendLane;
use holdfast_consensus::wire::{Frame, FrameKind, encode_frame, encode_message};
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::timeout;

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
pub(super) const HANDSHAKE_WITHIN: Duration = Duration::from_secs(3);
/// A peer that takes nothing for this long is cut off: its queue is stale by then.
const WRITE_WITHIN: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Bytes of messages that are encoded and written together.
const COALESCE: usize = 256 << 10;

/// How a connection went.
enum End {
    /// It never got as far as an admission.
    Never(PeerFault),
    /// It was up, and ended.
    WasUp(MemberId),
    /// It waited for one side to get a cluster, and ended.
    Waited,
}

/// Dials for ever, with a pause that grows while nobody answers.
pub(super) async fn dial_loop(shared: Arc<Shared>, peer: Arc<Peer>, lane: SendLane) {
    let mut pause = FIRST_PAUSE;
    let mut lost: Option<MemberId> = None;
    let mut generation = shared.generation.subscribe();
    loop {
        generation.mark_unchanged();
        // While forming, one connection is enough of a sign of life.
        if lane == SendLane::Bulk && !has_cluster(&shared.me()) {
            if generation.changed().await.is_err() {
                return;
            }
            continue;
        }
        let end = connection(&shared, &peer, lane, &mut generation).await;
        let unsent = peer.outbox(lane).set_up(false);
        match end {
            End::WasUp(member) => {
                for message in unsent {
                    shared.metrics.dropped("peer_down");
                    (shared.deliver)(PeerEvent::Undelivered(member, Box::new(message)));
                }
                lost = Some(member);
                pause = FIRST_PAUSE;
            }
            End::Waited => pause = FIRST_PAUSE,
            End::Never(fault) => {
                if is_refused(&fault)
                    && let Some(member) = lost.take()
                {
                    // The process is gone, not merely slow: evidence for an early pre-vote.
                    tracing::info!(peer = %peer.at.name, "peer {} is down", peer.at.name);
                    if lane == SendLane::Urgent {
                        (shared.deliver)(PeerEvent::Reset(member));
                    }
                }
                if !is_refused(&fault) {
                    shared.complain(&peer.at.name, &fault);
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = peer.nudge(lane).notified() => {}
            changed = generation.changed() => if changed.is_err() { return },
        }
    }
}

fn is_refused(fault: &PeerFault) -> bool {
    matches!(fault, PeerFault::Io(e) if e.kind() == io::ErrorKind::ConnectionRefused)
}

async fn connect(address: &str) -> Result<TcpStream, PeerFault> {
    // Resolved at each dial: a peer that came back elsewhere is found without a restart.
    let connecting = TcpStream::connect(address);
    let stream =
        timeout(CONNECT_WITHIN, connecting).await.map_err(|_| too_late(CONNECT_WITHIN))??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

pub(super) fn too_late(after: Duration) -> PeerFault {
    PeerFault::Timeout(u64::try_from(after.as_millis()).unwrap_or(u64::MAX))
}

async fn connection(
    shared: &Arc<Shared>,
    peer: &Arc<Peer>,
    lane: SendLane,
    generation: &mut watch::Receiver<u64>,
) -> End {
    let me = shared.me();
    let opened = async {
        let mut stream = connect(&peer.at.address).await?;
        let handshake = session::dialer(&mut stream, shared.token.as_ref(), &me, lane.into());
        let (hello, standing) = timeout(HANDSHAKE_WITHIN, handshake)
            .await
            .map_err(|_| too_late(HANDSHAKE_WITHIN))??;
        if hello.name == peer.at.name {
            Ok((stream, hello, standing))
        } else {
            Err(PeerFault::WrongName {
                address: peer.at.address.clone(),
                found: hello.name,
                wanted: peer.at.name.clone(),
            })
        }
    };
    let (stream, hello, standing) = match opened.await {
        Ok(opened) => opened,
        Err(fault) => return End::Never(fault),
    };
    shared.said.forget(&peer.at.name);
    let _presence = shared.arrived(&hello, standing);
    let (reading, writing) = stream.into_split();
    match standing {
        Standing::Waiting => {
            tokio::select! {
                () = closed(reading) => {}
                _ = generation.changed() => {}
            }
            End::Waited
        }
        Standing::Admitted => {
            route(shared, peer, hello.member);
            // Nothing waits here before the queue opens.
            drop(peer.outbox(lane).set_up(true));
            tracing::debug!(peer = %hello.name, ?lane, "connected");
            let frame = frame_to(&me, &hello);
            tokio::select! {
                () = closed(reading) => {}
                _ = generation.changed() => {}
                fault = pump(shared, peer, lane, writing, frame) => {
                    shared.complain(&peer.at.name, &fault);
                }
            }
            End::WasUp(hello.member)
        }
    }
}

fn frame_to(me: &Hello, peer: &Hello) -> Frame {
    Frame {
        kind: FrameKind::Message,
        cluster: me.cluster,
        epoch: me.epoch,
        group: me.group,
        from: me.member,
        to: peer.member,
    }
}

fn route(shared: &Shared, peer: &Arc<Peer>, member: MemberId) {
    let mut routes = shared.routes.write().unwrap_or_else(PoisonError::into_inner);
    // A name has one member at a time: an older id behind this address is gone.
    routes.retain(|id, p| *id == member || p.at.name != peer.at.name);
    routes.insert(member, Arc::clone(peer));
}

/// Returns when the peer closes. The listener sends nothing after its verdict.
async fn closed(mut reading: OwnedReadHalf) {
    let mut byte = [0; 1];
    match reading.read(&mut byte).await {
        Ok(0) | Err(_) => {}
        Ok(_) => tracing::warn!("a peer sent bytes on a connection that is ours to write"),
    }
}

/// Writes what is queued until the socket fails.
async fn pump(
    shared: &Shared,
    peer: &Peer,
    lane: SendLane,
    mut writing: OwnedWriteHalf,
    frame: Frame,
) -> PeerFault {
    loop {
        let messages = peer.outbox(lane).take(COALESCE).await;
        let mut bytes = BytesMut::new();
        for message in &messages {
            let encoded = encode_message(message).and_then(|body| encode_frame(&frame, &body));
            match encoded {
                Ok(encoded) => bytes.put_slice(&encoded),
                // Bounded by the core's own limits; what exceeds the frame is dropped and counted.
                Err(e) => {
                    shared.metrics.dropped("unencodable");
                    tracing::error!(peer = %peer.at.name, "a message cannot be sent: {e}");
                }
            }
        }
        shared.metrics.sent(messages.len(), bytes.len());
        match timeout(WRITE_WITHIN, writing.write_all(&bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => return e.into(),
            Err(_) => return too_late(WRITE_WITHIN),
        }
    }
}
