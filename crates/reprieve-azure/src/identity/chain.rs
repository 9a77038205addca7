//! Finds the identity that this program runs as: tries the possible ones in order and keeps the
//! first that works.

use std::fmt::Write as _;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use azure_core::cloud::CloudConfiguration;
use azure_core::credentials::{AccessToken, TokenCredential};
use azure_core::http::{ClientOptions, HttpClient, RetryOptions, Transport};
use azure_identity::{
    AzureCliCredential, AzureCliCredentialOptions, ClientAssertionCredentialOptions, Executor,
    ManagedIdentityCredential, ManagedIdentityCredentialOptions, UserAssignedId, WorkloadIdentityCredential,
    WorkloadIdentityCredentialOptions,
};
use reprieve_core::{Error, ErrorKind, Result};
use tokio::time::timeout;

use super::NoIdentity;
use super::metadata::{Listening, client, is_azure_vm};

/// The time limit for Entra ID's token service.
const WORKLOAD_LIMIT: Duration = Duration::from_secs(30);

/// The time limit for the metadata service once it has answered at all, or in a VM that is known to
/// be Azure's: a new VM's identity may be missing for some minutes.
const MANAGED_LIMIT: Duration = Duration::from_secs(60);

/// The time limit for the Azure CLI. It is a Python program that calls a service.
const CLI_LIMIT: Duration = Duration::from_secs(20);

/// The time limit for the program's own credential.
const OWN_LIMIT: Duration = Duration::from_secs(30);

/// How many characters of a failure's own text are repeated.
const EXCERPT_CHARS_MAX: usize = 160;

/// The possible identities.
#[derive(Debug)]
pub(crate) struct Chain {
    /// The service for which the tokens are.
    scope: &'static str,
    identities: Vec<Identity>,
    /// The first that gave a token.
    kept: OnceLock<usize>,
}

/// A possible identity.
///
/// Each token is requested from a new credential of the SDK, because a credential caches its token
/// until five minutes before the end.
#[derive(Debug)]
enum Identity {
    Workload { client_id: Option<String>, options: Box<ClientOptions> },
    Managed { client_id: Option<String>, http: Arc<dyn HttpClient>, azure_vm: bool },
    Cli { executor: Option<Arc<dyn Executor>> },
    Own(Arc<dyn TokenCredential>),
}

/// Why an identity gave no token.
#[derive(Debug)]
enum Why {
    /// It does not exist, or is not this program's: another may work.
    Absent(String),
    /// It exists, but was refused.
    Refused(String),
    /// It exists, but gives no token at the moment.
    NotNow(String),
}

impl Chain {
    /// Tries workload identity in a pod that is configured for it, then a managed identity, then
    /// the Azure CLI's login.
    ///
    /// `client_id` selects one of several managed identities, or replaces the pod's; then the login is not
    /// used.
    pub(crate) fn of_this_machine(
        scope: &'static str,
        client_id: Option<String>,
        cloud: CloudConfiguration,
    ) -> Result<Self> {
        let azure_vm = is_azure_vm();
        let http = client(azure_vm).map_err(|error| {
            let cause = crate::cause::root_cause(&error);
            Error::new(ErrorKind::Internal, "set up the metadata client", cause)
        })?;
        let options = ClientOptions {
            cloud: Some(Arc::new(cloud)),
            retry: RetryOptions::none(),
            ..ClientOptions::default()
        };
        // A person's login is not the identity that was chosen.
        let cli = client_id.is_none().then_some(Identity::Cli { executor: None });
        let mut identities = vec![
            Identity::Workload { client_id: client_id.clone(), options: Box::new(options) },
            Identity::Managed { client_id, http: Arc::new(http), azure_vm },
        ];
        identities.extend(cli);
        Ok(Self::new(scope, identities))
    }

    /// Uses only this credential.
    pub(crate) fn of(scope: &'static str, credential: Arc<dyn TokenCredential>) -> Self {
        Self::new(scope, vec![Identity::Own(credential)])
    }

    fn new(scope: &'static str, identities: Vec<Identity>) -> Self {
        Self { scope, identities, kept: OnceLock::new() }
    }

    /// The name of the identity that gave a token.
    pub(crate) fn kept(&self) -> &'static str {
        self.kept.get().map_or("none", |at| self.identities[*at].name())
    }

    /// Requests a new token from the identity that gave one before, or else from the first that
    /// gives one now.
    pub(crate) async fn token(&self) -> Result<AccessToken, NoIdentity> {
        let kept = self.kept.get().map(|at| (*at, &self.identities[*at]));
        let candidates = kept.map_or_else(|| self.identities.iter().enumerate().collect(), |kept| vec![kept]);
        let mut tried = Vec::new();
        for (at, identity) in candidates {
            match identity.token(self.scope).await {
                Ok(token) => {
                    if self.kept.set(at).is_ok() {
                        tracing::info!(identity = identity.name(), "signed in to Azure");
                    }
                    return Ok(token);
                }
                Err(why) => {
                    let ends = !matches!(why, Why::Absent(_));
                    tried.push((identity.name(), why));
                    if ends {
                        break;
                    }
                }
            }
        }
        Err(no_identity(&tried))
    }
}

impl Identity {
    const fn name(&self) -> &'static str {
        match self {
            Self::Workload { .. } => "workload identity",
            Self::Managed { .. } => "managed identity",
            Self::Cli { .. } => "Azure CLI",
            Self::Own(_) => "own credential",
        }
    }

    async fn token(&self, scope: &str) -> Result<AccessToken, Why> {
        match self {
            Self::Workload { client_id, options } => {
                workload(scope, client_id.clone(), ClientOptions::clone(options)).await
            }
            Self::Managed { client_id, http, azure_vm } => {
                managed(scope, client_id.clone(), http.clone(), *azure_vm).await
            }
            Self::Cli { executor } => cli(scope, executor.clone()).await,
            Self::Own(credential) => within(OWN_LIMIT, credential.get_token(&[scope], None)).await,
        }
    }
}

/// A pod's identity. A pod is configured for it on purpose, so no other identity is tried instead.
/// <https://learn.microsoft.com/azure/aks/workload-identity-overview>
async fn workload(
    scope: &str,
    client_id: Option<String>,
    options: ClientOptions,
) -> Result<AccessToken, Why> {
    let options = WorkloadIdentityCredentialOptions {
        client_id,
        credential_options: ClientAssertionCredentialOptions { client_options: options },
        ..WorkloadIdentityCredentialOptions::default()
    };
    match WorkloadIdentityCredential::new(Some(options)) {
        Ok(credential) => within(WORKLOAD_LIMIT, credential.get_token(&[scope], None)).await,
        Err(error) if is_unset(&error) => Err(Why::Absent(
            "AZURE_FEDERATED_TOKEN_FILE, AZURE_TENANT_ID and AZURE_CLIENT_ID are not all set".to_owned(),
        )),
        Err(error) => Err(Why::Refused(words_of(&error))),
    }
}

/// The managed identity of a VM or of another Azure service that runs this program.
/// <https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token>
async fn managed(
    scope: &str,
    client_id: Option<String>,
    http: Arc<dyn HttpClient>,
    azure_vm: bool,
) -> Result<AccessToken, Why> {
    let listening = Listening::new(http);
    let options = ManagedIdentityCredentialOptions {
        user_assigned_id: client_id.map(UserAssignedId::ClientId),
        client_options: ClientOptions {
            transport: Some(Transport::new(listening.clone())),
            ..ClientOptions::default()
        },
    };
    let credential =
        ManagedIdentityCredential::new(Some(options)).map_err(|error| Why::Absent(words_of(&error)))?;
    let scopes = [scope];
    let asked = within(MANAGED_LIMIT, credential.get_token(&scopes, None));
    let answer = tokio::select! {
        biased;
        answer = asked => answer,
        () = listening.unheard(), if !azure_vm => {
            Err(Why::Absent("nothing answers at the metadata service's address, as outside Azure".to_owned()))
        }
    };
    match answer {
        Err(Why::NotNow(why)) => Err(Why::NotNow(match listening.refusal() {
            Some(status) if !why.contains(&status.to_string()) => format!("{why}; it answered {status}"),
            _ => why,
        })),
        // The service exists but knows no such identity: this may be a developer's VM, with a
        // person's login.
        Err(Why::Refused(why)) => Err(Why::Absent(why)),
        answer => answer,
    }
}

/// The login of a person, on their own machine.
async fn cli(scope: &str, executor: Option<Arc<dyn Executor>>) -> Result<AccessToken, Why> {
    let options = AzureCliCredentialOptions { executor, ..AzureCliCredentialOptions::default() };
    let credential = AzureCliCredential::new(Some(options)).map_err(|error| Why::Absent(words_of(&error)))?;
    within(CLI_LIMIT, credential.get_token(&[scope], None)).await.map_err(|why| match why {
        Why::Refused(why) | Why::NotNow(why) | Why::Absent(why) => Why::Absent(why),
    })
}

async fn within(
    limit: Duration,
    asked: impl Future<Output = azure_core::Result<AccessToken>>,
) -> Result<AccessToken, Why> {
    match timeout(limit, asked).await {
        Ok(Ok(token)) => Ok(token),
        Ok(Err(error)) if may_pass(&error) => Err(Why::NotNow(words_of(&error))),
        Ok(Err(error)) => Err(Why::Refused(words_of(&error))),
        Err(_) => Err(Why::NotNow(format!("no token within {limit:?}"))),
    }
}

/// Whether this error, or the one behind it, is temporary.
fn may_pass(error: &azure_core::Error) -> bool {
    use azure_core::error::ErrorKind as Sdk;
    let behind = error.downcast_ref::<azure_core::Error>();
    match error.kind() {
        Sdk::Connection | Sdk::Io => true,
        Sdk::HttpResponse { status, .. } => matches!(u16::from(*status), 404 | 408 | 410 | 429 | 500..),
        _ => behind.is_some_and(may_pass),
    }
}

/// Whether a credential could not be created because an environment variable is missing.
fn is_unset(error: &azure_core::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if matches!(error.downcast_ref(), Some(std::env::VarError::NotPresent)) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The first sentence of the SDK's text, without the name of its type and its link to a manual.
fn words_of(error: &azure_core::Error) -> String {
    let text = error.to_string();
    let text = text.split("\nTo troubleshoot").next().unwrap_or_default();
    let text = text.split_once("authentication failed.").map_or(text, |(_, text)| text);
    let line = text.trim().lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it failed");
    line.chars().filter(|c| !c.is_control()).take(EXCERPT_CHARS_MAX).collect()
}

fn no_identity(tried: &[(&'static str, Why)]) -> NoIdentity {
    let mut text = String::from("no identity gave a token:");
    let mut may_pass = false;
    for (at, (name, why)) in tried.iter().enumerate() {
        let (Why::Absent(words) | Why::Refused(words) | Why::NotNow(words)) = why;
        may_pass |= matches!(why, Why::NotNow(_));
        let separator = if at == 0 { "" } else { "," };
        let _ = write!(text, "{separator} {name}: {}", words.trim_end_matches('.'));
    }
    // A temporary failure needs no action, and a program with its own credential knows its remedy.
    if !may_pass && !matches!(tried, [("own credential", _)]) {
        text.push_str(
            "; assign a managed identity to this VM (where it has several, choose with AZURE_CLIENT_ID, for a store \
             also with azure:ACCOUNT?client_id=…)",
        );
        text.push_str(if tried.iter().any(|(name, _)| *name == "Azure CLI") {
            ", or run `az login`"
        } else {
            ", or choose none by client_id or AZURE_CLIENT_ID and run `az login`"
        });
    }
    NoIdentity::new(text, may_pass)
}

#[cfg(test)]
mod tests;
