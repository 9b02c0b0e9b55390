//! What every request goes through before it reaches its handler.

use super::{ApiError, BODY_MAX};
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::error::Error;
use std::time::Duration;

/// How long the body of a request may take: the head has arrived.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// Reads the whole request, within a time and a size; refuses what could be read in two ways.
pub(super) async fn intake(request: Request, next: Next) -> Response {
    if let Err(e) = well_formed(request.uri()) {
        return e.into_response();
    }
    let (parts, body) = request.into_parts();
    match tokio::time::timeout(BODY_WITHIN, to_bytes(body, BODY_MAX)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Ok(Err(e)) if is_too_long(&e) => ApiError::too_large().into_response(),
        Ok(Err(e)) => ApiError::invalid(format!("the body cannot be read: {e}")).into_response(),
        Err(_) => ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "request_timeout",
            format!("the body was not there within {} s; nothing was done", BODY_WITHIN.as_secs()),
        )
        .with("may_commit", false)
        .into_response(),
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    error.source().is_some_and(|e| e.is::<http_body_util::LengthLimitError>())
}

/// A compare-and-set must not compare with something else than what was asked for: escapes are
/// whole, and what they stand for is text. Bytes that are none are given in hexadecimal.
fn well_formed(uri: &Uri) -> Result<(), ApiError> {
    for (what, text) in [("path", uri.path()), ("query", uri.query().unwrap_or_default())] {
        let bytes = unescaped(text).ok_or_else(|| {
            ApiError::invalid(format!(
                "the {what} has a % without two hexadecimal digits behind it"
            ))
        })?;
        if std::str::from_utf8(&bytes).is_err() {
            return Err(ApiError::invalid(format!(
                "the {what} is not UTF-8 once its escapes are read; values that are no text go into the body, or \
                 into expected_hex"
            )));
        }
    }
    Ok(())
}

/// What the escapes of a path or query stand for; `None` if one of them is broken.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            out.push(*first);
            continue;
        }
        let (digits, behind) = behind.split_at_checked(2)?;
        rest = behind;
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        out.push(u8::try_from(digit(0)? * 16 + digit(1)?).ok()?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for good in ["/v1/kv/a%2Fb%25", "/v1/kv/a?expected=%C3%A4&x=%0a", "/v1/topics"] {
            assert!(well_formed(&good.parse().expect("a URI")).is_ok(), "{good}");
        }
        for bad in
            ["/v1/kv/a%zz", "/v1/kv/a%4", "/v1/kv/a?expected=%ff", "/v1/topics?after=%", "/%c3"]
        {
            assert!(well_formed(&bad.parse().expect("a URI")).is_err(), "{bad}");
        }
    }
}
