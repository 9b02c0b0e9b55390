//! bincode, configured in one place: little-endian, fixed-size integers, a byte limit, and every
//! byte consumed.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// Most bytes that one value may claim while it is decoded, in bytes. Lengths are checked against
/// it before anything is allocated.
pub const DECODE_MAX_BYTES: usize = 32 << 20;

const fn limited<const BYTES: usize>() -> Configuration<LittleEndian, Fixint, Limit<BYTES>> {
    bincode::config::standard().with_little_endian().with_fixed_int_encoding().with_limit::<BYTES>()
}

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
    let config = limited::<DECODE_MAX_BYTES>();
    let bytes = bincode::serde::encode_to_vec(value, config)
        .map_err(|e| CodecError::Unencodable { what, why: e.to_string() })?;
    // bincode applies its limit to decoding alone; nothing may leave that could not be read back.
    if bytes.len() > DECODE_MAX_BYTES {
        let why = format!("{} bytes, at most {DECODE_MAX_BYTES}", bytes.len());
        return Err(CodecError::Unencodable { what, why });
    }
    Ok(bytes)
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
    // bincode allocates a string or byte vector of the claimed length before it looks whether that
    // many bytes are there, and its limit is a constant. So the limit climbs with the input: no
    // claim is believed that exceeds the input more than 32 times (or 1 KiB).
    let result = match bytes.len() {
        0..=0x400 => bincode::serde::decode_from_slice(bytes, limited::<0x400>()),
        0x401..=0x8000 => bincode::serde::decode_from_slice(bytes, limited::<0x8000>()),
        0x8001..=0x10_0000 => bincode::serde::decode_from_slice(bytes, limited::<0x10_0000>()),
        _ => bincode::serde::decode_from_slice(bytes, limited::<DECODE_MAX_BYTES>()),
    };
    result.map_err(|e| CodecError::Malformed { what, why: e.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_fills_its_input_decodes_at_every_step_of_the_limit() {
        for len in [0, 1, 0x3f8, 0x3f9, 0x7ff8, 0x7ff9, 0xf_fff8, 0xf_fff9, 0x20_0000] {
            let text = "x".repeat(len);
            let bytes = encode("text", &text).unwrap();
            assert_eq!(decode::<String>("text", &bytes), Ok(text), "{len}");
        }
    }

    #[test]
    fn a_false_length_is_refused_before_anything_is_allocated_for_it() {
        for (room, claim) in [(8, 0x401u64), (0x401, 0x8001), (0x8001, 0x10_0001), (8, u64::MAX)] {
            let mut bytes = claim.to_le_bytes().to_vec();
            bytes.resize(room, 0);
            let refused = decode::<String>("text", &bytes).expect_err("the text is not there");
            let CodecError::Malformed { why, .. } = refused else { panic!("{refused}") };
            assert!(why.contains("LimitExceeded"), "{claim} in {room} bytes: {why}");
        }
    }

    #[test]
    fn what_stands_behind_a_value_is_counted() {
        let trailing = decode::<u16>("number", &[1, 0, 9, 9]);
        assert_eq!(trailing, Err(CodecError::Trailing { what: "number", extra: 2 }));
        assert_eq!(decode_prefix::<u16>("number", &[1, 0, 9, 9]), Ok((1, 2)));
    }

    #[test]
    fn a_value_beyond_the_limit_is_not_encoded() {
        let refused = encode("text", &"x".repeat(DECODE_MAX_BYTES));
        assert!(matches!(refused, Err(CodecError::Unencodable { what: "text", .. })));
    }
}
