//! Maps an error answer of the service to an error kind and a remedy.

use std::fmt;
use std::time::Duration;

use azure_core::http::RawResponse;
use azure_core::http::headers::HeaderName;
use azure_core::time::OffsetDateTime;
use reprieve_core::{ErrorKind, clock};

use super::super::transport::{ACCOUNT_HEADER, ENDPOINT_HEADER, WAY_HEADER};
use super::Target;
use crate::storage::account::DEVELOPMENT_ACCOUNT;
use crate::storage::call::date;

/// How far this machine's clock must differ from the service's before the error blames it. The
/// service itself tolerates 15 minutes for a signature, and 5 for a token's start.
/// <https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key#specifying-the-date-header>
const CLOCK_OFF_MIN: Duration = Duration::from_secs(5 * 60);

/// How many characters of the service's own text are repeated.
const EXCERPT_CHARS_MAX: usize = 200;

/// The part of an error answer that is kept as the error's source: the data that support asks for.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) code: String,
    request_id: Option<String>,
}

/// An error answer.
pub(super) struct Refusal {
    pub(super) answer: Answer,
    /// The service's own sentence. Not shown if it is about authentication.
    words: String,
    /// The detail of a failed authentication, which is searched but never shown: it quotes
    /// signatures.
    detail: String,
    /// The query parameter that was refused.
    parameter: String,
    date: Option<OffsetDateTime>,
    way: Way,
    account: String,
    /// The scheme, host and port.
    endpoint: String,
}

/// The credential of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Identity,
    Sas,
    Key,
}

impl Refusal {
    pub(super) fn read(status: u16, code: &str, answer: Option<&RawResponse>) -> Self {
        let header = |name: &HeaderName| answer.and_then(|answer| answer.headers().get_optional_str(name));
        let named = |name: &'static str| header(&HeaderName::from_static(name));
        let body = answer.map(|answer| String::from_utf8_lossy(answer.body())).unwrap_or_default();
        let code = named("x-ms-error-code").or_else(|| element(&body, "Code")).unwrap_or(code);
        // Without a code, the SDK uses the status as a number or as text.
        let is_code = code.bytes().all(|byte| byte.is_ascii_alphanumeric()) && code.parse::<u16>().is_err();
        Self {
            answer: Answer {
                status,
                code: if is_code { code.to_owned() } else { String::new() },
                request_id: named("x-ms-request-id").filter(|id| id.len() <= 64).map(excerpt),
            },
            words: excerpt(element(&body, "Message").unwrap_or_default()),
            detail: element(&body, "AuthenticationErrorDetail").unwrap_or_default().to_owned(),
            parameter: element(&body, "QueryParameterName").unwrap_or_default().to_owned(),
            date: answer.and_then(|answer| date(answer.headers())),
            way: match header(&WAY_HEADER) {
                Some("key") => Way::Key,
                Some("sas") => Way::Sas,
                _ => Way::Identity,
            },
            account: header(&ACCOUNT_HEADER).unwrap_or("ACCOUNT").to_owned(),
            endpoint: header(&ENDPOINT_HEADER).unwrap_or_default().to_owned(),
        }
    }

    /// The error's kind, and a sentence for the operator.
    pub(super) fn explain(&self, target: Target<'_>) -> (ErrorKind, String) {
        let (kind, why) = match (self.answer.status, self.answer.code.as_str()) {
            (404, "MessageNotFound") | (400, "PopReceiptMismatch") => {
                (ErrorKind::LeaseLost, "the message is gone, or another worker received it".to_owned())
            }
            (400, "InvalidQueryParameterValue") if self.is_about_a_receipt(target) => {
                (ErrorKind::LeaseLost, "the receipt is not this queue's".to_owned())
            }
            // A lease that a person took on the blob prevents the write; the blob itself is
            // unchanged.
            (409 | 412, code) if code.starts_with("Lease") => (
                ErrorKind::Unavailable,
                "another client holds a lease on it; break it with `az storage blob lease break`".to_owned(),
            ),
            (409, code) if code.ends_with("BeingDeleted") => {
                (ErrorKind::Unavailable, "it is being deleted, which takes up to a minute".to_owned())
            }
            (409, code) if code.ends_with("Disabled") || code == "AccountBeingCreated" => {
                (ErrorKind::Unavailable, "it is disabled for the time being".to_owned())
            }
            (409, code) if code.starts_with("BlobImmutable") || code == "BlobNotModifiable" => (
                ErrorKind::Denied,
                "an immutability policy or a legal hold protects it; use a container without one".to_owned(),
            ),
            (409, "SnapshotsPresent") => (
                ErrorKind::Denied,
                "it has snapshots; delete them with it, in the portal or with `az`".to_owned(),
            ),
            (409, "BlobArchived" | "BlobBeingRehydrated") => (
                ErrorKind::Denied,
                "it is in the archive tier; remove the rule that moves this container's blobs there"
                    .to_owned(),
            ),
            (409, "InvalidBlobType" | "PathConflict" | "ResourceTypeMismatch") => (
                ErrorKind::Denied,
                "another program made something else of this name; remove that".to_owned(),
            ),
            // The lost race of a conditional write, and one that removed the blocks that this one had
            // staged.
            (304 | 412, _)
            | (
                409,
                "BlobAlreadyExists"
                | "ContainerAlreadyExists"
                | "QueueAlreadyExists"
                | "DirectoryIsNotEmpty"
                | "",
            )
            | (400 | 409, "InvalidBlockList") => {
                (ErrorKind::Conflict, "it was changed by another write".to_owned())
            }
            (404, code) => (ErrorKind::NotFound, self.missing(code, target)),
            (413, _) | (_, "MessageTooLarge" | "RequestBodyTooLarge") => {
                (ErrorKind::TooLarge, "it is larger than the service accepts".to_owned())
            }
            (401 | 403, code) => (ErrorKind::Denied, self.denied(code, target)),
            (408 | 500 | 502 | 504, _) | (_, "OperationTimedOut") => (
                ErrorKind::TimedOut,
                "the service failed to answer; the request may have been applied".to_owned(),
            ),
            (429 | 503, _) => (ErrorKind::Unavailable, "the service is busy".to_owned()),
            (500.., _) => (ErrorKind::TimedOut, "the service failed".to_owned()),
            _ => (ErrorKind::Invalid, self.in_its_words()),
        };
        (kind, format!("{target}: {why} ({})", self.answer))
    }

    /// Whether the refusal is about a receipt. If the service names no parameter, a queue's refusal
    /// is taken for one about a receipt.
    fn is_about_a_receipt(&self, target: Target<'_>) -> bool {
        self.parameter.eq_ignore_ascii_case("popreceipt")
            || (self.parameter.is_empty() && matches!(target, Target::Queue(_)))
    }

    fn in_its_words(&self) -> String {
        if self.words.is_empty() { "the service refuses the request".to_owned() } else { self.words.clone() }
    }

    /// The arguments with which `az` reaches the account.
    fn az_login(&self, target: Target<'_>) -> String {
        let Self { account, endpoint, .. } = self;
        let is_standard =
            matches!(endpoint.as_str(), "" | "http://127.0.0.1:10000" | "http://127.0.0.1:10001");
        if account != DEVELOPMENT_ACCOUNT {
            format!("--account-name {account} --auth-mode login")
        } else if is_standard {
            "--connection-string UseDevelopmentStorage=true".to_owned()
        } else {
            let service = if matches!(target, Target::Queue(_)) { "queue" } else { "blob" };
            format!("--account-name {account} --account-key … --{service}-endpoint {endpoint}/{account}")
        }
    }

    fn missing(&self, code: &str, target: Target<'_>) -> String {
        let login = self.az_login(target);
        match (code, target) {
            ("QueueNotFound" | "ResourceNotFound" | "", Target::Queue(name)) => {
                format!("it does not exist; create it with `az storage queue create --name {name} {login}`")
            }
            ("ContainerNotFound" | "ResourceNotFound" | "", Target::Container(name)) => {
                format!(
                    "it does not exist; create it with `az storage container create --name {name} {login}`"
                )
            }
            ("ContainerNotFound", _) => {
                format!(
                    "its container does not exist; create it with `az storage container create {login} --name …`"
                )
            }
            _ => "it does not exist".to_owned(),
        }
    }

    fn denied(&self, code: &str, target: Target<'_>) -> String {
        if let Some(off) = self.clock_off() {
            return off;
        }
        match (code, self.way) {
            ("KeyBasedAuthenticationNotPermitted", _) => format!(
                "the account permits neither keys nor what is signed with them; use azure:{} with a managed identity",
                self.account
            ),
            (code, Way::Sas) if code.starts_with("Authorization") || code == "InsufficientAccountPermissions" => {
                let firewall = if code == "AuthorizationFailure" { self.firewall() } else { String::new() };
                format!(
                    "the SAS does not permit this; make one for the services b and q, the resource types s, c and o and the \
                     permissions rwdlacup{firewall}"
                )
            }
            ("AuthenticationFailed", Way::Sas) => self.sas_refused(),
            ("AuthenticationFailed", Way::Key) => {
                "the account's key is wrong, or was changed; copy it again from `az storage account keys list`"
                    .to_owned()
            }
            ("AuthorizationFailure", Way::Key) => format!("the key is known, but may not do this{}", self.firewall()),
            (code, Way::Identity) if code.starts_with("Authorization") || code == "InsufficientAccountPermissions" => {
                let firewall = if code == "AuthorizationFailure" { self.firewall() } else { String::new() };
                format!("{}{firewall}", self.role(target))
            }
            (_, Way::Identity) if self.answer.status == 401 || code == "AuthenticationFailed" => format!(
                "the token is refused; is account {} in the tenant that this identity belongs to?",
                self.account
            ),
            ("AccountIsDisabled", _) => format!("account {} is disabled", self.account),
            _ => "the service refuses this identity".to_owned(),
        }
    }

    fn role(&self, target: Target<'_>) -> String {
        let account = &self.account;
        let (role, hint) = match target {
            Target::Queue(_) => (
                "Storage Queue Data Contributor",
                " (Storage Queue Data Reader is enough to look only, as `reprieve status` does, and Storage Queue Data \
                 Message Sender to enqueue only; Storage Queue Data Message Processor is not enough: it can't renew a \
                 lease)",
            ),
            Target::Container(_) | Target::Blob(_) => {
                ("Storage Blob Data Contributor", " (Storage Blob Data Reader is enough to read only)")
            }
            Target::Account => ("Storage Queue Data Contributor and Storage Blob Data Contributor", ""),
        };
        format!(
            "the identity in use may not do this; give it the role {role} on account {account}{hint}; a new role takes up to \
             ten minutes to take effect"
        )
    }

    fn firewall(&self) -> String {
        format!("; or the firewall of account {} keeps this network out", self.account)
    }

    fn sas_refused(&self) -> String {
        if self.detail.contains("not valid in the specified time frame") {
            "the SAS has expired, or is not valid yet; make a new one".to_owned()
        } else {
            "the SAS is not valid; was it copied completely, and is the key that signed it still the account's?"
                .to_owned()
        }
    }

    /// The clock's error, if it is large enough to be the cause of a refusal.
    fn clock_off(&self) -> Option<String> {
        let (here, there) = (OffsetDateTime::from(clock::wall_now()), self.date?);
        let off = Duration::try_from((here - there).abs()).ok()?;
        (off >= CLOCK_OFF_MIN).then(|| {
            let way = if here > there { "ahead of" } else { "behind" };
            let minutes = off.as_secs() / 60;
            format!("this machine's clock is {minutes} minutes {way} the service's; set this machine's clock (chrony/NTP)")
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        if !self.code.is_empty() {
            write!(f, " {}", self.code)?;
        }
        match &self.request_id {
            Some(id) => write!(f, ", request {id}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Answer {}

/// The text of the first element with this name in an error's XML, which is flat and has no
/// entities that matter here.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let start = xml.find(&format!("<{name}>"))? + name.len() + 2;
    let end = xml[start..].find(&format!("</{name}>"))? + start;
    Some(&xml[start..end])
}

/// The first line, without control characters, which would disturb a log.
fn excerpt(text: &str) -> String {
    text.lines()
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control())
        .take(EXCERPT_CHARS_MAX)
        .collect()
}
