//! Keeps a log readable while something goes on failing.

use std::time::Duration;

use tokio::time::Instant;

/// How often the same trouble is said.
const EVERY: Duration = Duration::from_mins(1);

/// When trouble was last said.
#[derive(Debug, Default)]
pub(crate) struct Trouble(Option<Instant>);

impl Trouble {
    /// Whether to say it: the first time, and once a minute while it lasts.
    pub(super) fn is_news(&mut self) -> bool {
        let news = self.0.is_none_or(|said| said.elapsed() >= EVERY);
        if news {
            self.0 = Some(Instant::now());
        }
        news
    }
}
