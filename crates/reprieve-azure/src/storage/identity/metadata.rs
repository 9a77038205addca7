//! The HTTP client for managed identities: to the metadata service on the VM's own host, past every proxy.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::http::{AsyncRawResponse, HttpClient, Request};
use tokio::sync::watch;

/// How long a connection may take: it goes to the VM's own host.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an answer may take in an Azure VM, where the service is known to be there. In the first minutes of a VM, or
/// while its host is updated, it may be slow.
const ANSWER_TIMEOUT_AZURE: Duration = Duration::from_secs(20);

/// How long an answer may take elsewhere: long enough for a token of App Service or Container Apps, short enough for a
/// laptop whose network swallows what goes to the address.
const ANSWER_TIMEOUT_ELSEWHERE: Duration = Duration::from_secs(5);

/// The tag that every Azure VM has in its firmware tables.
/// <https://docs.cloud-init.io/en/latest/reference/datasources/azure.html>
const AZURE_ASSET_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

/// Whether this machine is an Azure VM for certain. Where this says no it may be one all the same: not every container
/// sees the firmware's tables.
pub(in super::super) fn is_azure_vm() -> bool {
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

/// Passes requests on and tells whether anybody answers: the SDK above goes on asking for 72 s where nobody is.
#[derive(Debug)]
pub(super) struct Listening {
    http: Arc<dyn HttpClient>,
    unheard: watch::Sender<bool>,
}

impl Listening {
    pub(super) fn new(http: Arc<dyn HttpClient>) -> Arc<Self> {
        Arc::new(Self { http, unheard: watch::Sender::new(false) })
    }

    /// Waits until a request was not answered at all.
    pub(super) async fn unheard(&self) {
        let mut unheard = self.unheard.subscribe();
        // The sender is `self`, so this ends only when it is so.
        let _ = unheard.wait_for(|unheard| *unheard).await;
    }
}

#[async_trait]
impl HttpClient for Listening {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let answer = self.http.execute_request(request).await;
        if answer.is_err() {
            self.unheard.send_replace(true);
        }
        answer
    }
}
