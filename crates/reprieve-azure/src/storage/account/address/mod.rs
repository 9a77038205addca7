//! A storage account's address and credentials, as given to `--store`.

mod connection_string;
mod parts;

use std::fmt;
use std::sync::Arc;

use azure_core::{
    cloud::CloudConfiguration,
    credentials::{Secret, TokenCredential},
};
use reprieve_core::Result;
use reqwest::Url;

use self::connection_string::ConnectionString;
pub(crate) use self::parts::SignIn;
use self::parts::{PUBLIC_SUFFIX, check_suffix, endpoint, is_account_name, is_guid, read_sas, refused};

/// The account name of Azurite and of the storage emulators before it.
/// <https://learn.microsoft.com/azure/storage/common/storage-use-azurite#well-known-storage-account-and-key>
pub(crate) const DEVELOPMENT_ACCOUNT: &str = "devstoreaccount1";

/// Its key, which is published and the same on every machine, so it is no secret.
pub(crate) const DEVELOPMENT_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

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
    pub(crate) sign_in: SignIn,
    /// The only certificate authority to trust, as PEM; `None` for the system's.
    pub(crate) ca: Option<Arc<[u8]>>,
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
    /// | `https://ACCOUNT.blob.core.windows.net/?sv=…&sig=…` | the same, as the portal shows it |
    /// | `https://ACCOUNT.z07.blob.storage.azure.net/?sv=…&sig=…` | the same, of an account with a DNS zone |
    /// | `azurite` | the published key of the emulator, on ports 10000 and 10001 |
    /// | a connection string | its `AccountKey` or `SharedAccessSignature`; without either, the identity |
    ///
    /// A connection string has `AccountName`, `AccountKey`, `SharedAccessSignature`,
    /// `EndpointSuffix`, `DefaultEndpointsProtocol`, `BlobEndpoint`, `QueueEndpoint`, or
    /// `UseDevelopmentStorage=true` with `DevelopmentStorageProxyUri`; and `ClientId=GUID`, which is
    /// Reprieve's own, to choose one of several identities.
    ///
    /// # Errors
    /// [`Invalid`](reprieve_core::ErrorKind::Invalid), in one sentence that repeats no value that
    /// might be secret.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        if text == "azurite" {
            return Self::development("http://127.0.0.1");
        }
        if text.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://")) {
            return Self::from_sas_url(text);
        }
        if text.starts_with(['?', '&']) || text.starts_with("sv=") {
            return Err(refused("a SAS alone names no account; write azure:ACCOUNT and the SAS after it"));
        }
        if let Some(rest) = text.strip_prefix("azure:") {
            return Self::parse_short(rest);
        }
        if text.contains('=') {
            return Self::from_connection_string(text);
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

    /// Signs in with this managed identity, if it signs in with an identity and names none itself.
    ///
    /// # Errors
    /// [`Invalid`](reprieve_core::ErrorKind::Invalid) when the id is not a GUID and would be used.
    pub fn with_client_id(mut self, id: &str) -> Result<Self> {
        if let SignIn::Identity { client_id: chosen @ None } = &mut self.sign_in {
            if !is_guid(id) {
                return Err(refused("the client_id that is set for it is not a GUID"));
            }
            *chosen = Some(id.to_owned());
        }
        Ok(self)
    }

    /// Whether it signs in with the tokens of an identity. A role that was just assigned to one takes
    /// minutes to have an effect.
    #[must_use]
    pub const fn uses_an_identity(&self) -> bool {
        matches!(self.sign_in, SignIn::Identity { .. } | SignIn::Own(_))
    }

    /// Signs in with tokens of this credential, instead of the address's own.
    ///
    /// The tokens are cached in memory and refreshed before they expire, so the credential needs no
    /// cache.
    #[must_use]
    pub fn with_credential(mut self, credential: Arc<dyn TokenCredential>) -> Self {
        self.sign_in = SignIn::Own(credential);
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
            sign_in: SignIn::Key(Secret::new(DEVELOPMENT_KEY)),
            ca: None,
        })
    }

    /// The account `name` at the cloud's standard endpoints.
    pub(crate) fn in_cloud(protocol: &str, name: &str, suffix: &str, sign_in: SignIn) -> Result<Self> {
        let url = |service: &str| endpoint(&format!("{protocol}://{name}.{service}.{suffix}"));
        Ok(Self { account: name.to_owned(), blobs: url("blob")?, queues: url("queue")?, sign_in, ca: None })
    }

    fn parse_short(rest: &str) -> Result<Self> {
        let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
        if !is_account_name(name) {
            return Err(refused(
                "after azure: give an account's name, which has 3 to 24 lower-case letters and digits",
            ));
        }
        let (mut client_id, mut suffix, mut sas) = (None, None, Vec::new());
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("client_id", id)) if !is_guid(id) => {
                    return Err(refused("its client_id is not a GUID"));
                }
                Some(("client_id", id)) => once("client_id", &mut client_id, id)?,
                Some(("endpoint_suffix", domain)) => once("endpoint_suffix", &mut suffix, domain)?,
                _ => sas.push(part),
            }
        }
        let suffix = suffix.unwrap_or_else(|| PUBLIC_SUFFIX.to_owned());
        let sign_in = match (sas.is_empty(), client_id) {
            (true, client_id) => SignIn::Identity { client_id },
            (false, None) => SignIn::Sas(read_sas(&sas.join("&"))?),
            (false, Some(_)) => {
                return Err(refused("it has both a client_id and a SAS, which exclude each other"));
            }
        };
        Self::in_cloud("https", name, check_suffix(&suffix)?, sign_in)
    }

    /// The portal's "SAS URL" of the blob or the queue service.
    fn from_sas_url(text: &str) -> Result<Self> {
        let Some((url, sas)) = text.split_once('?') else {
            return Err(refused("it is a URL without a SAS"));
        };
        let host = endpoint(url)?;
        let domain = host.domain().unwrap_or_default();
        let (prefix, service, suffix) = split_domain(domain).unwrap_or_default();
        let name = prefix.split('.').next().unwrap_or_default();
        match service {
            "blob" | "queue" | "file" | "table" | "dfs" if is_account_name(name) && host.path() == "/" => {
                let sign_in = SignIn::Sas(read_sas(sas)?);
                let opened = Self::in_cloud("https", prefix, check_suffix(suffix)?, sign_in)?;
                Ok(Self { account: name.to_owned(), ..opened })
            }
            _ => Err(refused("its URL is not that of an account's blob or queue service")),
        }
    }

    fn from_connection_string(text: &str) -> Result<Self> {
        let given = ConnectionString::read(text)?;
        match given.development {
            Some(value) if value.eq_ignore_ascii_case("true") => return Self::emulator(&given),
            Some(_) => return Err(refused("its UseDevelopmentStorage is not true")),
            None if given.development_proxy.is_some() => {
                return Err(refused(
                    "it has a DevelopmentStorageProxyUri without UseDevelopmentStorage=true",
                ));
            }
            None => {}
        }
        let sign_in = given.sign_in()?;
        let (blobs, queues) =
            (given.blobs.map(endpoint).transpose()?, given.queues.map(endpoint).transpose()?);
        let named = given.account.map(str::to_owned);
        let Some(account) = named.or_else(|| queues.as_ref().or(blobs.as_ref()).and_then(account_of)) else {
            return Err(refused("its AccountName is missing"));
        };
        if account.is_empty() || !account.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(refused("its AccountName is invalid: use letters and digits only"));
        }
        let (blobs, queues) = match (blobs, queues) {
            (Some(blobs), Some(queues)) => (blobs, queues),
            (blobs, queues) => {
                let rest = Self::at_the_cloud(
                    &given,
                    &account,
                    blobs.as_ref().or(queues.as_ref()),
                    sign_in.clone(),
                )?;
                (blobs.unwrap_or(rest.blobs), queues.unwrap_or(rest.queues))
            }
        };
        Ok(Self { account, blobs, queues, sign_in, ca: None })
    }

    /// The emulator, by `UseDevelopmentStorage=true`.
    fn emulator(given: &ConnectionString<'_>) -> Result<Self> {
        let origin = given.development_proxy.unwrap_or("http://127.0.0.1").trim_end_matches('/');
        if given.key.is_some() || given.sas.is_some() || given.blobs.is_some() || given.queues.is_some() {
            return Err(refused(
                "next to UseDevelopmentStorage=true only DevelopmentStorageProxyUri is allowed",
            ));
        }
        if endpoint(origin)?.port().is_some() {
            return Err(refused(
                "its DevelopmentStorageProxyUri has a port; give BlobEndpoint and QueueEndpoint",
            ));
        }
        Self::development(origin)
    }

    /// Uses the cloud's standard endpoints for those that are not given. `other` is the given one.
    fn at_the_cloud(
        given: &ConnectionString<'_>,
        account: &str,
        other: Option<&Url>,
        sign_in: SignIn,
    ) -> Result<Self> {
        let elsewhere = other.is_some_and(|url| url.domain().is_none_or(|domain| domain == "localhost"));
        if elsewhere || account == DEVELOPMENT_ACCOUNT {
            return Err(refused("an emulator's address needs both a BlobEndpoint and a QueueEndpoint"));
        }
        let protocol = match given.protocol.map(str::to_ascii_lowercase).as_deref() {
            None | Some("https") => "https",
            Some("http") => "http",
            Some(_) => return Err(refused("its DefaultEndpointsProtocol is neither http nor https")),
        };
        let cloud =
            Self::in_cloud(protocol, account, check_suffix(given.suffix.unwrap_or(PUBLIC_SUFFIX))?, sign_in)?;
        // The account's own name at another place is a DNS zone, or another cloud; another name is a domain of
        // the customer's.
        let own = format!("{account}.");
        let is_elsewhere = |url: &Url| {
            let is_of_cloud = [&cloud.blobs, &cloud.queues].iter().any(|here| here.host() == url.host());
            !is_of_cloud && url.domain().is_some_and(|domain| domain.starts_with(&own))
        };
        if other.is_some_and(is_elsewhere) {
            // The credential would go to another account of that name.
            return Err(refused(
                "it has one endpoint, which is not where the account would be in its cloud; give both a \
                 BlobEndpoint and a QueueEndpoint",
            ));
        }
        Ok(cloud)
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
        let way = match &self.sign_in {
            SignIn::Identity { client_id: None } => "identity",
            SignIn::Identity { client_id: Some(_) } => "a chosen identity",
            SignIn::Own(_) => "own credential",
            SignIn::Key(_) => "account key",
            SignIn::Sas(_) => "SAS",
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

/// The `HOST:PORT` of an endpoint on this machine.
fn listens_here(endpoint: &Url) -> Option<String> {
    let (host, port) = (endpoint.host_str()?, endpoint.port_or_known_default()?);
    let is_here = host == "localhost"
        || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    is_here.then(|| format!("{host}:{port}"))
}

/// The parts of an endpoint's domain: the account, with its DNS zone if it has one, the service, and the
/// cloud.
/// <https://learn.microsoft.com/azure/storage/common/storage-account-overview#azure-dns-zone-endpoints>
fn split_domain(domain: &str) -> Option<(&str, &str, &str)> {
    let labels: Vec<_> = domain.match_indices('.').map(|(at, _)| at).collect();
    let zone = labels.windows(2).next().map(|ends| &domain[ends[0] + 1..ends[1]]);
    let has_zone = zone.is_some_and(|zone| {
        let number = zone.strip_prefix('z').unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    let end = *labels.get(usize::from(has_zone))?;
    let (service, suffix) = domain[end + 1..].split_once('.')?;
    Some((&domain[..end], service, suffix))
}

/// The account of an endpoint: the first label of its domain, or the first segment of its path at
/// an IP address.
fn account_of(endpoint: &Url) -> Option<String> {
    match endpoint.domain() {
        Some(domain) if domain != "localhost" => domain.split('.').next().map(str::to_owned),
        _ => endpoint.path_segments()?.next().filter(|name| !name.is_empty()).map(str::to_owned),
    }
}

/// Notes the value of a part of the query; one that is given twice is refused.
fn once(name: &str, part: &mut Option<String>, value: &str) -> Result<()> {
    match part.replace(value.to_owned()) {
        None => Ok(()),
        Some(_) => Err(refused(format_args!("it has {name} twice"))),
    }
}

#[cfg(test)]
mod tests;
