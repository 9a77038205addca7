//! Whether the services answer, how fast, and how far their clocks differ.

use std::time::{Duration, SystemTime};

use azure_core::error::ErrorKind as SdkKind;
use azure_core::http::headers::Headers;
use jiff::{SignedDuration, Timestamp};
use reprieve_core::{Error, ErrorKind, QueueName, Result, clock};
use tokio::time::{Instant, timeout};

use crate::storage::blob::ContainerName;
use crate::storage::call::{Access, Effort, Target, date, failure, temporary};

const OPERATION: &str = "reach the service";

/// A service that answered, with a success or an error.
#[derive(Debug)]
pub struct Reached {
    /// How long the answer took, with a new connection.
    pub took: Duration,
    /// How far the service's clock is ahead of this machine's, in whole seconds; `None` if there
    /// was no `Date` header.
    pub ahead: Option<SignedDuration>,
    /// The error when the service does not accept the credentials, or accepts no one's: nothing
    /// else will work.
    pub turned_away: Option<Error>,
}

pub(super) async fn reach(
    access: &Access,
    queue: Option<&QueueName>,
    container: &ContainerName,
) -> [Result<Reached>; 2] {
    let queue = queue.map_or("any", QueueName::as_str);
    let queues = Effort::CHECK.repeat(OPERATION, Effort::CHECK.whole_try(), temporary, || async move {
        let (client, target) = (access.queue(queue)?, Target::Queue(queue));
        let asked = async { Ok(client.get_properties(None).await?.headers().clone()) };
        read(target, asked).await
    });
    let blobs = Effort::CHECK.repeat(OPERATION, Effort::CHECK.whole_try(), temporary, || async move {
        let (client, target) = (access.container(container.as_str())?, Target::Container(container.as_str()));
        let asked = async { Ok(client.get_properties(None).await?.headers().clone()) };
        read(target, asked).await
    });
    let (queues, blobs) = tokio::join!(queues, blobs);
    [queues, blobs]
}

/// Reads any answer of the service, also a refusal.
async fn read(
    target: Target<'_>,
    asked: impl Future<Output = azure_core::Result<Headers>>,
) -> Result<Reached> {
    let (began, wall) = (Instant::now(), clock::wall_now());
    let Ok(answer) = timeout(Effort::CHECK.each, asked).await else {
        let message = format!("it gave no answer within {:?}", Effort::CHECK.each);
        return Err(Error::new(ErrorKind::TimedOut, OPERATION, message));
    };
    let took = began.elapsed();
    let error = match answer {
        Ok(headers) => {
            return Ok(Reached { took, ahead: ahead(&headers, wall + took / 2), turned_away: None });
        }
        Err(error) => error,
    };
    let SdkKind::HttpResponse { status, error_code, raw_response: Some(raw) } = error.kind() else {
        return Err(failure(OPERATION, target, error));
    };
    let ahead = ahead(raw.headers(), wall + took / 2);
    let turned_away = is_turned_away(u16::from(*status), error_code.as_deref().unwrap_or_default());
    let turned_away = turned_away.then(|| failure(OPERATION, target, error));
    Ok(Reached { took, ahead, turned_away })
}

/// Computed from the Date header: half a second is added, because it has whole seconds.
fn ahead(headers: &Headers, here: SystemTime) -> Option<SignedDuration> {
    let there = SystemTime::from(date(headers)?) + Duration::from_millis(500);
    Some(Timestamp::try_from(there).ok()?.duration_since(Timestamp::try_from(here).ok()?))
}

/// Whether the refusal concerns the client's credentials, not the requested resource.
/// <https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes>
fn is_turned_away(status: u16, code: &str) -> bool {
    const WHO: [&str; 5] = [
        "AccountIsDisabled",
        "AuthenticationFailed",
        "InvalidAuthenticationInfo",
        "KeyBasedAuthenticationNotPermitted",
        "NoAuthenticationInformation",
    ];
    status == 401 || WHO.contains(&code)
}
