//! bincode, configured in one place: little-endian, fixed-size integers, a byte limit, and every
//! byte consumed.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Most bytes that one value may claim while it is decoded, in bytes. Lengths are checked against
/// it before anything is allocated.
pub const DECODE_MAX_BYTES: usize = 32 << 20;

const CONFIG: Configuration<LittleEndian, Fixint, Limit<DECODE_MAX_BYTES>> =
    bincode::config::standard()
        .with_little_endian()
        .with_fixed_int_encoding()
        .with_limit::<DECODE_MAX_BYTES>();

/// A value that could not be decoded or encoded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CodecError {
    /// The bytes are not a value of the wanted type.
    #[error("undecodable {what}: {why}")]
    Malformed {
        /// The type that was wanted.
        what: &'static str,
        /// What bincode said.
        why: String,
    },
    /// The value ended before the bytes did.
    #[error("{extra} bytes behind the end of {what}")]
    Trailing {
        /// The type that was wanted.
        what: &'static str,
        /// Number of bytes left over.
        extra: usize,
    },
    /// The value is larger than [`DECODE_MAX_BYTES`] or cannot be represented.
    #[error("unencodable {what}: {why}")]
    Unencodable {
        /// The type.
        what: &'static str,
        /// What bincode said.
        why: String,
    },
}

/// Encodes a value. `what` names it in errors.
///
/// # Errors
/// [`CodecError::Unencodable`] if the value exceeds [`DECODE_MAX_BYTES`].
pub fn encode<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, CodecError> {
    bincode::serde::encode_to_vec(value, CONFIG)
        .map_err(|e| CodecError::Unencodable { what, why: e.to_string() })
}

/// Decodes a value and checks that every byte was consumed. `what` names it in errors.
///
/// # Errors
/// [`CodecError::Malformed`] or [`CodecError::Trailing`].
pub fn decode<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, CodecError> {
    let (value, used) = decode_prefix(what, bytes)?;
    match bytes.len() - used {
        0 => Ok(value),
        extra => Err(CodecError::Trailing { what, extra }),
    }
}

/// Decodes a value from the front of `bytes` and says how many bytes it took.
///
/// # Errors
/// [`CodecError::Malformed`].
pub fn decode_prefix<T: DeserializeOwned>(
    what: &'static str,
    bytes: &[u8],
) -> Result<(T, usize), CodecError> {
    bincode::serde::decode_from_slice(bytes, CONFIG)
        .map_err(|e| CodecError::Malformed { what, why: e.to_string() })
}
