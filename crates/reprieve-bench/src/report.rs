//! The result of one run and the machine it ran on, saved as JSON.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use reprieve_core::clock::wall_now;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::measure::Measure;

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// The start of the run.
    pub(crate) date: jiff::Timestamp,
    /// Whether it was a quick run: then its figures mean nothing.
    pub(crate) quick: bool,
    /// The seed of all random choices.
    pub(crate) seed: u64,
    /// The measured peers, each in its own words.
    pub(crate) peers: Vec<String>,
    /// The failed measurements, and why they failed.
    pub(crate) not_measured: Vec<String>,
    pub(crate) measures: Vec<Measure>,
}

impl Report {
    /// Reads a saved report.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let json = fs::read(file).with_context(|| format!("{} can't be read", file.display()))?;
        serde_json::from_slice(&json)
            .with_context(|| format!("{} is no result of this command", file.display()))
    }

    /// Saves the report.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let mut json = serde_json::to_vec_pretty(self)?;
        json.push(b'\n');
        fs::write(file, json).with_context(|| format!("{} can't be written", file.display()))
    }

    /// The sections with measures, in order.
    pub(crate) fn sections(&self) -> Vec<&str> {
        let mut sections: Vec<&str> = Vec::new();
        for measure in &self.measures {
            if !sections.contains(&measure.section.as_str()) {
                sections.push(&measure.section);
            }
        }
        sections
    }
}

/// Returns the current time, for the report's date.
pub(crate) fn now() -> jiff::Timestamp {
    jiff::Timestamp::try_from(wall_now()).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::measure::{Kind, Measures, Of};

    /// A report with these measures.
    pub(crate) fn with(measures: Measures) -> Report {
        Report {
            machine: Machine::default(),
            date: jiff::Timestamp::UNIX_EPOCH,
            quick: false,
            seed: 7,
            peers: vec!["huey 3.5.4 on SqliteHuey".to_owned()],
            not_measured: Vec::new(),
            measures: measures.into_vec(),
        }
    }

    #[test]
    fn a_saved_report_is_read_again() {
        let mut measures = Measures::default();
        measures.add(Kind::higher("throughput", "drain", "jobs/s").goal(Of::Median, 3.0), 4.0);
        measures.add(Kind::lower("depth", "drain", "µs").reference(true), 4.0);
        let report = with(measures);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("bench.json");
        report.write(&file).unwrap();
        assert_eq!(Report::read(&file).unwrap(), report);
        assert_eq!(report.sections(), ["throughput", "depth"]);
    }

    #[test]
    fn a_measure_is_written_as_documented() {
        let mut measures = Measures::default();
        measures.add(Kind::lower("notice", "released", "ms").goal(Of::P99, 1000.0), 12.5);
        let json = serde_json::to_value(&with(measures).measures[0]).unwrap();
        let expected = serde_json::json!({
            "section": "notice", "name": "released", "unit": "ms", "better": "lower", "values": [12.5],
            "median": 12.5, "min": 12.5, "max": 12.5, "goal": {"at_most": 1000.0, "of": "p99", "met": true},
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn a_file_that_is_none_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("bench.json");
        let error = Report::read(&file).unwrap_err().to_string();
        assert!(error.ends_with("bench.json can't be read"), "{error}");
        fs::write(&file, "{}").unwrap();
        let error = Report::read(&file).unwrap_err().to_string();
        assert!(error.ends_with("bench.json is no result of this command"), "{error}");
    }
}
