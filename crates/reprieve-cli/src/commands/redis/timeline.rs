//! The time line of a maintenance, as Microsoft documents it.

use std::time::Duration;

use clap::ValueEnum;
use jiff::Timestamp;

/// A maintenance to rehearse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Scenario {
    /// The primary is maintained: its connections are closed, and its replica takes over
    Primary,
    /// A replica is maintained, and the primary serves all the time
    Replica,
    /// A maintenance is scheduled, and never comes
    ScheduledOnly,
    /// The primary is maintained, and nothing is announced
    Silent,
}

/// A step of a maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A notification of this type is published, with this start, counted from the first one.
    Announce(&'static str, Option<Duration>),
    /// The node closes its connections, and does not answer until this moment.
    Leave(Duration),
    /// The replica becomes the primary, and the primary its replica.
    Promote,
    /// The primary is the primary again.
    Restore,
}

/// The time between two moments of Microsoft's sample, which begins at 16:21:39.
/// <https://learn.microsoft.com/azure/azure-cache-for-redis/cache-failover#timeline-of-a-maintenance-event>
const fn at(hour: u64, minute: u64, second: u64) -> Duration {
    Duration::from_secs((hour * 60 + minute) * 60 + second - ((16 * 60 + 21) * 60 + 39))
}

const SCHEDULED: Duration = at(16, 35, 57);
const STARTING: Duration = at(16, 34, 26);
const START: Duration = at(16, 34, 46);
const CLOSED: Duration = at(16, 34, 47);
const FAILED_OVER: Duration = at(16, 34, 56);
const ENDED: Duration = at(16, 37, 48);

/// Returns the steps by their times.
pub(super) fn steps(scenario: Scenario) -> Vec<(Duration, Step)> {
    use Step::{Announce, Leave, Promote, Restore};
    let scheduled = (Duration::ZERO, Announce("NodeMaintenanceScheduled", Some(SCHEDULED)));
    let begins = [
        (STARTING, Announce("NodeMaintenanceStarting", Some(START))),
        (START, Announce("NodeMaintenanceStart", None)),
    ];
    let ended = (ENDED, Announce("NodeMaintenanceEnded", Some(ENDED)));
    let failover = [(CLOSED, Leave(FAILED_OVER)), (FAILED_OVER, Promote)];
    match scenario {
        Scenario::Primary => {
            let complete = (FAILED_OVER, Announce("NodeMaintenanceFailoverComplete", None));
            [&[scheduled], &begins[..], &failover, &[complete, (ENDED, Restore), ended]].concat()
        }
        Scenario::Replica => [&[scheduled], &begins[..], &[(CLOSED, Leave(ENDED)), ended]].concat(),
        Scenario::ScheduledOnly => vec![scheduled],
        Scenario::Silent => [&failover[..], &[(ENDED, Restore)]].concat(),
    }
}

/// Returns the text of a notification, with the pairs in the documented order.
pub(super) fn message(name: &str, starts_at: Option<Timestamp>, is_replica: bool) -> String {
    let starts_at = starts_at.map(|at| at.strftime("%Y-%m-%dT%H:%M:%S").to_string()).unwrap_or_default();
    let is_replica = if is_replica { "True" } else { "False" };
    format!(
        "NotificationType|{name}|StartTimeInUTC|{starts_at}|IsReplica|{is_replica}|IPAddress|\
         |SSLPort|15001|NonSSLPort|13001"
    )
}

#[cfg(test)]
mod tests {
    use reprieve::redis::Notification;

    use super::*;

    #[test]
    fn a_maintenance_goes_as_in_the_sample() {
        let of = |scenario| {
            let line = |(at, step): (Duration, Step)| format!("{} {step:?}", at.as_secs());
            steps(scenario).into_iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(
            of(Scenario::Primary),
            [
                "0 Announce(\"NodeMaintenanceScheduled\", Some(858s))",
                "767 Announce(\"NodeMaintenanceStarting\", Some(787s))",
                "787 Announce(\"NodeMaintenanceStart\", None)",
                "788 Leave(797s)",
                "797 Promote",
                "797 Announce(\"NodeMaintenanceFailoverComplete\", None)",
                "969 Restore",
                "969 Announce(\"NodeMaintenanceEnded\", Some(969s))",
            ]
        );
        assert_eq!(
            of(Scenario::Replica),
            [
                "0 Announce(\"NodeMaintenanceScheduled\", Some(858s))",
                "767 Announce(\"NodeMaintenanceStarting\", Some(787s))",
                "787 Announce(\"NodeMaintenanceStart\", None)",
                "788 Leave(969s)",
                "969 Announce(\"NodeMaintenanceEnded\", Some(969s))",
            ]
        );
        assert_eq!(of(Scenario::ScheduledOnly).len(), 1);
        assert_eq!(of(Scenario::Silent), ["788 Leave(797s)", "797 Promote", "969 Restore"]);
    }

    #[test]
    fn a_message_is_read_as_it_was_meant() {
        let starts_at = "2021-03-02T23:26:57Z".parse().ok();
        for (starts_at, is_replica) in [(starts_at, true), (None, false)] {
            for (name, signal) in
                [("NodeMaintenanceScheduled", true), ("NodeMaintenanceEnded", true), ("Other", false)]
            {
                let read = Notification::parse(&message(name, starts_at, is_replica));
                assert_eq!((read.starts_at, read.is_replica), (starts_at, is_replica));
                assert_eq!(read.signal().is_some(), signal, "{name}");
                assert_eq!((read.ip, read.tls_port, read.plain_port), (None, 15_001, 13_001));
            }
        }
    }
}
