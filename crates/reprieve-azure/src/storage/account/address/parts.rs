//! The parts of an address, checked: credentials, endpoints, signatures, domains and names.

use std::fmt;
use std::sync::Arc;

use azure_core::credentials::{Secret, TokenCredential};
use reprieve_core::{Error, ErrorKind, Result};
use reqwest::Url;

/// The way to sign in.
#[derive(Clone)]
pub(crate) enum SignIn {
    /// A token of this machine's, pod's or person's identity, which is found at run time.
    Identity { client_id: Option<String> },
    /// A token from the program's own credential.
    Own(Arc<dyn TokenCredential>),
    /// The account's key, which permits everything.
    Key(Secret),
    /// A shared access signature: the query string, without its question mark.
    Sas(Secret),
}

/// The domain of the public cloud's storage.
pub(super) const PUBLIC_SUFFIX: &str = "core.windows.net";

/// The error for an invalid address. `why` repeats nothing that might be secret.
pub(super) fn refused(why: impl fmt::Display) -> Error {
    let message = format!(
        "{why}; give azure:ACCOUNT to use this machine's identity, azurite for the emulator, or a connection string in \
         REPRIEVE_STORE"
    );
    Error::new(ErrorKind::Invalid, "read the storage account's address", message)
}

/// Parses an endpoint: a plain `http(s)://` URL. A trailing slash is removed from its path, which
/// contains the account of an emulator.
pub(super) fn endpoint(text: &str) -> Result<Url> {
    let Ok(mut url) = Url::parse(text) else {
        return Err(refused("one of its endpoints is not a complete URL"));
    };
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(refused("one of its endpoints is neither http:// nor https://"));
    }
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err(refused(
            "one of its endpoints has a user name, query or fragment, but may only have a path",
        ));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

/// Checks a SAS as the portal shows it, with or without its question mark.
pub(super) fn read_sas(text: &str) -> Result<Secret> {
    let text = text.strip_prefix('?').unwrap_or(text);
    let has =
        |name: &str| text.split('&').any(|part| part.split_once('=').is_some_and(|(key, _)| key == name));
    if !has("sig") || !has("sv") {
        return Err(refused(
            "its SAS has no sig or no sv in it, so it is incomplete, or a setting is misspelt",
        ));
    }
    if text.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#') {
        return Err(refused("its SAS has characters that no URL has, so it was not copied completely"));
    }
    Ok(Secret::new(text.to_owned()))
}

/// Checks the domain of a cloud's storage.
pub(super) fn check_suffix(suffix: &str) -> Result<&str> {
    let is_domain = suffix.contains('.')
        && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
    let zone = suffix.split('.').next().and_then(|first| first.strip_prefix('z')).unwrap_or_default();
    if !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_digit()) {
        // In the host's name the zone comes before the service.
        Err(refused("its endpoint suffix is a DNS zone; give both a BlobEndpoint and a QueueEndpoint"))
    } else if is_domain {
        Ok(suffix)
    } else {
        Err(refused("its endpoint suffix is not a domain such as core.windows.net"))
    }
}

/// <https://learn.microsoft.com/azure/storage/common/storage-account-overview#storage-account-name>
pub(super) fn is_account_name(name: &str) -> bool {
    (3..=24).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

pub(super) fn is_guid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}
