//! `reprieve metadata scenario`.

use std::path::{Path, PathBuf};

use reprieve::{Error, ErrorKind, Result};
use reprieve_sim::control;
use reprieve_sim::metadata::Scenario;
use serde::Serialize;

use super::{At, print};
use crate::format::table;
use crate::out::answer;

#[derive(Debug, clap::Args)]
pub(crate) struct ScenarioArgs {
    /// The scenario's name
    name: Option<String>,

    /// Runs the scenario in this file, TOML or JSON, and adds it to the mock's list
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    file: Option<PathBuf>,

    /// The VM that it names [default: the first]
    #[arg(long, value_name = "NAME")]
    vm: Option<String>,

    /// Prints the scenario's file instead of running it
    #[arg(long, requires = "name", conflicts_with = "vm")]
    show: bool,

    #[command(flatten)]
    at: At,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Run {
    scenario: String,
    vm: String,
}

#[derive(Debug, Serialize)]
struct Shown {
    text: String,
}

pub(super) async fn run(args: ScenarioArgs) -> Result<()> {
    let ScenarioArgs { name, file, vm, show, at: At { url }, json } = args;
    let name = match (name, file) {
        (Some(name), _) => name,
        (None, Some(file)) => control::add_scenario(&url, parse(&file, &read(&file)?)?.text()).await?.name,
        (None, None) if vm.is_some() => {
            return Err(Error::new(
                ErrorKind::Invalid,
                "run a scenario",
                "name the scenario, or give --file",
            ));
        }
        (None, None) => return list(&url, json).await,
    };
    if show {
        let text = control::scenario(&url, &name).await?;
        let line = text.trim_end().to_owned();
        return print(json, &Shown { text }, &line);
    }
    let vm = control::run_scenario(&url, &name, vm.as_deref()).await?;
    let line = format!("{name}  {vm}");
    print(json, &Run { scenario: name, vm }, &line)
}

async fn list(url: &str, json: bool) -> Result<()> {
    let scenarios = control::scenarios(url).await?;
    answer(json, &scenarios, || {
        let rows: Vec<_> =
            scenarios.iter().map(|each| [each.name.clone(), each.description.clone()]).collect();
        table(["SCENARIO", "DESCRIPTION"], &rows)
    })
}

/// The text of a file.
pub(super) fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|error| {
        let message = format!("{}: {error}", file.display());
        Error::new(ErrorKind::Invalid, "read a scenario", message).with_source(error)
    })
}

/// Parses a scenario; errors name the file.
pub(super) fn parse(file: &Path, text: &str) -> Result<Scenario> {
    Scenario::read(text).map_err(|error| {
        let message = format!("{}: {}", file.display(), error.message());
        Error::new(error.kind(), error.operation(), message)
    })
}
