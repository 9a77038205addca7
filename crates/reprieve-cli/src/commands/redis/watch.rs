//! `reprieve redis watch`.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use reprieve::redis::{Heard, Notification};
use reprieve::{Result, clock};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::At;
use crate::format::{duration, plain};
use crate::out::{Out, print_stderr};

/// The end of `watch --help`.
pub(super) const AFTER_HELP: &str = "\
A URL is redis://[USER]:PASSWORD@HOST[:PORT], or rediss://… with TLS, as Azure has it on port 6380.

A line has the time and what happened:
  subscribed    after how long without a subscription, in which notifications are missed
  notification  NodeMaintenanceScheduled, …Starting, …Start, …FailoverComplete or …Ended, whether of
                the primary or a replica, and for when
  lost          why the subscription was lost; the watch subscribes again
  failed        why it can't subscribe; the watch tries again, and says each reason once
Azure Managed Redis is not known to send notifications.

On SIGTERM or SIGINT (Ctrl-C) the watch exits.
Exit codes: 0 stopped; 1 failed; 2 wrong usage or settings.
Data goes to stdout, everything else to stderr.";

/// How often the watch says that it is not subscribed.
const DEAF_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,

    /// Prints JSON, one object per line
    #[arg(long)]
    json: bool,
}

/// A line of the output.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Report {
    at: Timestamp,
    #[serde(flatten)]
    what: What,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
enum What {
    Subscribed {
        deaf_ms: u64,
    },
    Notification {
        #[serde(rename = "type")]
        name: &'static str,
        starts_at: Option<Timestamp>,
        is_replica: bool,
        text: String,
    },
    Lost {
        why: String,
    },
    Failed {
        why: String,
    },
}

pub(super) async fn run(args: Args) -> Result<()> {
    let stopped = reprieve::stop_signal()?;
    let watch = args.at.open()?.watch();
    let mut out = Out::new();
    let printed = async {
        let mut deaf_at = Instant::now() + DEAF_EVERY;
        while !out.closed() {
            let heard = tokio::select! {
                heard = watch.hear() => heard,
                () = sleep_until(deaf_at) => {
                    deaf_at += DEAF_EVERY;
                    if let Some(deaf) = watch.deaf_for() {
                        print_stderr(&format!("not subscribed for {}; still trying", duration(deaf)));
                    }
                    continue;
                }
            };
            let report = Report::new(heard);
            if args.json {
                out.json(&report)?;
                out.text("\n")?;
            } else {
                out.text(&report.line(&TimeZone::system()))?;
            }
            out.flush()?;
        }
        Ok(())
    };
    tokio::select! {
        printed = printed => printed,
        _ = stopped => Ok(()),
    }
}

impl Report {
    fn new(heard: Heard) -> Self {
        let what = match heard {
            Heard::Subscribed(deaf) => {
                What::Subscribed { deaf_ms: u64::try_from(deaf.as_millis()).unwrap_or(u64::MAX) }
            }
            Heard::Lost(why) => What::Lost { why },
            Heard::Failed(why) => What::Failed { why },
            Heard::Message(text) => {
                let Notification { what, starts_at, is_replica, .. } = Notification::parse(&text);
                What::Notification { name: what.as_str(), starts_at, is_replica, text }
            }
        };
        Self { at: Timestamp::from_millisecond(clock::unix_millis()).unwrap_or_default(), what }
    }

    fn line(&self, zone: &TimeZone) -> String {
        let time = |at: Timestamp| at.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string();
        let what = match &self.what {
            What::Subscribed { deaf_ms } => {
                format!("subscribed    after {}", duration(Duration::from_millis(*deaf_ms)))
            }
            What::Lost { why } => format!("lost          {}", plain(why)),
            What::Failed { why } => format!("failed        {}", plain(why)),
            What::Notification { name: "Unknown", text, .. } => format!("notification  {}", plain(text)),
            What::Notification { name, starts_at, is_replica, .. } => {
                let node = if *is_replica { "replica" } else { "primary" };
                let when = starts_at.map(|at| format!(", {}", time(at))).unwrap_or_default();
                format!("notification  {name}, {node}{when}")
            }
        };
        format!("{}  {what}\n", time(self.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_when_and_of_which_node() {
        let line = |heard| {
            let report = Report { at: Timestamp::UNIX_EPOCH, ..Report::new(heard) };
            report.line(&TimeZone::UTC)
        };
        let message = |text: &str| line(Heard::Message(text.to_owned()));
        let scheduled =
            "NotificationType|NodeMaintenanceScheduled|StartTimeInUTC|2021-03-02T23:26:57|IsReplica|True";
        assert_eq!(
            message(scheduled),
            "1970-01-01 00:00:00  notification  NodeMaintenanceScheduled, replica, 2021-03-02 23:26:57\n"
        );
        assert_eq!(message("a|b\u{1b}"), "1970-01-01 00:00:00  notification  a|b\u{fffd}\n");
        assert_eq!(
            line(Heard::Subscribed(Duration::from_millis(9_700))),
            "1970-01-01 00:00:00  subscribed    after 9.7s\n"
        );
        assert_eq!(
            line(Heard::Lost("the connection ended".to_owned())),
            "1970-01-01 00:00:00  lost          the connection ended\n"
        );
    }
}
