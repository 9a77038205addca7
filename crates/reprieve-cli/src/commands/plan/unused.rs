//! Flags that would change nothing beside the others. Their variables may be set for other commands, so only what stands
//! on the command line is refused.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, FromArgMatches};

/// Prices that are asked for, and how.
const OF_REQUESTS: [&str; 5] = ["max_age", "offline", "prices_url", "cache_dir", "management_url"];

/// The store of `--like-batch`.
const OF_STORE: [&str; 4] = ["store", "queue", "container", "config"];

/// No flag of its own; it looks at all the others of the command.
#[derive(Debug)]
pub(super) struct Unused;

impl FromArgMatches for Unused {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        // Formatted here, because a parser would show the usage of the whole program.
        let mut command = Command::new("reprieve plan").override_usage("reprieve plan [OPTIONS]");
        let mut refuse = |fault| clap::Error::raw(ErrorKind::ArgumentConflict, fault).format(&mut command);
        fault(matches).map_or(Ok(Self), |fault| Err(refuse(fault)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        Self::from_arg_matches(matches).map(drop)
    }
}

impl clap::Args for Unused {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

/// The first flag that would change nothing, and what to do.
fn fault(matches: &ArgMatches) -> Option<String> {
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let first = |ids: &[&'static str]| ids.iter().copied().find(|id| is_given(id)).map(flag);
    if !is_given("sizes")
        && let Some(flag) = first(&OF_REQUESTS)
    {
        return Some(format!(
            "{flag} is for prices that are asked for: leave it out, or give --sizes and --regions instead of prices"
        ));
    }
    if !is_given("subscription")
        && let Some(flag) = first(&["management_url"])
    {
        return Some(format!("{flag} is for what --subscription asks: give both, or leave it out"));
    }
    if !is_given("like_batch")
        && let Some(flag) = first(&OF_STORE)
    {
        return Some(format!("{flag} is for the store of --like-batch: give both, or leave it out"));
    }
    None
}

fn flag(id: &str) -> String {
    format!("--{}", id.replace('_', "-"))
}
