//! Authorization: any credentials are accepted.
//!
//! Signatures and tokens are not verified, because the official SDK or Azure's own identity signs a
//! client's requests, and both are tested against Azurite. Requests without credentials are refused
//! as by the service, so that a client that forgets them fails its tests.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use super::refusal::{AUTHENTICATION_FAILED, NO_AUTHENTICATION, Refusal};

/// Requires a signature in the query, or an Authorization header that could be for this account.
pub(super) fn check(headers: &HeaderMap, query: &[(String, String)], account: &str) -> Result<(), Refusal> {
    if let Some((_, signature)) = query.iter().find(|(key, _)| key == "sig") {
        return if signature.is_empty() { Err(AUTHENTICATION_FAILED) } else { Ok(()) };
    }
    let Some(header) = headers.get(AUTHORIZATION) else { return Err(NO_AUTHENTICATION) };
    let header = header.to_str().map_err(|_| AUTHENTICATION_FAILED)?;
    match header.split_once(' ') {
        Some(("Bearer", token)) if !token.is_empty() => Ok(()),
        Some(("SharedKey" | "SharedKeyLite", key)) => match key.split_once(':') {
            Some((of, signature)) if of == account && !signature.is_empty() => Ok(()),
            _ => Err(AUTHENTICATION_FAILED),
        },
        _ => Err(AUTHENTICATION_FAILED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn something_must_be_shown() {
        let with = |value: &str| HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
        for good in ["Bearer x", "SharedKey acc:x", "SharedKeyLite acc:x"] {
            assert_eq!(check(&with(good), &[], "acc"), Ok(()), "{good}");
        }
        for bad in ["Basic x", "Bearer", "SharedKey other:x", "SharedKey acc:", "acc:x"] {
            assert_eq!(check(&with(bad), &[], "acc"), Err(AUTHENTICATION_FAILED), "{bad}");
        }
        let signed = |value: &str| [("sig".to_owned(), value.to_owned())];
        assert_eq!(check(&HeaderMap::new(), &signed("x"), "acc"), Ok(()));
        assert_eq!(check(&HeaderMap::new(), &signed(""), "acc"), Err(AUTHENTICATION_FAILED));
        assert_eq!(check(&HeaderMap::new(), &[], "acc"), Err(NO_AUTHENTICATION));
    }
}
