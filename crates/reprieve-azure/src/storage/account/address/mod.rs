//! A storage account's address and credentials, as given to `--store`.

mod connection_string;

use std::fmt;
use std::sync::Arc;

use azure_core::{
    cloud::CloudConfiguration,
    credentials::{Secret, TokenCredential},
};
use reprieve_core::{Error, ErrorKind, Result};
use reqwest::Url;

/// The account name of Azurite and of the storage emulators before it.
/// <https://learn.microsoft.com/azure/storage/common/storage-use-azurite#well-known-storage-account-and-key>
pub(crate) const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";

/// Its key, which is published and the same on every machine, so it is no secret.
pub(crate) const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The domain of the public cloud's storage.
pub(crate) const PUBLIC_SUFFIX: &str = "core.windows.net";

/// A storage account, and the way to sign in to it.
///
/// `Debug` and `Display` never show a secret.
///
/// # Example
/// ```
/// use reprieve_azure::storage::Address;
///
/// let address = Address::parse("azure:mystorage?client_id=7a3c5c1e-2f57-4d4e-9a52-9c1a9f1f2a11")?;
/// assert_eq!(address.account(), "mystorage");
/// assert_eq!(address.to_string(), "azure:mystorage");
/// # Ok::<(), reprieve_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Address {
    pub(crate) account: String,
    pub(crate) blobs: Url,
    pub(crate) queues: Url,
    pub(crate) way: WayIn,
    /// The only certificate authority to trust, as PEM; `None` for the system's.
    pub(crate) ca: Option<Arc<[u8]>>,
}

/// The way to sign in.
#[derive(Clone)]
pub(crate) enum WayIn {
    /// A token of this machine's, pod's or person's identity, which is found at run time.
    Identity { client_id: Option<String> },
    /// A token from the program's own credential.
    Own(Arc<dyn TokenCredential>),
    /// The account's key, which permits everything.
    Key(Secret),
    /// A shared access signature: the query string, without its question mark.
    Sas(Secret),
}

impl Address {
    /// Parses the text of `--store` or `REPRIEVE_STORE`:
    ///
    /// | text | signs in with |
    /// |---|---|
    /// | `azure:ACCOUNT` | the identity of this machine, pod or person |
    /// | `azure:ACCOUNT?client_id=GUID` | that managed identity, where a machine has several |
    /// | `azure:ACCOUNT?endpoint_suffix=core.chinacloudapi.cn` | the same, in another cloud |
    /// | `azure:ACCOUNT?sv=…&sig=…` | a shared access signature (SAS) |
    /// | `azurite` | the published key of the emulator, on ports 10000 and 10001 |
    /// | a connection string | its `AccountKey` or `SharedAccessSignature`; without either, the identity |
    ///
    /// A connection string has `AccountName`, `AccountKey`, `SharedAccessSignature`, `EndpointSuffix`,
    /// `DefaultEndpointsProtocol`, `BlobEndpoint`, `QueueEndpoint`, or `UseDevelopmentStorage=true` with
    /// `DevelopmentStorageProxyUri`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid), in one sentence that repeats no value that might be secret.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        if text == "azurite" {
            return Self::development("http://127.0.0.1");
        }
        if let Some(rest) = text.strip_prefix("azure:") {
            return Self::parse_short(rest);
        }
        if text.contains('=') {
            return connection_string::parse(text);
        }
        Err(refused("it is neither azure:ACCOUNT, nor azurite, nor a connection string"))
    }

    /// The account's name.
    #[must_use]
    pub fn account(&self) -> &str {
        &self.account
    }

    /// Trusts only the certificate authorities in this PEM text: for an emulator over HTTPS, or a
    /// network with its own authority.
    #[must_use]
    pub fn with_ca(mut self, pem: Vec<u8>) -> Self {
        self.ca = Some(pem.into());
        self
    }

    /// Signs in with tokens of this credential, whatever the address's text says.
    ///
    /// The tokens are cached in memory and refreshed before they expire, so the credential needs no
    /// cache.
    #[must_use]
    pub fn with_credential(mut self, credential: Arc<dyn TokenCredential>) -> Self {
        self.way = WayIn::Own(credential);
        self
    }

    /// The `HOST:PORT` of its blob service and of its queue service, if both are on this machine,
    /// as an emulator's are; else `None`.
    #[must_use]
    pub fn on_this_machine(&self) -> Option<[String; 2]> {
        Some([listens_here(&self.blobs)?, listens_here(&self.queues)?])
    }

    /// Whether both services are on this machine, as an emulator's are.
    pub(crate) fn is_loopback(&self) -> bool {
        self.on_this_machine().is_some()
    }

    /// The cloud of this account, by its domain.
    pub(crate) fn cloud(&self) -> CloudConfiguration {
        match self.queues.domain().unwrap_or_default() {
            domain if domain.ends_with(".chinacloudapi.cn") => CloudConfiguration::AzureChina,
            domain if domain.ends_with(".usgovcloudapi.net") => CloudConfiguration::AzureGovernment,
            _ => CloudConfiguration::AzurePublic,
        }
    }

    /// The emulator's account at `origin`, on the emulator's ports.
    pub(crate) fn development(origin: &str) -> Result<Self> {
        let url = |port: u16| endpoint(&format!("{origin}:{port}/{DEVELOPMENT_ACCOUNT}"));
        Ok(Self {
            account: DEVELOPMENT_ACCOUNT.to_owned(),
            blobs: url(10000)?,
            queues: url(10001)?,
            way: WayIn::Key(Secret::new(DEVELOPMENT_KEY)),
            ca: None,
        })
    }

    /// The account `name` at the cloud's standard endpoints.
    pub(crate) fn in_cloud(protocol: &str, name: &str, suffix: &str, way: WayIn) -> Result<Self> {
        let url = |service: &str| endpoint(&format!("{protocol}://{name}.{service}.{suffix}"));
        Ok(Self { account: name.to_owned(), blobs: url("blob")?, queues: url("queue")?, way, ca: None })
    }

    fn parse_short(rest: &str) -> Result<Self> {
        let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !is_account_name(name) {
            return Err(refused(
                "after azure: comes an account's name, which has 3 to 24 lower-case letters and digits",
            ));
        }
        let (mut client_id, mut suffix, mut sas) = (None, PUBLIC_SUFFIX.to_owned(), Vec::new());
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("client_id", id)) if is_guid(id) => client_id = Some(id.to_owned()),
                Some(("client_id", _)) => return Err(refused("its client_id is no GUID")),
                Some(("endpoint_suffix", domain)) => domain.clone_into(&mut suffix),
                _ => sas.push(part),
            }
        }
        let way = match (sas.is_empty(), client_id) {
            (true, client_id) => WayIn::Identity { client_id },
            (false, None) => WayIn::Sas(read_sas(&sas.join("&"))?),
            (false, Some(_)) => {
                return Err(refused("it has both a client_id and a SAS, which exclude each other"));
            }
        };
        Self::in_cloud("https", name, check_suffix(&suffix)?, way)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.account != DEVELOPMENT_ACCOUNT {
            return write!(f, "azure:{}", self.account);
        }
        match (self.queues.host_str(), self.queues.port_or_known_default()) {
            (Some("127.0.0.1"), Some(10001)) => f.write_str("azurite"),
            (host, port) => write!(f, "azurite at {}:{}", host.unwrap_or_default(), port.unwrap_or_default()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match &self.way {
            WayIn::Identity { client_id: None } => "identity",
            WayIn::Identity { client_id: Some(_) } => "a chosen identity",
            WayIn::Own(_) => "own credential",
            WayIn::Key(_) => "account key",
            WayIn::Sas(_) => "SAS",
        };
        f.debug_struct("Address")
            .field("account", &self.account)
            .field("blobs", &self.blobs.as_str())
            .field("queues", &self.queues.as_str())
            .field("way_in", &way)
            .field("own_ca", &self.ca.is_some())
            .finish()
    }
}

/// The error for an invalid address. `why` repeats nothing that might be secret.
pub(crate) fn refused(why: impl fmt::Display) -> Error {
    let message = format!(
        "{why}; give azure:ACCOUNT to use this machine's identity, azurite for the emulator, or a connection string in \
         REPRIEVE_STORE"
    );
    Error::new(ErrorKind::Invalid, "read the storage account's address", message)
}

/// Parses an endpoint: a plain `http(s)://` URL. A trailing slash is removed from its path, which
/// contains the account of an emulator.
pub(crate) fn endpoint(text: &str) -> Result<Url> {
    let Ok(mut url) = Url::parse(text) else { return Err(refused("one of its endpoints is no whole URL")) };
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(refused("one of its endpoints is neither http:// nor https://"));
    }
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return Err(refused(
            "one of its endpoints has a user name, query or fragment, where only a path may be",
        ));
    }
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(url)
}

/// The `HOST:PORT` of an endpoint on this machine.
fn listens_here(endpoint: &Url) -> Option<String> {
    let (host, port) = (endpoint.host_str()?, endpoint.port_or_known_default()?);
    let is_here = host == "localhost"
        || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    is_here.then(|| format!("{host}:{port}"))
}

/// Checks a SAS as the portal shows it, with or without its question mark.
pub(crate) fn read_sas(text: &str) -> Result<Secret> {
    let text = text.strip_prefix('?').unwrap_or(text);
    let has =
        |name: &str| text.split('&').any(|part| part.split_once('=').is_some_and(|(key, _)| key == name));
    if !has("sig") || !has("sv") {
        return Err(refused(
            "its SAS has no sig or no sv in it, so it is incomplete, or a setting is misspelt",
        ));
    }
    if text.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#') {
        return Err(refused("its SAS has characters that no URL has, so it was not copied whole"));
    }
    Ok(Secret::new(text.to_owned()))
}

/// Checks the domain of a cloud's storage.
pub(crate) fn check_suffix(suffix: &str) -> Result<&str> {
    let is_domain = suffix.contains('.')
        && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
    if is_domain {
        Ok(suffix)
    } else {
        Err(refused("its endpoint suffix is no domain such as core.windows.net"))
    }
}

/// <https://learn.microsoft.com/azure/storage/common/storage-account-overview#storage-account-name>
pub(crate) fn is_account_name(name: &str) -> bool {
    (3..=24).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn is_guid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests;
