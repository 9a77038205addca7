//! The identity that signs in to the account, and when it expires.

use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use reprieve_core::{Error, ErrorKind, Result};
use reqwest::Url;
use tokio::time::{Instant, timeout};

use super::CHECK_MAX;
use crate::storage::call::Access;
use crate::storage::call::Pass;

/// The credential that signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedIn {
    /// Its kind, such as `managed identity` or `account key`.
    pub by: &'static str,
    /// When it expires; `None` for one without an end, and for a SAS with a stored policy.
    pub until: Option<Timestamp>,
    /// How long the token took; `None` without a token.
    pub took: Option<Duration>,
}

pub(super) async fn sign_in(access: &Access) -> Result<SignedIn> {
    let began = Instant::now();
    timeout(CHECK_MAX, access.ready()).await.unwrap_or_else(|_| {
        let message = format!("no identity gave a token within {CHECK_MAX:?}");
        Err(Error::new(ErrorKind::TimedOut, "sign in to Azure", message))
    })?;
    Ok(match access.pass() {
        Pass::Key(_) => SignedIn { by: "account key", until: None, took: None },
        Pass::Sas(sas) => SignedIn { by: "SAS", until: end_of_sas(sas.secret()), took: None },
        Pass::Token(token) => {
            let at_hand = token.at_hand();
            let until = at_hand.and_then(|(_, until)| Timestamp::try_from(until).ok());
            SignedIn { by: at_hand.map_or("an identity", |(by, _)| by), until, took: Some(began.elapsed()) }
        }
    })
}

/// The end of a SAS, from its field `se`: a date, or a time in UTC.
/// <https://learn.microsoft.com/rest/api/storageservices/formatting-datetime-values>
fn end_of_sas(sas: &str) -> Option<Timestamp> {
    let url = Url::parse(&format!("sas:?{sas}")).ok()?;
    let (_, end) = url.query_pairs().find(|(key, _)| key == "se")?;
    let date = || Some(end.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp());
    end.parse().ok().or_else(date)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_sas_is_read_in_each_form_that_there_is() {
        let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        for (end, read) in [
            ("2026-12-01", at("2026-12-01T00:00:00Z")),
            ("2026-12-01T08%3A30Z", at("2026-12-01T08:30:00Z")),
            ("2026-12-01T08:30:05Z", at("2026-12-01T08:30:05Z")),
            ("tomorrow", None),
        ] {
            assert_eq!(end_of_sas(&format!("sv=2022-11-02&se={end}&sig=x")), read, "{end}");
        }
        assert_eq!(end_of_sas("sv=2022-11-02&si=policy&sig=x"), None);
    }
}
