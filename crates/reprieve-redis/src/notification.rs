//! The maintenance notifications of Azure Cache for Redis.

use std::net::IpAddr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use reprieve_core::dependency::Signal;

/// What a [`Notification`] announces.
/// <https://learn.microsoft.com/azure/azure-cache-for-redis/cache-failover#azureredisevents-channel>
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum NotificationType {
    /// A type that is not known, or none.
    #[default]
    Unknown,
    /// `NodeMaintenanceScheduled`: a maintenance is planned, up to 15 minutes ahead. The node may go up to three
    /// minutes earlier than is said.
    Scheduled,
    /// `NodeMaintenanceStarting`: it begins in about 20 s.
    Starting,
    /// `NodeMaintenanceStart`: it begins within 5 s.
    Start,
    /// `NodeMaintenanceFailoverComplete`, or the older `NodeMaintenanceFailover`: a replica was promoted.
    FailoverComplete,
    /// `NodeMaintenanceEnded`: it is over, and the replicas are back.
    Ended,
    /// `NodeMaintenanceScaleComplete`, which [one client
    /// knows](https://github.com/StackExchange/StackExchange.Redis/blob/main/src/StackExchange.Redis/Maintenance/AzureMaintenanceEvent.cs)
    /// and Microsoft's page does not have: the cache has another size.
    ScaleComplete,
}

impl NotificationType {
    /// The name of the type in a message; `Unknown` for none.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "Unknown",
            Self::Scheduled => "NodeMaintenanceScheduled",
            Self::Starting => "NodeMaintenanceStarting",
            Self::Start => "NodeMaintenanceStart",
            Self::FailoverComplete => "NodeMaintenanceFailoverComplete",
            Self::Ended => "NodeMaintenanceEnded",
            Self::ScaleComplete => "NodeMaintenanceScaleComplete",
        }
    }

    fn of(name: &str) -> Self {
        match name {
            "NodeMaintenanceScheduled" => Self::Scheduled,
            "NodeMaintenanceStarting" => Self::Starting,
            "NodeMaintenanceStart" => Self::Start,
            "NodeMaintenanceFailoverComplete" | "NodeMaintenanceFailover" => Self::FailoverComplete,
            "NodeMaintenanceEnded" => Self::Ended,
            "NodeMaintenanceScaleComplete" => Self::ScaleComplete,
            _ => Self::Unknown,
        }
    }
}

/// A message of the channel [`CHANNEL`](crate::CHANNEL).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Notification {
    /// What it announces.
    pub what: NotificationType,
    /// When the maintenance begins, which the service writes in UTC.
    pub starts_at: Option<Timestamp>,
    /// Whether a replica is maintained, and not the primary.
    pub is_replica: bool,
    /// The node's address.
    pub ip: Option<IpAddr>,
    /// The node's own port for TLS, from 15000 on; 0 if it is not said. Connections go to the cache's port.
    pub tls_port: u32,
    /// The node's own port without TLS, from 13000 on; 0 if it is not said.
    pub plain_port: u32,
}

impl Notification {
    /// Reads a message: pairs of a key and a value, all separated by `|`, in any order. Unknown keys, empty values
    /// and values that do not parse are left out, as is what remains after the last whole pair.
    #[must_use]
    pub fn parse(message: &str) -> Self {
        let mut notification = Self::default();
        let mut rest = message;
        while let Some((key, value, after)) = next_pair(rest) {
            notification.read(key, value);
            rest = after;
        }
        notification
    }

    fn read(&mut self, key: &str, value: &str) {
        match key {
            "NotificationType" => self.what = NotificationType::of(value),
            "StartTimeInUTC" => self.starts_at = utc(value),
            "IsReplica" => self.is_replica = value.eq_ignore_ascii_case("true"),
            "IPAddress" => self.ip = value.parse().ok(),
            "SSLPort" => self.tls_port = value.parse().unwrap_or_default(),
            "NonSSLPort" => self.plain_port = value.parse().unwrap_or_default(),
            _ => {}
        }
    }

    /// Returns what it means to the breaker of a cache; `None` for an unknown type.
    #[must_use]
    pub fn signal(&self) -> Option<Signal> {
        let scheduled_unix_ms = || self.starts_at.map(Timestamp::as_millisecond);
        Some(match self.what {
            NotificationType::Unknown => return None,
            NotificationType::Scheduled => Signal::Scheduled(scheduled_unix_ms()),
            NotificationType::Starting | NotificationType::Start if self.is_replica => Signal::ReplicaBegins,
            NotificationType::Starting | NotificationType::Start => Signal::Begins,
            NotificationType::FailoverComplete => Signal::Switched,
            NotificationType::Ended => Signal::Ended,
            NotificationType::ScaleComplete => Signal::Scaled,
        })
    }
}

/// Returns the next pair whose value is not empty, and the rest after it.
fn next_pair(text: &str) -> Option<(&str, &str, &str)> {
    let mut rest = text;
    loop {
        let (key, after) = rest.trim_start_matches('|').split_once('|')?;
        let (value, after) = after.split_once('|').unwrap_or((after, ""));
        if !value.is_empty() {
            return Some((key, value, after));
        }
        rest = after;
    }
}

/// Reads a time without a zone as one of UTC, whatever the zone of this machine.
fn utc(text: &str) -> Option<Timestamp> {
    const FORM: &str = "%Y-%m-%dT%H:%M:%S";
    // Numbers of other lengths, and years before Christ, would parse, too.
    let is_exact = |time: &DateTime| time.year() >= 1 && time.strftime(FORM).to_string() == text;
    let time = DateTime::strptime(FORM, text).ok().filter(is_exact)?;
    time.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn of(what: NotificationType, starts_at: Option<Timestamp>, ports: (u32, u32)) -> Notification {
        Notification { what, starts_at, tls_port: ports.0, plain_port: ports.1, ..Notification::default() }
    }

    /// The vectors of StackExchange.Redis, `AzureMaintenanceEventTests.cs`.
    #[test]
    fn messages_are_read_as_the_best_known_client_reads_them() {
        use NotificationType::{FailoverComplete, Starting};
        let at = || Some(time("2021-03-02T23:26:57Z"));
        for (message, expected) in [
            (
                "NotificationType|NodeMaintenanceStarting|StartTimeInUTC|2021-03-02T23:26:57|IsReplica|False|IPAddress||SSLPort|15001|NonSSLPort|13001",
                of(Starting, at(), (15_001, 13_001)),
            ),
            (
                "NotificationType|NodeMaintenanceFailover|StartTimeInUTC||IsReplica|True|IPAddress||SSLPort|15001|NonSSLPort|13001",
                Notification { is_replica: true, ..of(FailoverComplete, None, (15_001, 13_001)) },
            ),
            (
                "NotificationType|NodeMaintenanceStarting|StartTimeInUTC|2021-03-02T23:26:57|IsReplica|j|IPAddress||SSLPort|char|NonSSLPort|char",
                of(Starting, at(), (0, 0)),
            ),
            (
                "NotificationType|NodeMaintenanceStarting|somejunkkey|somejunkvalue|StartTimeInUTC|2021-03-02T23:26:57|IsReplica|False|IPAddress|127.0.0.1|SSLPort|15999|NonSSLPort|139991",
                Notification { ip: Some([127, 0, 0, 1].into()), ..of(Starting, at(), (15_999, 139_991)) },
            ),
        ] {
            assert_eq!(Notification::parse(message), expected, "{message}");
        }
        for message in [
            "NotificationType|",
            "NotificationType|NodeMaintenanceStarting1",
            "1|2|3",
            "StartTimeInUTC|",
            "IsReplica|",
            "SSLPort|",
            "NonSSLPort |",
            "StartTimeInUTC|thisisthestart",
            "",
            "||||",
            "NotificationTypeNodeMaintenanceStartingStartTimeInUTC2021-03-02T23:26:57",
        ] {
            assert_eq!(Notification::parse(message), Notification::default(), "{message}");
        }
    }

    #[test]
    fn every_type_means_something_to_a_breaker_and_an_unknown_one_nothing() {
        for (message, expected) in [
            (
                "NotificationType|NodeMaintenanceScheduled|StartTimeInUTC|2021-03-02T23:26:57",
                Some(Signal::Scheduled(Some(1_614_727_617_000))),
            ),
            ("NotificationType|NodeMaintenanceScheduled", Some(Signal::Scheduled(None))),
            ("NotificationType|NodeMaintenanceStarting|IsReplica|False", Some(Signal::Begins)),
            ("NotificationType|NodeMaintenanceStart", Some(Signal::Begins)),
            ("IsReplica|True|NotificationType|NodeMaintenanceStart", Some(Signal::ReplicaBegins)),
            ("NotificationType|NodeMaintenanceFailoverComplete", Some(Signal::Switched)),
            ("NotificationType|NodeMaintenanceEnded", Some(Signal::Ended)),
            ("NotificationType|NodeMaintenanceScaleComplete", Some(Signal::Scaled)),
            ("NotificationType|nodemaintenancestart", None),
        ] {
            assert_eq!(Notification::parse(message).signal(), expected, "{message}");
        }
    }

    #[test]
    fn a_time_is_one_of_utc_and_of_this_form_alone() {
        let read = |text: &str| Notification::parse(&format!("StartTimeInUTC|{text}")).starts_at;
        assert_eq!(read("2021-12-31T23:59:59"), Some(time("2021-12-31T23:59:59Z")));
        for bad in [
            "2021-12-31T23:59:59Z",
            "2021-12-31T23:59:59+02:00",
            "2021-12-31 23:59:59",
            "21-12-31T23:59:59",
            "-9990-1-01T00:00:00",
            "-999-01-01T00:00:00",
            "2021-02-30T00:00:00",
            "2021-12-31T24:00:00",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_message_is_a_panic(message in ".*", parts in prop::collection::vec("[A-Za-z0-9:|.-]{0,20}", 0..20)) {
            let _read = (Notification::parse(&message), Notification::parse(&parts.join("|")));
        }

        #[test]
        fn pairs_come_in_any_order_among_others(
            is_replica in any::<bool>(), port in any::<u32>(), last in any::<bool>(), junk in "[a-z]{1,9}",
        ) {
            let mut pairs = [
                "NotificationType|NodeMaintenanceStart".to_owned(),
                format!("{junk}|{junk}"),
                format!("SSLPort|{port}"),
                "IPAddress|".to_owned(),
                format!("IsReplica|{is_replica}"),
            ];
            if last { pairs.reverse() }
            let read = Notification::parse(&pairs.join("|"));
            prop_assert_eq!((read.what, read.is_replica), (NotificationType::Start, is_replica));
            prop_assert!(read.tls_port == port, "{:?}", read);
        }
    }
}
