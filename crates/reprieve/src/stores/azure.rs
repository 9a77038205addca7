//! A store in a storage account, or in its emulator.

use reprieve_azure::storage::{Address, AzureStore, ContainerName, Options};
use reprieve_core::{QueueName, Result};

use super::Purpose;

/// Parses an address. The variable that Azure's own libraries read chooses one of several identities,
/// where the address names none.
/// <https://learn.microsoft.com/dotnet/api/azure.identity.defaultazurecredential>
pub(super) fn parse(text: &str) -> Result<Box<Address>, String> {
    let address = Address::parse(text).map_err(|error| error.message().to_owned())?;
    let Some(id) = client_id() else { return Ok(Box::new(address)) };
    address.with_client_id(&id).map(Box::new).map_err(|_| "AZURE_CLIENT_ID is not a GUID; set the client id of one of this machine's identities, or unset it".to_owned())
}

/// The client id of the identity that this machine is to use, if one is chosen.
pub(crate) fn client_id() -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "it is Azure's variable, and no setting of Reprieve's")]
    let chosen = std::env::var("AZURE_CLIENT_ID").ok()?;
    Some(chosen.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Returns whether the text looks like a connection string or a shared access signature.
/// <https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string>
pub(super) fn is_secret(text: &str) -> bool {
    const MARKS: [&str; 7] = [
        "accountkey=",
        "sharedaccesssignature=",
        "defaultendpointsprotocol=",
        "queueendpoint=",
        "blobendpoint=",
        "usedevelopmentstorage=",
        "sig=",
    ];
    let text = text.to_ascii_lowercase();
    MARKS.iter().any(|mark| text.contains(mark))
}

/// Returns whether the text looks like a connection string, maybe of an identity, which is no secret.
pub(super) fn is_connection_string(text: &str) -> bool {
    let mut keys = text.split(';').filter_map(|part| part.split_once('=')).map(|(key, _)| key.trim());
    keys.any(|key| key.eq_ignore_ascii_case("AccountName"))
}

/// A role that was assigned a moment ago may not have taken effect yet, so a refusal is not a wrong
/// setting, and its error stays as it is.
pub(super) async fn open(
    address: &Address,
    queues: &[QueueName],
    container: &ContainerName,
    purpose: &Purpose,
) -> Result<AzureStore> {
    let options = Options::new(queues.to_vec()).container(container.clone());
    let options = match purpose {
        Purpose::Working(_, io) => options.io(io.clone()),
        Purpose::Enqueueing => options.enqueueing(),
        Purpose::Reading => options.existing(),
    };
    AzureStore::open(address, options).await
}
