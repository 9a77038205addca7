//! Parses the connection strings of the portal, `az` and Azurite's documentation.
//! <https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string>

use azure_core::credentials::Secret;
use reprieve_core::Result;

use super::parts::{SignIn, is_guid, read_sas, refused};

/// The values of a connection string, unchecked.
#[derive(Default)]
pub(super) struct ConnectionString<'a> {
    pub(super) account: Option<&'a str>,
    pub(super) key: Option<&'a str>,
    pub(super) sas: Option<&'a str>,
    pub(super) protocol: Option<&'a str>,
    pub(super) suffix: Option<&'a str>,
    pub(super) blobs: Option<&'a str>,
    pub(super) queues: Option<&'a str>,
    pub(super) development: Option<&'a str>,
    pub(super) development_proxy: Option<&'a str>,
    /// Reprieve's own: selects one of several identities.
    pub(super) client_id: Option<&'a str>,
}

impl<'a> ConnectionString<'a> {
    /// Splits the text into its settings.
    pub(super) fn read(text: &'a str) -> Result<Self> {
        let mut found = Self::default();
        for (number, part) in text.split(';').map(str::trim).enumerate() {
            if part.is_empty() {
                continue;
            }
            let Some((key, value)) = part.split_once('=') else {
                return Err(refused(format_args!("part {} of the connection string has no '='", number + 1)));
            };
            let place = match key.trim().to_ascii_lowercase().as_str() {
                "accountname" => &mut found.account,
                "accountkey" => &mut found.key,
                "sharedaccesssignature" => &mut found.sas,
                "defaultendpointsprotocol" => &mut found.protocol,
                "endpointsuffix" => &mut found.suffix,
                "blobendpoint" => &mut found.blobs,
                "queueendpoint" => &mut found.queues,
                "usedevelopmentstorage" => &mut found.development,
                "developmentstorageproxyuri" => &mut found.development_proxy,
                "clientid" | "client_id" => &mut found.client_id,
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
                return Err(refused(format_args!("it has {} twice", key.trim())));
            }
        }
        Ok(found)
    }

    /// The credential that it contains, or the identity of this machine.
    pub(super) fn sign_in(&self) -> Result<SignIn> {
        let client_id = match self.client_id {
            Some(_) if self.key.is_some() || self.sas.is_some() => {
                return Err(refused("it has a ClientId, which selects an identity, and another credential"));
            }
            Some(id) if !is_guid(id) => return Err(refused("its ClientId is not a GUID")),
            client_id => client_id.map(str::to_owned),
        };
        match (self.key, self.sas) {
            (Some(_), Some(_)) => {
                Err(refused("it has both an AccountKey and a SharedAccessSignature; give one"))
            }
            (Some(key), None) if azure_core::base64::decode(key).is_ok_and(|key| !key.is_empty()) => {
                Ok(SignIn::Key(Secret::new(key.to_owned())))
            }
            (Some(_), None) => Err(refused("its AccountKey is not base64, so it was not copied completely")),
            (None, Some(sas)) => Ok(SignIn::Sas(read_sas(sas)?)),
            (None, None) => Ok(SignIn::Identity { client_id }),
        }
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
        refused(format_args!("the connection string has {key}, which is unknown"))
    } else {
        refused(format_args!("part {} of the connection string is unknown", number + 1))
    }
}
