//! Proof that a peer knows the shared token, without showing it.
//!
//! Each side sends a fresh nonce and proves the token with HMAC-SHA-256 over its role, both
//! nonces and the bytes that it vouches for. Roles differ, so a proof cannot be reflected, and
//! fresh nonces keep an old one from being replayed. The token itself never crosses the wire.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// Shortest token that is accepted, in characters.
pub const TOKEN_MIN_CHARS: usize = 32;

/// Fresh random bytes of one handshake.
pub type Nonce = [u8; 32];

/// A proof: an HMAC-SHA-256, or nothing where no token is configured.
pub type Proof = Option<[u8; 32]>;

/// The token that all peers share. Its `Debug` shows nothing of it.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// A token from the text of its file; blanks around it do not count.
    ///
    /// # Errors
    /// A sentence with the remedy if it is shorter than [`TOKEN_MIN_CHARS`].
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let found = text.chars().count();
        if found < TOKEN_MIN_CHARS {
            return Err(format!(
                "the token has {found} characters and needs at least {TOKEN_MIN_CHARS}; make one with: openssl rand -hex 32"
            ));
        }
        Ok(Self(text.as_bytes().to_vec()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Who proves.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that dialled.
    Dialer,
    /// The one that accepted.
    Listener,
}

/// Both nonces of one handshake.
#[derive(Copy, Clone, Debug)]
pub struct Nonces {
    /// The dialler's.
    pub dialer: Nonce,
    /// The listener's.
    pub listener: Nonce,
}

fn mac(token: &Token, side: Side, nonces: &Nonces, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&token.0).expect("HMAC takes a key of any length");
    mac.update(match side {
        Side::Dialer => b"holdfast peer proof 1, dialer  ",
        Side::Listener => b"holdfast peer proof 1, listener",
    });
    mac.update(&nonces.dialer);
    mac.update(&nonces.listener);
    mac.update(body);
    mac
}

/// The proof of `side` for `body`.
#[must_use]
pub fn prove(token: Option<&Token>, side: Side, nonces: &Nonces, body: &[u8]) -> Proof {
    token.map(|token| mac(token, side, nonces, body).finalize().into_bytes().into())
}

/// True if `proof` is what `side` must show for `body`. Compared in constant time.
#[must_use]
pub fn verify(
    token: Option<&Token>,
    side: Side,
    nonces: &Nonces,
    body: &[u8],
    proof: &Proof,
) -> bool {
    match (token, proof) {
        (Some(token), Some(proof)) => mac(token, side, nonces, body).verify_slice(proof).is_ok(),
        (None, None) => true,
        // One side has a token and the other has none: they do not belong together.
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// A fresh nonce from the system's generator.
///
/// # Errors
/// What the system says; without randomness no handshake is possible.
pub fn fresh_nonce() -> std::io::Result<Nonce> {
    let mut nonce = [0; 32];
    crate::clock::fill_random(&mut nonce)?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::parse(text).expect("long enough")
    }

    const NONCES: Nonces = Nonces { dialer: [1; 32], listener: [2; 32] };
    const LONG: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn a_token_of_31_characters_is_refused_and_32_are_taken() {
        assert!(Token::parse(&LONG[..31]).is_err());
        assert!(Token::parse(&format!(" {}\n", &LONG[..31])).is_err());
        assert!(Token::parse(LONG).is_ok());
    }

    #[test]
    fn a_proof_holds_only_for_its_token_side_nonces_and_body() {
        let good = token(LONG);
        let proof = prove(Some(&good), Side::Dialer, &NONCES, b"body");
        assert!(verify(Some(&good), Side::Dialer, &NONCES, b"body", &proof));
        assert!(!verify(Some(&good), Side::Listener, &NONCES, b"body", &proof));
        assert!(!verify(Some(&good), Side::Dialer, &NONCES, b"other", &proof));
        let swapped = Nonces { dialer: [2; 32], listener: [1; 32] };
        assert!(!verify(Some(&good), Side::Dialer, &swapped, b"body", &proof));
        let bad = token("another token of more than 32 characters");
        assert!(!verify(Some(&bad), Side::Dialer, &NONCES, b"body", &proof));
    }

    #[test]
    fn a_token_on_one_side_only_never_verifies() {
        let good = token(LONG);
        assert!(!verify(Some(&good), Side::Dialer, &NONCES, b"", &None));
        let proof = prove(Some(&good), Side::Dialer, &NONCES, b"");
        assert!(!verify(None, Side::Dialer, &NONCES, b"", &proof));
        assert!(verify(None, Side::Dialer, &NONCES, b"", &None));
    }
}
