//! Reports to systemd, where it started the worker (`Type=notify`): that the worker is ready, alive, or
//! stopping, and a line for `systemctl status`.
//! <https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html>

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::health::Health;

/// The longest time between two reports. Without a watchdog they only renew the line of the status.
const EVERY: Duration = Duration::from_secs(5);

/// Reports that the worker is ready, and then that it is alive, until the process ends. To be run on the
/// control thread: if that is stuck, or its loop, the watchdog hears nothing and restarts the worker. The
/// worker is ready at once: waiting for a store or for a role is no failure of its start.
pub(crate) async fn report(health: Health) {
    let every = sd_notify::watchdog_enabled().map_or(EVERY, |limit| EVERY.min(limit / 3));
    let mut ready = true;
    loop {
        if health.is_alive() {
            send(std::mem::take(&mut ready), health.stage().as_str()).await;
        }
        sleep(every).await;
    }
}

async fn send(ready: bool, stage: &'static str) {
    // The call waits when systemd reads nothing, which must not delay a lease.
    let sent = spawn_blocking(move || {
        let alive = [NotifyState::Status(stage), NotifyState::Watchdog];
        let ready = ready.then_some(NotifyState::Ready);
        sd_notify::notify(&ready.into_iter().chain(alive).collect::<Vec<_>>())
    });
    log(sent.await);
}

/// Reports that the worker is stopping.
pub(crate) async fn stopping() {
    log(spawn_blocking(|| sd_notify::notify(&[NotifyState::Stopping])).await);
}

fn log(sent: Result<std::io::Result<()>, tokio::task::JoinError>) {
    if let Ok(Err(error)) = sent {
        tracing::warn!(%error, "failed to report to systemd");
    }
}
