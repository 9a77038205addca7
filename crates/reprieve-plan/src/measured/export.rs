//! The ledger's export: what `reprieve report --json` or `--csv` prints.

use std::fmt;

use serde::Deserialize;

use super::records::records;
use super::{BestHour, Rate, Seen, moments};
use crate::availability::{Life, Loss};

/// The machines of an export. Regular ones are left out: a fleet with many of them would look safer than Spot is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// The machines, for as long as they were seen.
    pub seen: Vec<Seen>,
    /// Those among them that were seen since they were born.
    pub lives: Vec<Life>,
    /// How many regular machines were left out.
    pub regular: u32,
}

/// Why a text is no export, or tells nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportError {
    /// It is no such file, or one of an older version; with what is wrong.
    Form(String),
    /// No machine in it can be evicted.
    NoMachine,
}

/// A machine, in both forms.
#[derive(Debug, Deserialize)]
struct Machine {
    seen_unix_ms: i64,
    until_unix_ms: i64,
    #[serde(default)]
    booted_unix_ms: Option<i64>,
    evicted: bool,
    #[serde(default)]
    priority: String,
}

#[derive(Debug, Deserialize)]
struct Report {
    lives: Vec<Machine>,
}

/// The first columns of the CSV form.
const CSV_BEGINS: &str = "at_unix_ms,entry,what,";

/// How long before a machine was first seen it may have booted to count as seen since then: its first worker starts
/// some minutes after the boot.
const YOUNG_MS: i64 = 10 * 60_000;

impl Export {
    /// Whether the text is meant to be an export, as opposed to other traces.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let is_report = || text.starts_with('{') && text.contains("\"since_unix_ms\"");
        text.starts_with(CSV_BEGINS) || is_report()
    }

    /// Reads the machines of an export, in either form.
    ///
    /// # Errors
    ///
    /// A text of another form, and one without machines that can be evicted.
    pub fn parse(text: &str) -> Result<Self, ExportError> {
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let machines = if text.starts_with('{') {
            let report: Report =
                serde_json::from_str(text).map_err(|fault| ExportError::Form(fault.to_string()))?;
            report.lives
        } else {
            from_csv(text)?
        };
        let (regular, spot): (Vec<_>, Vec<_>) =
            machines.into_iter().partition(|it| it.priority.eq_ignore_ascii_case("regular"));
        if spot.is_empty() {
            return Err(ExportError::NoMachine);
        }
        let is_young = |it: &&Machine| {
            it.booted_unix_ms.is_some_and(|born| it.seen_unix_ms.saturating_sub(born) <= YOUNG_MS)
        };
        let life = |it: &Machine| {
            let born = it.booted_unix_ms.unwrap_or(it.seen_unix_ms);
            let lived_ms = u64::try_from(it.until_unix_ms.saturating_sub(born)).unwrap_or(0);
            Life { lived_ms, evicted: it.evicted }
        };
        let seen =
            |it: &Machine| Seen { from_ms: it.seen_unix_ms, until_ms: it.until_unix_ms, evicted: it.evicted };
        Ok(Self {
            lives: spot.iter().filter(is_young).map(life).collect(),
            seen: spot.iter().map(seen).collect(),
            regular: u32::try_from(regular.len()).unwrap_or(u32::MAX),
        })
    }

    /// How many of the machines are evicted in an hour; `None` if they were seen for no time.
    #[must_use]
    pub fn rate(&self) -> Option<Rate> {
        Rate::of(&self.seen)
    }

    /// The hour of the day to begin a run of this length; `None` unless the data tell.
    #[must_use]
    pub fn best_hour(&self, run_ms: u64) -> Option<BestHour> {
        BestHour::of(&self.seen, run_ms)
    }

    /// The moments in which machines were evicted, each with the machines that were there.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        let Some(mut before) = self.seen.iter().map(|it| it.from_ms).min() else { return Vec::new() };
        let loss = |(at, lost): (i64, u32)| {
            let there = self.seen.iter().filter(|it| it.from_ms <= at && it.until_ms >= at).count();
            let after_ms = u64::try_from(at.saturating_sub(before)).unwrap_or(0);
            before = at;
            Loss { after_ms, lost, of: u32::try_from(there).unwrap_or(u32::MAX).max(lost) }
        };
        moments(&self.seen).into_iter().map(loss).collect()
    }
}

fn from_csv(text: &str) -> Result<Vec<Machine>, ExportError> {
    let form = |why: String| ExportError::Form(why);
    let mut records = records(text).into_iter();
    let header = records.next().unwrap_or_default();
    let column = |name: &str| {
        let found = header.iter().position(|column| column == name);
        found.ok_or_else(|| form(format!("it has no column {name}")))
    };
    let [entry, what, at] = [column("entry")?, column("what")?, column("at_unix_ms")?];
    let [until, booted, priority] =
        [column("until_unix_ms")?, column("booted_unix_ms")?, column("priority")?];
    let mut machines = Vec::new();
    for (number, record) in (2..).zip(records) {
        let cell = |at: usize| record.get(at).map_or("", String::as_str);
        if cell(entry) != "machine" {
            continue;
        }
        let time = |at: usize| -> Result<i64, ExportError> {
            let text = cell(at);
            text.parse().map_err(|_| form(format!("record {number} has {text:?} where a time should be")))
        };
        machines.push(Machine {
            seen_unix_ms: time(at)?,
            until_unix_ms: time(until)?,
            booted_unix_ms: if cell(booted).is_empty() { None } else { Some(time(booted)?) },
            evicted: cell(what) == "evicted",
            priority: cell(priority).to_owned(),
        });
    }
    Ok(machines)
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(why) => write!(
                f,
                "the file is no export of the ledger ({why}): make one with `reprieve report --json` or `--csv` of this \
                 version"
            ),
            Self::NoMachine => f.write_str(
                "the export has no Spot machine: give a longer time with `reprieve report --since`, or a rate",
            ),
        }
    }
}

impl std::error::Error for ExportError {}

#[cfg(test)]
mod tests {
    use super::{Export, ExportError};
    use crate::availability::{Life, Loss};
    use crate::measured::Seen;

    const JSON: &str = r#"{"since_unix_ms":0,"machines":4,"lives":[
        {"vm":"a","priority":"Spot","booted_unix_ms":100,"seen_unix_ms":1000,"until_unix_ms":9000000,"evicted":true},
        {"vm":"b","booted_unix_ms":null,"seen_unix_ms":2000,"until_unix_ms":9100000,"evicted":true},
        {"vm":"c","priority":"Spot","booted_unix_ms":-9000000,"seen_unix_ms":0,"until_unix_ms":20000000,"evicted":false},
        {"vm":"d","priority":"Regular","booted_unix_ms":0,"seen_unix_ms":0,"until_unix_ms":1,"evicted":false}],
        "money":null}"#;

    const CSV: &str = "at_unix_ms,entry,what,vm,job_and_reason,priority,booted_unix_ms,until_unix_ms,cost\r\n\
        0,boot,,a,,,,,\r\n\
        0,machine,seen,c,,Spot,-9000000,20000000,\r\n\
        0,machine,seen,d,,Regular,0,1,0.1\r\n\
        500,failure,retried,,\"k: a \"\"b\"\",\r\nmachine,evicted\",,,,\r\n\
        1000,machine,evicted,\"a,1\",,Spot,100,9000000,\r\n\
        2000,machine,evicted,b,,,,9100000,\r\n";

    fn seen(from_ms: i64, until_ms: i64, evicted: bool) -> Seen {
        Seen { from_ms, until_ms, evicted }
    }

    #[test]
    fn both_forms_have_the_same_machines() {
        let (json, csv) = (Export::parse(JSON).unwrap(), Export::parse(CSV).unwrap());
        let mut sorted = json.seen.clone();
        sorted.sort_by_key(|it| it.from_ms);
        let expected =
            [seen(0, 20_000_000, false), seen(1_000, 9_000_000, true), seen(2_000, 9_100_000, true)];
        assert_eq!((sorted.as_slice(), csv.seen.as_slice()), (&expected[..], &expected[..]));
        assert_eq!((json.regular, csv.regular), (1, 1));
        // b's birth is not known, and c was old when it was first seen.
        let young = [Life { lived_ms: 8_999_900, evicted: true }];
        assert_eq!((json.lives.as_slice(), csv.lives.as_slice()), (&young[..], &young[..]));
    }

    #[test]
    fn evictions_of_one_moment_are_one_loss() {
        let export = Export::parse(JSON).unwrap();
        assert_eq!(export.losses(), [Loss { after_ms: 9_000_000, lost: 2, of: 3 }]);
        let rate = export.rate().unwrap();
        assert_eq!((rate.evictions, rate.moments), (2, 1));
    }

    #[test]
    fn an_export_is_told_from_other_traces() {
        assert!(
            Export::is_one(JSON) && Export::is_one(CSV) && Export::is_one("\u{feff}at_unix_ms,entry,what,x")
        );
        for other in
            ["{\"metadata\":{\"gap_seconds\":300},\"data\":[1]}", "1000,add,a", "start_utc,lifetime_s", ""]
        {
            assert!(!Export::is_one(other), "{other}");
        }
    }

    #[test]
    fn what_is_no_export_gets_one_sentence() {
        for (text, why) in [
            ("{\"since_unix_ms\":0}", "missing field `lives`"),
            ("at_unix_ms,entry,what,boot\r\n", "it has no column until_unix_ms"),
            (&CSV.replace("9100000", "soon"), "record 7 has \"soon\" where a time should be"),
        ] {
            let fault = Export::parse(text).unwrap_err().to_string();
            assert!(fault.contains(why) && fault.contains("reprieve report --json"), "{fault}");
        }
        let regular =
            JSON.replace("\"Spot\"", "\"Regular\"").replace("\"vm\":\"b\"", "\"priority\":\"regular\"");
        assert_eq!(Export::parse(&regular).unwrap_err(), ExportError::NoMachine);
    }
}
