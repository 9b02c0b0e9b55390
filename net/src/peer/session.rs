//! The two sides of the handshake, on any stream.

use super::auth::{Nonces, Side, Token, fresh_nonce, prove, verify};
use super::envelope::{Envelope, Verdict, WireLane};
use super::fault::PeerFault;
use super::frames::{read_envelope, write_envelope};
use holdfast_consensus::codec;
use holdfast_consensus::handshake::{Hello, HelloRefusal, PROTOCOL_VERSION, admit};
use tokio::io::{AsyncRead, AsyncWrite};

/// How a handshake ended well.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Messages may flow.
    Admitted,
    /// One of the two has no cluster yet: the connection stays open as a sign of life.
    Waiting,
}

/// What both sides think of each other. Keeps: no message flows unless [`admit`] holds here.
fn judge(me: &Hello, peer: &Hello) -> Result<Standing, HelloRefusal> {
    match admit(me, peer) {
        Ok(()) => Ok(Standing::Admitted),
        Err(HelloRefusal::Empty { .. }) => Ok(Standing::Waiting),
        Err(refusal) => Err(refusal),
    }
}

fn hello_envelope(
    token: Option<&Token>,
    side: Side,
    nonces: &Nonces,
    me: &Hello,
    lane: WireLane,
) -> Result<Envelope, PeerFault> {
    let hello = codec::encode("hello", me)?;
    Ok(Envelope::Hello { proof: prove(token, side, nonces, &hello), hello, lane })
}

/// The side that dialled. Returns the listener's hello and the standing.
pub(super) async fn dialer<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    token: Option<&Token>,
    me: &Hello,
    lane: WireLane,
) -> Result<(Hello, Standing), PeerFault> {
    let nonce = fresh_nonce()?;
    write_envelope(stream, &Envelope::Open { protocol: PROTOCOL_VERSION, nonce }).await?;
    let listener = match read_envelope(stream).await? {
        Envelope::Challenge { nonce } => nonce,
        other => return Err(refusal_in(other, "a challenge")),
    };
    let nonces = Nonces { dialer: nonce, listener };
    let proof = prove(token, Side::Dialer, &nonces, b"");
    write_envelope(stream, &Envelope::Prove { proof }).await?;
    let peer = match read_envelope(stream).await? {
        Envelope::Hello { proof, hello, .. } => {
            if !verify(token, Side::Listener, &nonces, &hello, &proof) {
                return Err(PeerFault::Unproved);
            }
            codec::decode::<Hello>("hello", &hello)?
        }
        other => return Err(refusal_in(other, "a hello")),
    };
    write_envelope(stream, &hello_envelope(token, Side::Dialer, &nonces, me, lane)?).await?;
    let theirs = match read_envelope(stream).await? {
        Envelope::Verdict(Verdict::Admitted) => Standing::Admitted,
        Envelope::Verdict(Verdict::Waiting) => Standing::Waiting,
        // Our own judgement names the peer and the remedy from this side; theirs names us.
        other => {
            judge(me, &peer).map_err(PeerFault::Refused)?;
            return Err(refusal_in(other, "a verdict"));
        }
    };
    let ours = judge(me, &peer).map_err(PeerFault::Refused)?;
    // Both looked at the same two hellos, so they agree unless a build is at fault.
    if ours == theirs { Ok((peer, ours)) } else { Err(PeerFault::Unexpected("the same verdict")) }
}

fn refusal_in(envelope: Envelope, wanted: &'static str) -> PeerFault {
    match envelope {
        Envelope::Verdict(Verdict::Unproved) => PeerFault::Unproved,
        Envelope::Verdict(Verdict::Protocol { ours }) => PeerFault::Protocol { theirs: ours },
        Envelope::Verdict(Verdict::Refused(refusal)) => PeerFault::RefusedByPeer(refusal),
        _ => PeerFault::Unexpected(wanted),
    }
}

/// The side that accepted. Returns the dialler's hello, the standing and the lane.
pub(super) async fn listener<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    token: Option<&Token>,
    me: impl Fn() -> Hello,
) -> Result<(Hello, Hello, Standing, WireLane), PeerFault> {
    let dialer = match read_envelope(stream).await? {
        Envelope::Open { protocol, nonce } if protocol == PROTOCOL_VERSION => nonce,
        Envelope::Open { protocol, .. } => {
            let verdict = Verdict::Protocol { ours: PROTOCOL_VERSION };
            write_envelope(stream, &Envelope::Verdict(verdict)).await?;
            return Err(PeerFault::Protocol { theirs: protocol });
        }
        _ => return Err(PeerFault::Unexpected("an opening")),
    };
    let nonce = fresh_nonce()?;
    write_envelope(stream, &Envelope::Challenge { nonce }).await?;
    let nonces = Nonces { dialer, listener: nonce };
    match read_envelope(stream).await? {
        Envelope::Prove { proof } if verify(token, Side::Dialer, &nonces, b"", &proof) => {}
        Envelope::Prove { .. } => return unproved(stream).await,
        _ => return Err(PeerFault::Unexpected("a proof")),
    }
    let me = me();
    let mine = hello_envelope(token, Side::Listener, &nonces, &me, WireLane::Urgent)?;
    write_envelope(stream, &mine).await?;
    let (peer, lane) = match read_envelope(stream).await? {
        Envelope::Hello { proof, hello, lane } => {
            if !verify(token, Side::Dialer, &nonces, &hello, &proof) {
                return unproved(stream).await;
            }
            (codec::decode::<Hello>("hello", &hello)?, lane)
        }
        _ => return Err(PeerFault::Unexpected("a hello")),
    };
    let standing = match judge(&me, &peer) {
        Ok(standing) => standing,
        Err(refusal) => {
            let verdict = Verdict::Refused(refusal.clone());
            write_envelope(stream, &Envelope::Verdict(verdict)).await?;
            return Err(PeerFault::Refused(refusal));
        }
    };
    let verdict = match standing {
        Standing::Admitted => Verdict::Admitted,
        Standing::Waiting => Verdict::Waiting,
    };
    write_envelope(stream, &Envelope::Verdict(verdict)).await?;
    Ok((me, peer, standing, lane))
}

async fn unproved<S: AsyncRead + AsyncWrite + Unpin, T>(stream: &mut S) -> Result<T, PeerFault> {
    write_envelope(stream, &Envelope::Verdict(Verdict::Unproved)).await?;
    Err(PeerFault::Unproved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::samples::hello;

    type Ends = (
        Result<(Hello, Standing), PeerFault>,
        Result<(Hello, Hello, Standing, WireLane), PeerFault>,
    );

    async fn meet(a: Hello, token_a: Option<&str>, b: Hello, token_b: Option<&str>) -> Ends {
        let parse = |t: Option<&str>| t.map(|t| Token::parse(t).expect("long enough"));
        let (token_a, token_b) = (parse(token_a), parse(token_b));
        let (mut near, mut far) = tokio::io::duplex(1 << 16);
        let dial = async move {
            let end = dialer(&mut near, token_a.as_ref(), &a, WireLane::Bulk).await;
            drop(near);
            end
        };
        let accept = async move { listener(&mut far, token_b.as_ref(), || b.clone()).await };
        tokio::join!(dial, accept)
    }

    const LONG: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210";

    #[tokio::test]
    async fn members_of_one_cluster_meet_with_and_without_a_token() {
        for token in [None, Some(LONG)] {
            let (a, b) = meet(hello("a", 1, 9), token, hello("b", 2, 9), token).await;
            let (peer, standing) = a.expect("dialler is content");
            assert_eq!((peer.name.as_str(), standing), ("b", Standing::Admitted));
            let (_, peer, standing, lane) = b.expect("listener is content");
            assert_eq!((peer.name.as_str(), standing), ("a", Standing::Admitted));
            assert_eq!(lane, WireLane::Bulk);
        }
    }

    #[tokio::test]
    async fn another_token_or_none_is_refused_on_both_sides() {
        for (x, y) in [(Some(LONG), Some(OTHER)), (None, Some(LONG)), (Some(LONG), None)] {
            let (a, b) = meet(hello("a", 1, 9), x, hello("b", 2, 9), y).await;
            assert!(matches!(a, Err(PeerFault::Unproved)), "{a:?}");
            assert!(matches!(b, Err(PeerFault::Unproved)), "{b:?}");
        }
    }

    #[tokio::test]
    async fn another_cluster_is_refused_and_an_empty_member_waits() {
        let (a, b) = meet(hello("a", 1, 9), None, hello("b", 2, 8), None).await;
        let cluster = |f: &PeerFault| f.reason() == Some("cluster");
        assert!(a.as_ref().is_err_and(cluster), "{a:?}");
        assert!(b.as_ref().is_err_and(cluster), "{b:?}");

        let (a, b) = meet(hello("a", 1, 0), None, hello("b", 2, 8), None).await;
        assert_eq!(a.expect("waits").1, Standing::Waiting);
        assert_eq!(b.expect("waits").2, Standing::Waiting);
    }
}
