//! Calls the control API of a running mock or test double.

use std::time::Duration;

use reprieve_core::{Error, ErrorKind, Result};
use reqwest::{Method, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest time for one call: the mock is on this machine and does little work per call.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The mock to call.
pub(crate) struct Mock {
    /// Its name in error messages, as it follows "no".
    pub(crate) name: &'static str,
    /// Its default address.
    pub(crate) example: &'static str,
    /// The command that starts one.
    pub(crate) command: &'static str,
}

/// The body of a refusal.
#[derive(Deserialize)]
struct Problem {
    error: String,
}

impl Mock {
    /// Sends `body` to `path` of the mock at `url`, and ignores the path of `url`.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for an invalid address,
    /// [`Unavailable`](ErrorKind::Unavailable) when nothing answers there,
    /// [`Corrupt`](ErrorKind::Corrupt) when something else answers, and the mock's own refusals.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        method: Method,
        url: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T> {
        let mut whole = match Url::parse(url) {
            Ok(whole) if whole.scheme() == "http" => whole,
            _ => {
                let message =
                    format!("{url:?} is not the address of a {}, such as {}", self.name, self.example);
                return Err(Error::new(ErrorKind::Invalid, operation, message));
            }
        };
        whole.set_path(path);
        whole.set_query(None);
        let unanswered = |error: reqwest::Error| {
            let message = format!("no {} answers at {url}; start one with `{}`", self.name, self.command);
            Error::new(ErrorKind::Unavailable, operation, message).with_source(error.without_url())
        };
        let http = reqwest::Client::builder().no_proxy().timeout(TIMEOUT).build().map_err(unanswered)?;
        let answer = http.request(method, whole).json(body).send().await.map_err(unanswered)?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(unanswered)?;
        self.read(operation, status, &body)
    }

    fn read<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        status: StatusCode,
        body: &[u8],
    ) -> Result<T> {
        if status.is_success() {
            // An answer without a body means `()`.
            let body = if body.is_empty() { b"null" } else { body };
            return serde_json::from_slice(body).map_err(|error| {
                let message = format!("what answers there is no {}", self.name);
                Error::new(ErrorKind::Corrupt, operation, message).with_source(error)
            });
        }
        let kind = match status {
            StatusCode::NOT_FOUND => ErrorKind::NotFound,
            StatusCode::CONFLICT => ErrorKind::Conflict,
            status if status.is_server_error() => ErrorKind::Unavailable,
            _ => ErrorKind::Invalid,
        };
        let message = serde_json::from_slice(body).map_or_else(
            |_| format!("it answered {status}, as no {} would", self.name),
            |Problem { error }| error,
        );
        Err(Error::new(kind, operation, message))
    }
}
