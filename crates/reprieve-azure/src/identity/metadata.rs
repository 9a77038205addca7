//! The HTTP client for managed identities: it connects to the metadata service on the VM's own
//! host, without a proxy.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::http::{AsyncRawResponse, HttpClient, Request};
use tokio::sync::watch;

/// The connect timeout: the service is on the VM's own host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The time limit of an answer in an Azure VM, where the service is known to exist. It may be slow
/// in a VM's first minutes, or while its host is updated.
const ANSWER_TIMEOUT_AZURE: Duration = Duration::from_secs(20);

/// The time limit of an answer elsewhere: long enough for a token of App Service or Container Apps,
/// short enough for a laptop whose network drops packets to the address.
const ANSWER_TIMEOUT_ELSEWHERE: Duration = Duration::from_secs(5);

/// The tag that every Azure VM has in its firmware tables.
/// <https://docs.cloud-init.io/en/latest/reference/datasources/azure.html>
const AZURE_ASSET_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

/// Whether this machine is certainly an Azure VM. It may be one even if this returns false: not
/// every container can read the firmware's tables.
pub(crate) fn is_azure_vm() -> bool {
    std::fs::read_to_string("/sys/class/dmi/id/chassis_asset_tag")
        .is_ok_and(|tag| tag.trim() == AZURE_ASSET_TAG)
}

/// A client for the metadata service.
pub(super) fn client(azure_vm: bool) -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(if azure_vm { ANSWER_TIMEOUT_AZURE } else { ANSWER_TIMEOUT_ELSEWHERE })
        .pool_max_idle_per_host(0)
        .build()
}

/// Forwards requests, and notes when one gets no answer or a refusal: the SDK above it would retry for 72 s,
/// and not say why.
#[derive(Debug)]
pub(super) struct Listening {
    http: Arc<dyn HttpClient>,
    unheard: watch::Sender<bool>,
    refusal: OnceLock<u16>,
}

impl Listening {
    pub(super) fn new(http: Arc<dyn HttpClient>) -> Arc<Self> {
        Arc::new(Self { http, unheard: watch::Sender::new(false), refusal: OnceLock::new() })
    }

    /// The status of the first refusal.
    pub(super) fn refusal(&self) -> Option<u16> {
        self.refusal.get().copied()
    }

    /// Waits until a request got no answer at all.
    pub(super) async fn unheard(&self) {
        let mut unheard = self.unheard.subscribe();
        // The sender lives in `self`, so this can't fail.
        let _ = unheard.wait_for(|unheard| *unheard).await;
    }
}

#[async_trait]
impl HttpClient for Listening {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let answer = self.http.execute_request(request).await;
        match &answer {
            Err(_) => drop(self.unheard.send_replace(true)),
            Ok(answer) if !answer.status().is_success() => {
                let status = u16::from(answer.status());
                if self.refusal.set(status).is_ok() {
                    tracing::warn!(status, "the metadata service gives no token");
                }
            }
            Ok(_) => {}
        }
        answer
    }
}
