//! Limits how often a lasting failure is logged.

use std::time::Duration;

use tokio::time::Instant;

/// How often the same failure is logged.
const EVERY: Duration = Duration::from_mins(1);

/// The time of the last log line.
#[derive(Debug, Default)]
pub(crate) struct Trouble(Option<Instant>);

impl Trouble {
    /// Reports whether to log the failure: the first time, and then once a minute while it lasts.
    pub(super) fn is_news(&mut self) -> bool {
        let news = self.0.is_none_or(|said| said.elapsed() >= EVERY);
        if news {
            self.0 = Some(Instant::now());
        }
        news
    }
}
