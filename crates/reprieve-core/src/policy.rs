//! What a notice calls for: a pure function of the notice.

use crate::notice::{Notice, NoticeKind, Phase};

/// What the worker does about a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Response {
    /// Give everything back now, within the budget.
    Drain,
    /// Say it in the log and go on working.
    Watch,
}

/// Decides what `notice` calls for.
///
/// | kind | Scheduled | Started |
/// |---|---|---|
/// | `Preempt` | drain | drain |
/// | `Signal`, `Manual` | drain | drain |
/// | `Terminate`, `Reboot`, `Redeploy` | watch: they leave minutes, and draining at once would waste those | drain |
/// | `Freeze` | watch | watch: renewed leases outlast the seconds it takes |
/// | an unknown type | watch | watch: a guess would stop a healthy worker |
#[must_use]
pub const fn respond(notice: &Notice) -> Response {
    match (&notice.kind, notice.phase) {
        (
            NoticeKind::Preempt | NoticeKind::Signal | NoticeKind::Manual,
            Phase::Scheduled | Phase::Started,
        )
        | (NoticeKind::Terminate | NoticeKind::Reboot | NoticeKind::Redeploy, Phase::Started) => {
            Response::Drain
        }
        (NoticeKind::Terminate | NoticeKind::Reboot | NoticeKind::Redeploy, Phase::Scheduled)
        | (
            NoticeKind::Freeze | NoticeKind::Rebalance | NoticeKind::Other(_),
            Phase::Scheduled | Phase::Started,
        ) => Response::Watch,
    }
}
