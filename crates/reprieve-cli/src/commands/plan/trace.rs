//! The file of `--trace`: evictions as they were, in any of several forms that are told apart by their content.

use std::path::Path;

use reprieve::{Error, ErrorKind, Result};
use reprieve_plan::availability::{Life, Loss, Series, TraceError, lives, losses};
use reprieve_plan::measured::{Band, BestHour, Export};
use reprieve_plan::plan::{Known, Source};

use super::batch::invalid;
use super::values::GivenRate;
use crate::files;

/// What a file tells of evictions.
#[derive(Debug, Clone)]
pub(super) struct Trace {
    /// The file's name, for the source.
    name: String,
    told: Told,
}

#[derive(Debug, Clone)]
enum Told {
    /// Lifetimes: each machine for itself.
    Lives(Vec<Life>),
    /// Fleet events: machines that went at a moment, and how many were there over time.
    Losses(Vec<Loss>, Option<Series>),
    /// How many machines could be had over time.
    Availability(Series),
    /// What the ledger of workers has seen.
    Ledger(Export),
}

impl Trace {
    /// Reads the file. Which rate was given with it decides whether it fits.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for a file that can't be read, that is no trace, or that tells nothing.
    pub(super) fn read(file: &Path, rate: Option<GivenRate>) -> Result<Self> {
        let name = file.display().to_string();
        let text = files::text(file)
            .map_err(|why| Error::new(ErrorKind::Invalid, "read the trace", format!("{name} {why}")))?;
        let told = told(&text).map_err(|fault| refused(&name, &fault))?;
        if rate == Some(GivenRate::Unknown) {
            return Err(invalid(format!(
                "{name} says how machines are evicted, and --eviction-rate that nothing is known: leave one out"
            )));
        }
        if rate.is_some() && !matches!(told, Told::Losses(..)) {
            return Err(invalid(format!(
                "{name} and --eviction-rate both say how often machines are evicted: leave one out (fleet events \
                 take a rate, because they have the pattern)"
            )));
        }
        Ok(Self { name, told })
    }

    /// The ledger of a store.
    pub(super) const fn of_ledger(machines: Export) -> Self {
        Self { name: String::new(), told: Told::Ledger(machines) }
    }

    /// What is known of evictions by this trace, with up to `machines` machines, and beside what Azure says.
    pub(super) fn known(&self, rate: Option<GivenRate>, machines: u32, azure: Option<Band>) -> Known {
        let source = |more: &str| Source::Measured(format!("{}{more}", self.name));
        match (&self.told, rate) {
            (Told::Lives(lives), _) => Known::Lives(lives.clone(), source("")),
            (Told::Losses(losses, _), Some(GivenRate::Between(low, high))) => {
                Known::Rate { low, high, pattern: Some(losses.clone()), source: Source::Given }
            }
            (Told::Losses(losses, _), Some(GivenRate::Unknown) | None) => {
                Known::Losses(losses.clone(), source(""))
            }
            // Without a time it was refused when it was read.
            (Told::Ledger(export), _) => Known::measured(export, azure).unwrap_or(Known::Unknown),
            // Such a series says whether there was Spot at all.
            (Told::Availability(series), _) if series.most() == 1 => {
                Known::Availability(series.times(machines), source(", where 1 stands for all VMs"))
            }
            (Told::Availability(series), _) => {
                let most = series.most();
                let few =
                    format!(", in which there are never more than {most} VMs: fewer than this plan has");
                Known::Availability(series.clone(), source(if most < machines { &few } else { "" }))
            }
        }
    }

    /// How many machines could be had over time, for the deadline policies.
    pub(super) fn availability(&self) -> Option<Series> {
        match &self.told {
            Told::Losses(_, series) => series.clone(),
            Told::Lives(_) | Told::Availability(_) | Told::Ledger(_) => None,
        }
    }

    /// The best hour of the day to begin a run of this length, if the trace is a ledger's and tells.
    pub(super) fn best_hour(&self, run_ms: u64) -> Option<BestHour> {
        match &self.told {
            Told::Ledger(export) => export.best_hour(run_ms),
            Told::Lives(_) | Told::Losses(..) | Told::Availability(_) => None,
        }
    }
}

fn told(text: &str) -> Result<Told, String> {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let said = |fault: TraceError| fault.to_string();
    let first = text.lines().next().unwrap_or_default();
    if text.is_empty() {
        Err(said(TraceError::Empty))
    } else if Export::is_one(text) {
        let export = Export::parse(text).map_err(|fault| fault.to_string())?;
        if export.rate().is_none() {
            return Err("its machines were seen for no time, so it tells nothing of evictions".to_owned());
        }
        Ok(Told::Ledger(export))
    } else if text.starts_with('{') {
        let series = Series::parse(text).map_err(said)?;
        if series.most() == 0 {
            return Err(
                "no machine could be had at any time of the trace: there is nothing to plan with".to_owned()
            );
        }
        Ok(Told::Availability(series))
    } else if first.contains("lifetime_s") {
        let lives = lives(text).map_err(said)?;
        if !lives.iter().any(|life| life.evicted) {
            return Err(
                "no machine of the trace was seen to be evicted, so it tells nothing of evictions".to_owned()
            );
        }
        Ok(Told::Lives(lives))
    } else {
        let losses = losses(text).map_err(|fault| match fault {
            // Neither of the forms, so all are named.
            TraceError::Columns { line: 1, .. } => {
                "its first line is neither a header with start_utc and lifetime_s, nor an event \
                 `milliseconds,add|remove,node`, nor the beginning of a JSON series"
                    .to_owned()
            }
            fault => said(fault),
        })?;
        Ok(Told::Losses(losses, Series::parse(text).ok()))
    }
}

fn refused(name: &str, fault: &str) -> Error {
    Error::new(ErrorKind::Invalid, "read the trace", format!("{name}: {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLEET: &str = "0,add,a\n0,add,b\n60000,remove,a\n90000,add,c\n120000,remove,b\n";

    fn form(text: &str) -> &'static str {
        match told(text) {
            Ok(Told::Lives(_)) => "lives",
            Ok(Told::Losses(_, Some(_))) => "losses",
            Ok(Told::Losses(_, None)) => "losses without time",
            Ok(Told::Availability(_)) => "availability",
            Ok(Told::Ledger(_)) => "ledger",
            Err(_) => "none",
        }
    }

    #[test]
    fn a_trace_is_told_by_its_content() {
        assert_eq!(form(FLEET), "losses");
        assert_eq!(form("start_utc,lifetime_s,ended_by\n2019-02-18T16:57:39Z,10,preempted\n"), "lives");
        assert_eq!(form("\u{feff}\n{\"metadata\":{\"gap_seconds\":300},\"data\":[4,0,2]}"), "availability");
    }

    /// A ledger of ten machines of ten hours, the first two of which were evicted.
    fn ledger() -> String {
        let life = |number: u64| {
            let (seen, until) = (number * 3_600_000, (number + 10) * 3_600_000);
            format!(r#"{{"seen_unix_ms":{seen},"until_unix_ms":{until},"evicted":{}}}"#, number < 2)
        };
        let lives: Vec<_> = (0..10).map(life).collect();
        format!(r#"{{"since_unix_ms":0,"lives":[{}]}}"#, lives.join(","))
    }

    #[test]
    fn a_ledgers_own_rate_comes_before_azures_and_is_compared_with_it() {
        assert_eq!(form(&ledger()), "ledger");
        let trace = Trace { name: "t".to_owned(), told: told(&ledger()).unwrap() };
        let azure = Band { low: 0.2, high: None };
        let Known::Rate { low, high: Some(high), source: Source::Measured(source), .. } =
            trace.known(None, 7, Some(azure))
        else {
            panic!("a rate")
        };
        assert!(low < 0.02 && high > 0.02 && high < 0.2, "{low} to {high}");
        assert!(
            source.contains("measured 2 % an hour") && source.contains("Azure says 20 % or more"),
            "{source}"
        );
    }

    #[test]
    fn a_trace_that_tells_nothing_has_a_sentence() {
        for (text, why) in [
            ("", "the trace is empty"),
            ("0,add,a\n5,add,b\n", "no machine left the fleet"),
            ("start_utc,lifetime_s,ended_by\n2019-02-18T16:57:39Z,10,stopped\n", "was seen to be evicted"),
            ("{\"metadata\":{\"gap_seconds\":300},\"data\":[0,0]}", "no machine could be had"),
            ("{\"a\":1}", "the trace is no series of the form"),
            ("{\"since_unix_ms\":0,\"machines\":4}", "the file is no export of the ledger"),
            ("a,b\n1,2\n", "its first line is neither a header"),
            ("0,add,a\n5,remove,b\n", "line 2 of the trace removes \"b\""),
            ("start_utc,lifetime_s\nyesterday,10\n", "a time like 2019-02-18T16:57:39Z"),
        ] {
            let fault = told(text).expect_err(text);
            assert!(fault.contains(why), "{fault}");
        }
    }

    #[test]
    fn a_series_of_ones_and_zeros_stands_for_all_machines() {
        let told = told("{\"metadata\":{\"gap_seconds\":300},\"data\":[1,0,1]}").unwrap();
        let trace = Trace { name: "t".to_owned(), told };
        let Known::Availability(series, source) = trace.known(None, 7, None) else { panic!("a series") };
        assert_eq!(series.most(), 7);
        assert_eq!(source, Source::Measured("t, where 1 stands for all VMs".to_owned()));
    }

    #[test]
    fn fleet_events_take_a_rate_as_its_pattern() {
        let trace = Trace { name: "t".to_owned(), told: told(FLEET).unwrap() };
        assert!(matches!(trace.known(None, 7, None), Known::Losses(..)));
        let known = trace.known(Some(GivenRate::Between(0.05, None)), 7, None);
        assert!(matches!(known, Known::Rate { pattern: Some(_), high: None, .. }));
    }
}
