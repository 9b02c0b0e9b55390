//! Reading and writing whole frames on a socket.

use super::envelope::{Envelope, HANDSHAKE_MAX};
use super::fault::PeerFault;
use bytes::{Bytes, BytesMut};
use holdfast_consensus::codec;
use holdfast_consensus::wire::{
    FRAME_BODY_MAX, FRAME_HEADER, Frame, FrameKind, body_len, decode_frame, encode_frame,
};
use holdfast_consensus::{ClusterId, MemberId};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Reads one frame of at most `max_body` bytes. The length is checked before anything is
/// allocated; the end of the stream between two frames is [`PeerFault::Closed`].
///
/// # Errors
/// [`PeerFault`]; the connection must then be closed.
pub async fn read_frame<R: AsyncRead + Unpin>(
    from: &mut R,
    max_body: usize,
) -> Result<(Frame, Bytes), PeerFault> {
    let mut header = [0; FRAME_HEADER];
    match from.read_exact(&mut header).await {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(PeerFault::Closed),
        Err(e) => return Err(e.into()),
    }
    let len = body_len(&header)?;
    if len > max_body {
        return Err(PeerFault::LongHandshake(len));
    }
    let mut body = BytesMut::zeroed(len);
    from.read_exact(&mut body).await?;
    let body = body.freeze();
    Ok((decode_frame(&header, &body)?, body))
}

/// Reads a frame that carries a message.
///
/// # Errors
/// As [`read_frame`]; another kind is [`PeerFault::Unexpected`].
pub async fn read_message_frame<R: AsyncRead + Unpin>(
    from: &mut R,
) -> Result<(Frame, Bytes), PeerFault> {
    let (frame, body) = read_frame(from, FRAME_BODY_MAX).await?;
    match frame.kind {
        FrameKind::Message => Ok((frame, body)),
        FrameKind::Hello => Err(PeerFault::Unexpected("a message")),
    }
}

/// Reads one handshake step.
///
/// # Errors
/// As [`read_frame`].
pub async fn read_envelope<R: AsyncRead + Unpin>(from: &mut R) -> Result<Envelope, PeerFault> {
    let (frame, body) = read_frame(from, HANDSHAKE_MAX).await?;
    match frame.kind {
        FrameKind::Hello => Ok(codec::decode("handshake", &body)?),
        FrameKind::Message => Err(PeerFault::Unexpected("a handshake")),
    }
}

/// Writes one handshake step. Its header names nobody: identities are inside hellos only.
///
/// # Errors
/// [`PeerFault::Io`].
pub async fn write_envelope<W: AsyncWrite + Unpin>(
    to: &mut W,
    envelope: &Envelope,
) -> Result<(), PeerFault> {
    let body = codec::encode("handshake", envelope)?;
    let frame = Frame {
        kind: FrameKind::Hello,
        cluster: ClusterId::default(),
        epoch: 0,
        group: 0,
        from: MemberId::default(),
        to: MemberId::default(),
    };
    to.write_all(&encode_frame(&frame, &body)?).await?;
    to.flush().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_false_length_is_refused_before_the_body_is_allocated() {
        let envelope = Envelope::Open { protocol: 1, nonce: [7; 32] };
        let mut bytes = Vec::new();
        write_envelope(&mut bytes, &envelope).await.expect("writing to memory");
        bytes[56..60].copy_from_slice(&u32::MAX.to_le_bytes());
        let fault = read_envelope(&mut bytes.as_slice()).await.expect_err("must be refused");
        assert!(fault.to_string().contains("exceeds"), "{fault}");
        assert_eq!(fault.reason(), Some("frame"));

        bytes[56..60].copy_from_slice(&(1u32 << 20).to_le_bytes());
        let fault = read_envelope(&mut bytes.as_slice()).await.expect_err("must be refused");
        assert!(matches!(fault, PeerFault::LongHandshake(_)), "{fault}");
    }

    #[tokio::test]
    async fn a_handshake_step_survives_the_wire() {
        let envelope = Envelope::Open { protocol: 1, nonce: [7; 32] };
        let mut bytes = Vec::new();
        write_envelope(&mut bytes, &envelope).await.expect("writing to memory");
        assert_eq!(read_envelope(&mut bytes.as_slice()).await.expect("read back"), envelope);
    }
}
