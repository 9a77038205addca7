//! Parses the connection strings of the portal, `az` and Azurite's documentation.
//! <https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string>

use azure_core::credentials::Secret;
use reprieve_core::Result;
use reqwest::Url;

use super::{Address, DEVELOPMENT_ACCOUNT, PUBLIC_SUFFIX, WayIn, check_suffix, endpoint, read_sas, refused};

/// The values of a connection string, unchecked.
#[derive(Default)]
struct Said<'a> {
    account: Option<&'a str>,
    key: Option<&'a str>,
    sas: Option<&'a str>,
    protocol: Option<&'a str>,
    suffix: Option<&'a str>,
    blobs: Option<&'a str>,
    queues: Option<&'a str>,
    development: Option<&'a str>,
    development_proxy: Option<&'a str>,
}

/// Parses a connection string into an address.
pub(super) fn parse(text: &str) -> Result<Address> {
    let said = Said::read(text)?;
    match said.development {
        Some(value) if value.eq_ignore_ascii_case("true") => return said.emulator(),
        Some(_) => return Err(refused("its UseDevelopmentStorage is not true")),
        None if said.development_proxy.is_some() => {
            return Err(refused("it has a DevelopmentStorageProxyUri without UseDevelopmentStorage=true"));
        }
        None => {}
    }
    let way = said.way_in()?;
    let (blobs, queues) = (said.blobs.map(endpoint).transpose()?, said.queues.map(endpoint).transpose()?);
    let named = said.account.map(str::to_owned);
    let Some(account) = named.or_else(|| queues.as_ref().or(blobs.as_ref()).and_then(account_of)) else {
        return Err(refused("its AccountName is missing"));
    };
    if account.is_empty() || !account.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(refused("its AccountName is none: letters and digits only"));
    }
    let (blobs, queues) = match (blobs, queues) {
        (Some(blobs), Some(queues)) => (blobs, queues),
        (blobs, queues) => {
            let rest = said.at_the_cloud(&account, blobs.as_ref().or(queues.as_ref()), way.clone())?;
            (blobs.unwrap_or(rest.blobs), queues.unwrap_or(rest.queues))
        }
    };
    Ok(Address { account, blobs, queues, way, ca: None })
}

impl<'a> Said<'a> {
    fn read(text: &'a str) -> Result<Self> {
        let mut said = Self::default();
        for (number, part) in text.split(';').map(str::trim).enumerate() {
            if part.is_empty() {
                continue;
            }
            let Some((key, value)) = part.split_once('=') else {
                return Err(refused(format_args!("part {} of the connection string has no '='", number + 1)));
            };
            let place = match key.trim().to_ascii_lowercase().as_str() {
                "accountname" => &mut said.account,
                "accountkey" => &mut said.key,
                "sharedaccesssignature" => &mut said.sas,
                "defaultendpointsprotocol" => &mut said.protocol,
                "endpointsuffix" => &mut said.suffix,
                "blobendpoint" => &mut said.blobs,
                "queueendpoint" => &mut said.queues,
                "usedevelopmentstorage" => &mut said.development,
                "developmentstorageproxyuri" => &mut said.development_proxy,
                // Services that are not used here, but occur in the portal's strings.
                "tableendpoint"
                | "fileendpoint"
                | "dfsendpoint"
                | "blobsecondaryendpoint"
                | "queuesecondaryendpoint"
                | "tablesecondaryendpoint"
                | "filesecondaryendpoint" => continue,
                _ => return Err(unknown(number, key)),
            };
            if place.replace(value.trim()).is_some() {
                return Err(refused(format_args!("it says {} twice", key.trim())));
            }
        }
        Ok(said)
    }

    fn emulator(&self) -> Result<Address> {
        let origin = self.development_proxy.unwrap_or("http://127.0.0.1").trim_end_matches('/');
        if self.key.is_some() || self.sas.is_some() || self.blobs.is_some() || self.queues.is_some() {
            return Err(refused(
                "next to UseDevelopmentStorage=true only DevelopmentStorageProxyUri may stand",
            ));
        }
        if endpoint(origin)?.port().is_some() {
            return Err(refused(
                "its DevelopmentStorageProxyUri has a port; give BlobEndpoint and QueueEndpoint",
            ));
        }
        Address::development(origin)
    }

    fn way_in(&self) -> Result<WayIn> {
        match (self.key, self.sas) {
            (Some(_), Some(_)) => {
                Err(refused("it has both an AccountKey and a SharedAccessSignature; give one"))
            }
            (Some(key), None) if azure_core::base64::decode(key).is_ok_and(|key| !key.is_empty()) => {
                Ok(WayIn::Key(Secret::new(key.to_owned())))
            }
            (Some(_), None) => Err(refused("its AccountKey is no base64, so it was not copied whole")),
            (None, Some(sas)) => Ok(WayIn::Sas(read_sas(sas)?)),
            (None, None) => Ok(WayIn::Identity { client_id: None }),
        }
    }

    /// Uses the cloud's standard endpoints for those that are not given. `other` is the given one.
    fn at_the_cloud(&self, account: &str, other: Option<&Url>, way: WayIn) -> Result<Address> {
        let elsewhere = other.is_some_and(|url| url.domain().is_none_or(|domain| domain == "localhost"));
        if elsewhere || account == DEVELOPMENT_ACCOUNT {
            return Err(refused("an emulator's address needs both a BlobEndpoint and a QueueEndpoint"));
        }
        let protocol = match self.protocol.map(str::to_ascii_lowercase).as_deref() {
            None | Some("https") => "https",
            Some("http") => "http",
            Some(_) => return Err(refused("its DefaultEndpointsProtocol is neither http nor https")),
        };
        Address::in_cloud(protocol, account, check_suffix(self.suffix.unwrap_or(PUBLIC_SUFFIX))?, way)
    }
}

/// The account of an endpoint: the first label of its domain, or the first segment of its path at
/// an IP address.
fn account_of(endpoint: &Url) -> Option<String> {
    match endpoint.domain() {
        Some(domain) if domain != "localhost" => domain.split('.').next().map(str::to_owned),
        _ => endpoint.path_segments()?.next().filter(|name| !name.is_empty()).map(str::to_owned),
    }
}

/// The error for an unknown setting. It repeats only text that is certainly a name: a pasted key
/// ends in `==` too.
fn unknown(number: usize, key: &str) -> reprieve_core::Error {
    let key = key.trim();
    let lower = key.to_ascii_lowercase();
    let is_name = ["account", "count", "endpoint", "name", "protocol", "signature", "storage", "suffix"]
        .iter()
        .any(|word| lower.contains(word));
    if is_name && key.len() <= 40 && key.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        refused(format_args!("the connection string says {key}, which is unknown"))
    } else {
        refused(format_args!("part {} of the connection string is unknown", number + 1))
    }
}
