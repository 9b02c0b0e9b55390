//! The transport between peers: framed, checksummed, bounded, authenticated.
//!
//! Every node dials every other one twice, once per lane, so that a vote or a heartbeat never
//! waits behind a snapshot or a batch of entries. Messages flow from dialler to listener only;
//! answers come back on the connections that the other side dials. Addresses are hints: they are
//! resolved again at each dial, and who is there is decided by the handshake alone.

pub mod auth;
mod dial;
pub mod envelope;
pub mod fault;
pub mod frames;
mod listen;
pub mod queue;
#[cfg(test)]
mod samples;
mod session;
mod table;

pub use table::Seen;

use crate::metrics::Metrics;
use crate::vital::vital;
use auth::Token;
use fault::Said;
use holdfast_consensus::handshake::Hello;
use holdfast_consensus::message::{Message, SendLane};
use holdfast_consensus::{ClusterId, MemberId};
use queue::{Outbox, Pushed};
use session::Standing;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use table::Table;
use tokio::net::TcpListener;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

/// Bytes that may wait for one peer in the urgent lane.
const URGENT_BYTES: usize = 4 << 20;
/// Bytes that may wait for one peer in the bulk lane; above the core's window for one peer.
const BULK_BYTES: usize = 32 << 20;
/// Bytes of received messages that the core loop has not taken yet, for each lane; beyond it
/// the connections are not read, which pushes back on the senders.
const INBOX_BYTES: usize = 64 << 20;

/// What the transport tells the node.
pub enum PeerEvent {
    /// A peer presented itself on a new connection.
    Hello(Box<Hello>),
    /// The last connection with a peer of this name ended.
    Gone(String),
    /// A message from an admitted member.
    Message {
        /// The sender.
        from: MemberId,
        /// The message.
        message: Box<Message>,
        /// Its share of the inbox; dropped when the message has been taken.
        permit: OwnedSemaphorePermit,
    },
    /// A message that waited for this member and was never sent.
    Undelivered(MemberId, Box<Message>),
    /// A peer's host refused a reconnect after a connection ended.
    Reset(MemberId),
}

/// Where [`PeerEvent`]s go. Called from many tasks; must not block.
pub type Deliver = Arc<dyn Fn(PeerEvent) + Send + Sync>;

/// A peer as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// Its node name.
    pub name: String,
    /// Host and port of its peer listener.
    pub address: String,
}

/// One configured peer with its outgoing queues.
struct Peer {
    at: PeerAddress,
    urgent: Outbox,
    bulk: Outbox,
    /// Dial now: the peer was just seen alive.
    nudge: [Notify; 2],
}

impl Peer {
    fn outbox(&self, lane: SendLane) -> &Outbox {
        match lane {
            SendLane::Urgent => &self.urgent,
            SendLane::Bulk => &self.bulk,
        }
    }

    fn nudge(&self, lane: SendLane) -> &Notify {
        match lane {
            SendLane::Urgent => &self.nudge[0],
            SendLane::Bulk => &self.nudge[1],
        }
    }
}

/// What all connections share.
struct Shared {
    me: RwLock<Hello>,
    /// Rises when connections must introduce themselves again.
    generation: watch::Sender<u64>,
    token: Option<Token>,
    peers: BTreeMap<String, Arc<Peer>>,
    routes: RwLock<BTreeMap<MemberId, Arc<Peer>>>,
    seen: RwLock<Table>,
    inbox: [Arc<Semaphore>; 2],
    deliver: Deliver,
    metrics: Arc<Metrics>,
    said: Said,
}

impl Shared {
    fn me(&self) -> Hello {
        self.me.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn inbox(&self, lane: SendLane) -> &Arc<Semaphore> {
        match lane {
            SendLane::Urgent => &self.inbox[0],
            SendLane::Bulk => &self.inbox[1],
        }
    }

    /// Says once per change why a connection with `subject` did not come about, and counts it.
    fn complain(&self, subject: &str, fault: &fault::PeerFault) {
        if let Some(reason) = fault.reason() {
            self.metrics.peer_rejected(reason);
        }
        let text = fault.to_string();
        if self.said.is_news(subject, &text) {
            tracing::warn!(peer = subject, "no connection with peer {subject}: {text}");
        }
    }

    /// Notes a connection with a peer; the guard's drop notes its end. An empty process that no
    /// configuration lists is told of in the log and otherwise left out of account.
    fn arrived(self: &Arc<Self>, hello: &Hello, standing: Standing) -> Presence {
        let me = self.me();
        // Under a subject of its own: complaints about the member of that name are other news.
        let subject = format!("{} (empty)", hello.name);
        match stranger(&me, hello) {
            Some(text) if self.said.is_news(&subject, &text) => tracing::warn!("{text}"),
            Some(_) => {}
            None => self.said.forget(&subject),
        }
        let listed = me.membership.names.contains_key(&hello.member);
        let known = standing == Standing::Admitted || listed || !has_cluster(&me);
        self.seen.write().unwrap_or_else(PoisonError::into_inner).arrived(hello, known);
        (self.deliver)(PeerEvent::Hello(Box::new(hello.clone())));
        Presence { shared: Arc::clone(self), name: hello.name.clone(), member: hello.member }
    }
}

/// What to say of an empty process that presents itself to a member: `None` if it is one of those
/// that the configuration lists, as while a cluster forms.
fn stranger(me: &Hello, peer: &Hello) -> Option<String> {
    if !has_cluster(me) || has_cluster(peer) || me.membership.names.is_empty() {
        return None;
    }
    let Hello { name, member, http, .. } = peer;
    if me.membership.names.contains_key(member) {
        return None;
    }
    let known = me.membership.names.iter().find(|(_, n)| *n == name);
    Some(match known {
        Some((known, _)) => format!(
            "an empty process calls itself {name} (member id {member}, {http}), but {name} is member {known}: it is \
             kept out. If the data directory of {name} was lost or emptied, put it back; this version cannot \
             replace a member"
        ),
        None => format!(
            "an empty process calls itself {name} (member id {member}, {http}), and this cluster has no such member: \
             it is kept out; this version cannot add members"
        ),
    })
}

/// Lives as long as a connection with a peer that has presented itself.
struct Presence {
    shared: Arc<Shared>,
    name: String,
    member: MemberId,
}

impl Drop for Presence {
    fn drop(&mut self) {
        let last = {
            let mut seen = self.shared.seen.write().unwrap_or_else(PoisonError::into_inner);
            seen.gone(&self.name, self.member)
        };
        if last {
            (self.shared.deliver)(PeerEvent::Gone(self.name.clone()));
        }
    }
}

/// The transport of one node. Cheap to clone.
#[derive(Clone)]
pub struct Peers {
    shared: Arc<Shared>,
}

impl Peers {
    /// Starts listening on `listener` and dialling `peers`, presenting `me`. Must be called
    /// inside a tokio runtime; tasks end with the runtime.
    #[must_use]
    pub fn start(
        listener: TcpListener,
        me: Hello,
        peers: Vec<PeerAddress>,
        token: Option<Token>,
        metrics: Arc<Metrics>,
        deliver: Deliver,
    ) -> Self {
        let peers: BTreeMap<_, _> = peers
            .into_iter()
            .filter(|at| at.name != me.name)
            .map(|at| {
                let peer = Peer {
                    urgent: Outbox::new(URGENT_BYTES),
                    bulk: Outbox::new(BULK_BYTES),
                    nudge: [Notify::new(), Notify::new()],
                    at: at.clone(),
                };
                (at.name, Arc::new(peer))
            })
            .collect();
        let shared = Arc::new(Shared {
            me: RwLock::new(me),
            generation: watch::Sender::new(0),
            token,
            peers,
            routes: RwLock::default(),
            seen: RwLock::default(),
            inbox: [Arc::new(Semaphore::new(INBOX_BYTES)), Arc::new(Semaphore::new(INBOX_BYTES))],
            deliver,
            metrics,
            said: Said::default(),
        });
        vital("peer listener", listen::accept_loop(Arc::clone(&shared), listener));
        for peer in shared.peers.values() {
            for lane in [SendLane::Urgent, SendLane::Bulk] {
                let dialing = dial::dial_loop(Arc::clone(&shared), Arc::clone(peer), lane);
                vital("connection to a peer", dialing);
            }
        }
        Self { shared }
    }

    /// Queues a message, or counts it and gives it back: it was not sent and will not be.
    ///
    /// # Errors
    /// The message, if the queue is full or nobody is connected.
    pub fn send(&self, to: MemberId, message: Message, lane: SendLane) -> Result<(), Box<Message>> {
        let routes = self.shared.routes.read().unwrap_or_else(PoisonError::into_inner);
        let pushed = match routes.get(&to) {
            Some(peer) => peer.outbox(lane).push(message),
            None => Pushed::Down(message),
        };
        let (reason, message) = match pushed {
            Pushed::Queued => return Ok(()),
            Pushed::Full(message) => ("peer_queue_full", message),
            Pushed::Down(message) => ("peer_down", message),
        };
        self.shared.metrics.dropped(reason);
        Err(Box::new(message))
    }

    /// Changes what this node says of itself on new connections. With `again`, the present ones
    /// are closed, so that every peer hears it now.
    pub fn present(&self, again: bool, change: impl FnOnce(&mut Hello)) {
        change(&mut self.shared.me.write().unwrap_or_else(PoisonError::into_inner));
        if again {
            self.shared.generation.send_modify(|generation| *generation += 1);
        }
    }

    /// What this node says of itself.
    #[must_use]
    pub fn me(&self) -> Hello {
        self.shared.me()
    }

    /// Every peer that has presented itself since the start, by name; see [`Seen`].
    #[must_use]
    pub fn seen(&self) -> BTreeMap<String, Seen> {
        self.shared.seen.read().unwrap_or_else(PoisonError::into_inner).all()
    }

    /// Bytes that wait to be sent, by peer name: urgent, bulk.
    #[must_use]
    pub fn queued(&self) -> Vec<(String, usize, usize)> {
        let peers = self.shared.peers.iter();
        peers.map(|(name, p)| (name.clone(), p.urgent.bytes(), p.bulk.bytes())).collect()
    }
}

/// True if only this machine can reach a listener at `address`.
#[must_use]
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().is_loopback()
}

fn has_cluster(hello: &Hello) -> bool {
    hello.cluster != ClusterId::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_consensus::Membership;

    /// Of a member of a cluster of three.
    fn hello(name: &str, member: u64, cluster: u128) -> Hello {
        let voters = ["n1", "n2", "n3"].map(str::to_owned);
        let voters = (1..=3).map(MemberId).zip(voters);
        let hello =
            Hello { http: "http://127.0.0.1:9".into(), ..samples::hello(name, member, cluster) };
        if cluster == 0 {
            return hello;
        }
        Hello { membership: Membership::of_voters(voters), ..hello }
    }

    #[test]
    fn only_an_empty_process_that_no_configuration_lists_is_a_stranger() {
        let me = hello("n1", 1, 7);
        let text = stranger(&me, &hello("n2", 9, 0)).expect("an emptied directory");
        for part in ["n2", &MemberId(9).to_string(), &MemberId(2).to_string(), "put it back"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = stranger(&me, &hello("n4", 9, 0)).expect("an unknown name");
        assert!(text.contains("no such member"), "{text}");
        // The members of a cluster that forms, and everybody as seen by an empty node.
        assert_eq!(stranger(&me, &hello("n2", 2, 0)), None);
        assert_eq!(stranger(&me, &hello("n2", 2, 7)), None);
        assert_eq!(stranger(&hello("n1", 1, 0), &hello("n2", 9, 0)), None);
    }
}
