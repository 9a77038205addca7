//! What Azure knows about Spot VMs of the sizes, beside their prices.

use std::collections::BTreeSet;

use reprieve::Result;
use reprieve_azure::prices::{Os, Query};
use reprieve_azure::spot::{
    Client, EvictionRate, MANAGEMENT_URL, PastPrice, PastPrices, Placement, SizeRate,
};
use reprieve_plan::Price;
use serde::Serialize;

use super::number::number;

#[derive(Debug, clap::Args)]
pub(super) struct SpotArgs {
    /// Shows also eviction rates and placement scores, with this subscription
    ///
    /// With the identity of this machine: workload identity, managed identity, or `az login`. Rates need the
    /// role Reader, scores the Compute Recommendations Role; each is left out without its role.
    #[arg(long, value_name = "ID", conflicts_with = "offline", value_parser = subscription)]
    subscription: Option<String>,

    /// For how many more VMs the placement scores are
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "subscription")]
    vms: u32,

    /// Azure Resource Manager, or a mock of it on this machine
    #[arg(long, value_name = "URL", default_value = MANAGEMENT_URL, env = "REPRIEVE_MANAGEMENT_URL")]
    management_url: String,
}

/// All that is known, and what is to be said about the rest.
#[derive(Debug, Default)]
pub(in crate::commands) struct Known {
    rates: Vec<SizeRate>,
    history: Vec<PastPrices>,
    placements: Vec<Placement>,
    pub(in crate::commands) notes: Vec<String>,
}

/// What is known of one size in one region.
#[derive(Debug, Default, Serialize)]
pub(in crate::commands) struct Facts {
    /// In percent of the VMs per hour; `null`: unknown. A missing upper end is no end.
    pub(in crate::commands) eviction_rate: Option<EvictionRate>,
    /// `null`: unknown.
    pub(in crate::commands) placement_score: Option<String>,
    pub(in crate::commands) quota_available: Option<bool>,
    /// The Spot prices of the last 90 days, in US dollars.
    pub(in crate::commands) past_prices_usd: Vec<Past>,
}

#[derive(Debug, Serialize)]
pub(in crate::commands) struct Past {
    #[serde(serialize_with = "number")]
    pub(in crate::commands) price: Option<Price>,
    since: Option<jiff::Timestamp>,
}

impl SpotArgs {
    /// Asks for what is known, unless no subscription is given.
    pub(super) async fn ask(&self, queries: &[Query], os: Os) -> Result<Option<Known>> {
        let Some(subscription) = &self.subscription else { return Ok(None) };
        let question = Question { subscription, management_url: &self.management_url };
        question.ask(queries, &vec![self.vms; queries.len()], os).await.map(Some)
    }
}

/// Whom to ask for what is known.
#[derive(Debug)]
pub(in crate::commands) struct Question<'a> {
    pub(in crate::commands) subscription: &'a str,
    pub(in crate::commands) management_url: &'a str,
}

impl Question<'_> {
    /// Asks, with scores for so many VMs of each query. What can't be had is noted, and the rest is returned.
    pub(in crate::commands) async fn ask(&self, queries: &[Query], vms: &[u32], os: Os) -> Result<Known> {
        let client = Client::of_this_machine(self.management_url)?;
        let (sizes, regions) =
            (distinct(queries.iter(), Query::size), distinct(queries.iter(), Query::region));
        let (rates, history, placements) = tokio::join!(
            client.rates(&sizes, &regions),
            client.history(&sizes, &regions, os),
            self.scores(&client, queries, vms)
        );
        let mut known = Known::default();
        known.rates = known.or_note("eviction rates", rates);
        known.history = known.or_note("past prices", history);
        for asked in placements {
            let placements = known.or_note("placement scores", asked);
            known.placements.extend(placements);
        }
        Ok(known)
    }

    /// The scores of each query for its own number of VMs: one question has one number, and one that is refused loses no
    /// other's answer.
    async fn scores(&self, client: &Client, queries: &[Query], vms: &[u32]) -> Vec<Result<Vec<Placement>>> {
        let mut answers = Vec::new();
        for number in vms.iter().collect::<BTreeSet<_>>() {
            let alike = || queries.iter().zip(vms).filter(|(_, it)| *it == number).map(|(query, _)| query);
            let (sizes, regions) = (distinct(alike(), Query::size), distinct(alike(), Query::region));
            answers.push(client.scores(self.subscription, &sizes, &regions, *number).await);
        }
        answers
    }
}

impl Known {
    fn or_note<T>(&mut self, what: &str, asked: Result<Vec<T>>) -> Vec<T> {
        asked.unwrap_or_else(|error| {
            let note = format!("{what} are unknown: failed to {error}");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
            Vec::new()
        })
    }

    /// What is known of the size and region of the query.
    pub(in crate::commands) fn of(&self, query: &Query) -> Facts {
        let is = |size: &str, region: &str| {
            size.eq_ignore_ascii_case(query.size()) && region.eq_ignore_ascii_case(query.region())
        };
        let rate = self.rates.iter().find(|it| is(&it.size, &it.region));
        let placement = self.placements.iter().find(|it| is(&it.sku, &it.region));
        let past = self.history.iter().filter(|it| is(&it.size, &it.region)).flat_map(|it| &it.prices);
        Facts {
            eviction_rate: rate.and_then(|it| it.rate),
            placement_score: placement.map(|it| it.score.as_str().to_owned()),
            quota_available: placement.and_then(|it| it.is_quota_available),
            past_prices_usd: past
                .map(|PastPrice { price, since }| Past { price: Some(*price), since: *since })
                .collect(),
        }
    }
}

fn distinct<'a>(queries: impl Iterator<Item = &'a Query>, name: fn(&Query) -> &str) -> Vec<&'a str> {
    let mut names: Vec<_> = queries.map(name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Reads a subscription's id.
pub(in crate::commands) fn subscription(text: &str) -> Result<String, String> {
    let groups: Vec<_> = text.split('-').collect();
    let is_hex = groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let is_id = is_hex && groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]);
    is_id
        .then(|| text.to_owned())
        .ok_or_else(|| "it is no id; `az account show --query id` shows it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_is_an_id() {
        const ID: &str = "0190f3a2-7c1e-7abc-8def-001122334455";
        assert_eq!(subscription(ID), Ok(ID.to_owned()));
        for text in
            ["", "my subscription", "0190f3a2", "0190f3a2-7c1e-7abc-8def-00112233445g", "../../../../../"]
        {
            assert!(subscription(text).expect_err(text).contains("az account show"), "{text}");
        }
    }
}
