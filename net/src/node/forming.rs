//! Waiting to belong to a cluster (R7): runs before there is a replica.

use super::state::{Phase, State};
use super::{Input, NodeError};
use crate::config::Config;
use crate::peer::{PeerEvent, Peers};
use holdfast_consensus::ClusterId;
use holdfast_consensus::bootstrap::{Forming, Step};
use holdfast_consensus::fault::Refusal;
use holdfast_consensus::message::Outcome;
use holdfast_log::{Home, RealDisk};
use std::sync::mpsc::Receiver;

/// Returns true once the home belongs to a cluster, false if the node was asked to stop first.
pub(super) fn form(
    home: &mut Home<RealDisk>,
    config: &Config,
    peers: &Peers,
    state: &State,
    inbox: &Receiver<Input>,
) -> Result<bool, NodeError> {
    if home.is_formed() {
        return Ok(true);
    }
    let member = home.identity().member;
    let mut forming = Forming::new(&config.name, member, &config.forming());
    let mut step = forming.step();
    let mut said = String::new();
    loop {
        match step {
            Step::Found { membership } => {
                let mut id = [0; 16];
                crate::clock::fill_random(&mut id).map_err(NodeError::Random)?;
                let cluster = ClusterId(u128::from_le_bytes(id));
                let epoch = crate::clock::random_u64().map_err(NodeError::Random)?;
                home.found(cluster, epoch, membership.clone())?;
                tracing::info!(%cluster, "founded cluster {cluster}");
                peers.present(true, |me| {
                    (me.cluster, me.epoch, me.forming) = (cluster, epoch, None);
                    me.membership = membership;
                });
                return Ok(true);
            }
            Step::Adopt { cluster, epoch } => {
                home.adopt(cluster, epoch)?;
                tracing::info!(%cluster, "joined cluster {cluster}");
                peers.present(true, |me| {
                    (me.cluster, me.epoch, me.forming) = (cluster, epoch, None);
                });
                return Ok(true);
            }
            Step::Wait { missing } => say(state, &mut said, waiting_text(config, &missing), false),
            Step::Refuse(text) | Step::Stranger(text) => say(state, &mut said, text, true),
        }
        step = match inbox.recv() {
            Ok(Input::Peer(PeerEvent::Hello(hello))) => forming.hello(&hello),
            Ok(Input::Peer(PeerEvent::Gone(name))) => {
                forming.gone(&name);
                forming.step()
            }
            Ok(Input::Call(call)) => {
                if call
                    .reply
                    .send(Outcome::NotCommitted(Refusal::NotLeader { hint: None }))
                    .is_err()
                {
                    tracing::debug!("a caller left before the node had a cluster");
                }
                forming.step()
            }
            Ok(Input::Peer(_) | Input::Done(_) | Input::Damaged(_)) => forming.step(),
            Ok(Input::Stop) | Err(_) => return Ok(false),
        };
    }
}

fn waiting_text(config: &Config, missing: &[String]) -> String {
    if config.forming().is_empty() {
        return "this node is empty and waits for a cluster that lists it; if it had data before, stop it and put its directory back; to form a new cluster, start every member with cluster_state = \"new\"".to_owned();
    }
    let founder = config.members.first().map_or("", |m| m.name.as_str());
    if missing.is_empty() {
        format!("all members are here; waiting for {founder} to form the cluster")
    } else {
        format!("waiting for {} to form a cluster", missing.join(", "))
    }
}

/// Publishes why the node waits, and logs it when it changes.
fn say(state: &State, said: &mut String, text: String, alarming: bool) {
    if *said != text {
        state.update(|p| p.phase = Phase::Waiting(text.clone()));
        match alarming {
            true => tracing::error!("{text}"),
            false => tracing::info!("{text}"),
        }
        *said = text;
    }
}
