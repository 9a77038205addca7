//! Ways in which an answer of the mock fails.

use std::time::Duration;

/// What happens to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Answers with this status, as a busy service does, and asks to wait for so long.
    Busy {
        /// The status: 429 or 503.
        status: u16,
        /// The header `Retry-After`, in seconds; `None` without one.
        retry_after_seconds: Option<u64>,
    },
    /// Answers correctly, after this time.
    Late(Duration),
    /// Never answers.
    Hang,
    /// Answers 200 with this text.
    Garbage(String),
    /// Breaks the answer off in the middle.
    BreakOff,
    /// Resets the connection before answering.
    Reset,
    /// Answers with a redirect to this address.
    Redirect(String),
    /// Answers correctly, except that the link to the next page is this one.
    Link(String),
    /// Answers with the text of a page, changed in one place: the first text becomes the second.
    Changed(String, String),
    /// Answers correctly; leaves a gap between other faults.
    None,
}
