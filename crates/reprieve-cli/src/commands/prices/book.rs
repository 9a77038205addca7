//! Prices from the service and from the cache: which of both, and what is said about it.

use std::time::{Duration, SystemTime};

use reprieve::{Result, clock};
use reprieve_azure::prices::{Client, Meter, Meters, Query};
use serde::Serialize;

use super::cache::{Cache, Entry};
use crate::format::{count, duration};

/// Where prices come from.
#[derive(Debug)]
pub(in crate::commands) struct Book {
    client: Client,
    cache: Cache,
}

/// The source of a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::commands) enum Source {
    Service,
    Cache,
}

/// The meters for one query.
#[derive(Debug)]
pub(in crate::commands) struct Found {
    pub(in crate::commands) meters: Vec<Meter>,
    /// When the service was asked.
    pub(in crate::commands) asked_unix_ms: i64,
    pub(in crate::commands) source: Source,
}

/// The meters for some queries in their order, or why there are none, and what else is to be said.
#[derive(Debug, Default)]
pub(in crate::commands) struct Findings {
    pub(in crate::commands) found: Vec<Result<Found, String>>,
    pub(in crate::commands) notes: Vec<String>,
}

impl Book {
    pub(super) const fn new(client: Client, cache: Cache) -> Self {
        Self { client, cache }
    }

    /// Finds the meters: those of the cache that are younger than `max_age` and of which none has ended since, the
    /// others from the service, and where that fails, older ones of the cache.
    pub(in crate::commands) async fn find(&self, queries: &[Query], max_age: Duration) -> Findings {
        let mut findings = Findings::default();
        let kept: Vec<_> = queries.iter().map(|query| self.kept(query, &mut findings)).collect();
        let is_young = |found: &Option<Found>| {
            found.as_ref().is_some_and(|found| found.age() < max_age && !found.has_ended())
        };
        let asked: Vec<_> = queries
            .iter()
            .zip(&kept)
            .filter(|(_, kept)| !is_young(kept))
            .map(|(query, _)| query.clone())
            .collect();
        let now = clock::unix_millis();
        let mut answers = self.client.meters_of(&asked).await.into_iter();
        let mut failed: Option<(String, usize)> = None;
        for (query, kept) in queries.iter().zip(kept) {
            let answer = if is_young(&kept) { None } else { answers.next() };
            let found = match (answer, kept) {
                (Some(Ok(meters)), _) => Ok(self.keep(query, now, meters, &mut findings)),
                (Some(Err(error)), Some(kept)) => {
                    failed.get_or_insert_with(|| (error.to_string(), 0)).1 += 1;
                    Ok(kept)
                }
                (Some(Err(error)), None) => Err(format!("failed to {error}; the cache has no price either")),
                (None, Some(kept)) => Ok(kept),
                (None, None) => Err("no price was asked for".to_owned()),
            };
            findings.found.push(found);
        }
        if let Some((error, times)) = failed {
            let times = count(times as u64, "price");
            findings.say(format!("failed to {error}; {times} from the cache instead, {}", findings.oldest()));
        }
        findings
    }

    /// Finds the meters in the cache alone.
    pub(in crate::commands) fn offline(&self, queries: &[Query]) -> Findings {
        let mut findings = Findings::default();
        for query in queries {
            let found = self.kept(query, &mut findings).ok_or_else(|| {
                let (size, region, currency) = (query.size(), query.region(), query.currency());
                format!(
                    "the cache has no price of {size} in {region} in {currency}; run the command once without --offline"
                )
            });
            findings.found.push(found);
        }
        if let Some(directory) = self.cache.directory().filter(|_| findings.found.iter().any(Result::is_ok)) {
            let oldest = findings.oldest();
            findings.say(format!("offline: prices are from the cache in {}, {oldest}", directory.display()));
        }
        findings
    }

    /// Asks the service alone. The cache gets the answer; notes say if it can't be kept, or read in part.
    pub(super) async fn ask(&self, query: &Query) -> Result<(Vec<Meter>, Vec<String>)> {
        let mut findings = Findings::default();
        let now = clock::unix_millis();
        let meters = self.client.meters(query).await?;
        let found = self.keep(query, now, meters, &mut findings);
        Ok((found.meters, findings.notes))
    }

    fn kept(&self, query: &Query, findings: &mut Findings) -> Option<Found> {
        match self.cache.read(query) {
            Ok(entry) => entry.map(|Entry { asked_unix_ms, meters, skipped, .. }| {
                findings.say_skipped(query, skipped, None);
                Found { meters, asked_unix_ms, source: Source::Cache }
            }),
            Err(fault) => {
                findings.say(format!("a price of the cache is left out: {fault}"));
                None
            }
        }
    }

    fn keep(&self, query: &Query, now: i64, meters: Meters, findings: &mut Findings) -> Found {
        findings.say_skipped(query, meters.skipped(), meters.fault());
        let skipped = meters.skipped();
        let entry = Entry::new(now, meters.into_vec(), skipped);
        if let Err(fault) = self.cache.write(query, &entry) {
            findings.say(format!("prices are not kept: {fault}"));
        }
        Found { meters: entry.meters, asked_unix_ms: now, source: Source::Service }
    }
}

impl Found {
    /// How long ago the service was asked. Of a time in the future, nothing is known: it is as old as can be.
    fn age(&self) -> Duration {
        let age = clock::unix_millis().saturating_sub(self.asked_unix_ms);
        u64::try_from(age).map_or(Duration::MAX, Duration::from_millis)
    }

    /// Whether one of the prices of the cache has ended since the service was asked: it has another one now.
    pub(super) fn has_ended(&self) -> bool {
        let asked = u64::try_from(self.asked_unix_ms).map(Duration::from_millis).unwrap_or_default();
        let (asked, now) = (SystemTime::UNIX_EPOCH + asked, clock::wall_now());
        self.source == Source::Cache && self.meters.iter().any(|meter| meter.has_ended_since(asked, now))
    }
}

impl Findings {
    /// The age of the oldest price of the cache.
    fn oldest(&self) -> String {
        let cached = self.found.iter().flatten().filter(|found| found.source == Source::Cache);
        match cached.map(Found::age).max() {
            None => "none".to_owned(),
            Some(Duration::MAX) => "from a time in the future, by a clock that was ahead".to_owned(),
            Some(age) => format!("up to {} old", duration(age)),
        }
    }

    /// Says that rows of an answer are missing, because a price may be missing or wrong for it.
    fn say_skipped(&mut self, query: &Query, skipped: usize, fault: Option<&str>) {
        if skipped > 0 {
            let why = fault.map(|fault| format!(": {fault}")).unwrap_or_default();
            let rows = count(skipped as u64, "row");
            let (size, region) = (query.size(), query.region());
            self.say(format!("{rows} of the prices of {size} in {region} can't be read and left out{why}"));
        }
    }

    /// Says each thing once.
    fn say(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}
