//! Messages of a cache's channel, as bytes. Nothing panics, and what was read is read again when it is written.

use reprieve_redis::{Notification, NotificationType};

/// Reads a message as a watch does.
pub(crate) fn hear(data: &[u8]) {
    let notification = Notification::parse(&String::from_utf8_lossy(data));
    assert_eq!(notification.signal().is_none(), notification.what == NotificationType::Unknown);
    assert_eq!(Notification::parse(&written(&notification)), notification);
    // An unknown pair before it changes nothing.
    assert_eq!(Notification::parse(&format!("|Unknown|pair|{}", written(&notification))), notification);
}

fn written(notification: &Notification) -> String {
    let Notification { what, starts_at, is_replica, ip, tls_port, plain_port, .. } = notification;
    let starts_at = starts_at.map(|at| at.strftime("%Y-%m-%dT%H:%M:%S").to_string()).unwrap_or_default();
    let ip = ip.map(|ip| ip.to_string()).unwrap_or_default();
    format!(
        "SSLPort|{tls_port}|NonSSLPort|{plain_port}|IPAddress|{ip}|IsReplica|{is_replica}|\
         StartTimeInUTC|{starts_at}|NotificationType|{}",
        what.as_str()
    )
}
