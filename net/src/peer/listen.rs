//! Incoming connections.

use super::dial::{HANDSHAKE_WITHIN, too_late};
use super::envelope::WireLane;
use super::fault::PeerFault;
use super::frames::read_message_frame;
use super::session::{self, Standing};
use super::{PeerEvent, Shared};
use holdfast_consensus::handshake::Hello;
use holdfast_consensus::message::SendLane;
use holdfast_consensus::wire::{Frame, decode_message};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Handshakes that may be under way at once: strangers hold no more memory than these.
const HANDSHAKES_MAX: usize = 64;
/// Read buffer of a connection in bytes.
const READ_BUFFER: usize = 64 << 10;

/// Accepts for ever.
pub(super) async fn accept_loop(shared: Arc<Shared>, listener: TcpListener) {
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let Ok(place) = Arc::clone(&handshakes).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, from)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    let mut subject = from.ip().to_string();
                    if let Err(fault) = connection(&shared, stream, place, &mut subject).await
                        && fault.reason().is_some()
                    {
                        shared.complain(&subject, &fault);
                    }
                });
            }
            Err(e) => {
                // Out of file descriptors, for example: others may free some.
                tracing::warn!("the peer listener cannot accept: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(
    shared: &Arc<Shared>,
    mut stream: TcpStream,
    place: tokio::sync::OwnedSemaphorePermit,
    subject: &mut String,
) -> Result<(), PeerFault> {
    stream.set_nodelay(true)?;
    let mut generation = shared.generation.subscribe();
    let handshake = session::listener(&mut stream, shared.token.as_ref(), || shared.me());
    let (me, hello, standing, lane) =
        timeout(HANDSHAKE_WITHIN, handshake).await.map_err(|_| too_late(HANDSHAKE_WITHIN))??;
    drop(place);
    subject.clone_from(&hello.name);
    let _presence = shared.arrived(&hello, standing);
    if let Some(peer) = shared.peers.get(&hello.name) {
        // It is alive: whoever pauses between two dials dials now.
        for lane in [SendLane::Urgent, SendLane::Bulk] {
            peer.nudge(lane).notify_one();
        }
    }
    let messages = async {
        match standing {
            Standing::Waiting => wait_for_close(&mut stream).await,
            Standing::Admitted => read_messages(shared, stream, &me, &hello, lane).await,
        }
    };
    tokio::select! {
        end = messages => match end {
            Err(PeerFault::Closed) => Ok(()),
            other => other,
        },
        _ = generation.changed() => Ok(()),
    }
}

/// A waiting dialler sends nothing: the next byte is the end or a fault.
async fn wait_for_close(stream: &mut TcpStream) -> Result<(), PeerFault> {
    match stream.read_u8().await {
        Ok(_) => Err(PeerFault::Unexpected("silence before admission")),
        Err(_) => Ok(()),
    }
}

async fn read_messages(
    shared: &Shared,
    stream: TcpStream,
    me: &Hello,
    peer: &Hello,
    lane: WireLane,
) -> Result<(), PeerFault> {
    let lane = match lane {
        WireLane::Urgent => SendLane::Urgent,
        WireLane::Bulk => SendLane::Bulk,
    };
    let inbox = shared.inbox(lane);
    let mut reading = BufReader::with_capacity(READ_BUFFER, stream);
    loop {
        let (frame, body) = read_message_frame(&mut reading).await?;
        check_ids(me, peer, &frame)?;
        let message = Box::new(decode_message(&body)?);
        shared.metrics.received(body.len());
        // Bounded in bytes: while the core loop is behind, nothing more is read.
        let bytes = u32::try_from(body.len().max(1)).unwrap_or(u32::MAX);
        let permit = Arc::clone(inbox).acquire_many_owned(bytes).await;
        let Ok(permit) = permit else { return Ok(()) };
        (shared.deliver)(PeerEvent::Message { from: peer.member, message, permit });
    }
}

/// Keeps: no message of another cluster, epoch, group or member reaches the core, whatever the
/// handshake on its connection said.
fn check_ids(me: &Hello, peer: &Hello, frame: &Frame) -> Result<(), PeerFault> {
    if frame.cluster != me.cluster {
        return Err(PeerFault::WrongCluster { theirs: frame.cluster, ours: me.cluster });
    }
    let checks = [
        (frame.epoch == me.epoch, "recovery epoch"),
        (frame.group == me.group, "group"),
        (frame.from == peer.member, "sender"),
        (frame.to == me.member, "receiver"),
    ];
    match checks.iter().find(|(holds, _)| !holds) {
        Some((_, what)) => Err(PeerFault::WrongIds(what)),
        None => Ok(()),
    }
}
