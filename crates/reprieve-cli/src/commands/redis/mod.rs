//! `reprieve redis`: watches the maintenance notifications of a cache, and rehearses a maintenance.

mod rehearse;
mod timeline;
mod watch;

use std::process::ExitCode;

use clap::Subcommand;
use reprieve::redis::Redis;
use reprieve::{CacheIdentity, Error, ErrorKind, Result};

use super::{EXIT_CODES, block_on};

/// Watches the maintenance notifications of a Redis cache, and rehearses a maintenance
#[derive(Debug, Subcommand)]
#[command(after_help = EXIT_CODES)]
pub(crate) enum Command {
    /// Prints the maintenance notifications of a cache
    #[command(after_help = watch::AFTER_HELP)]
    Watch(watch::Args),
    /// Publishes the notifications of a maintenance, and carries it out on a local server
    #[command(after_help = rehearse::AFTER_HELP)]
    Rehearse(rehearse::Args),
}

impl Command {
    pub(crate) fn run(self) -> ExitCode {
        block_on(async {
            match self {
                Self::Watch(args) => watch::run(args).await,
                Self::Rehearse(args) => rehearse::run(args).await,
            }
        })
    }
}

/// Where the cache is.
#[derive(Debug, clap::Args)]
struct At {
    /// The URL of the cache, or env:VARIABLE for the variable that has it; see below
    url: String,

    /// Signs in with this machine's identity, and not with a key of the URL
    #[arg(long)]
    identity: bool,
}

impl At {
    fn open(&self) -> Result<Redis> {
        let cache = open(&self.url)?;
        if !self.identity {
            return Ok(cache);
        }
        cache.with_identity(CacheIdentity::of_this_machine()?).map_err(invalid)
    }
}

fn open(url: &str) -> Result<Redis> {
    let Some(variable) = url.strip_prefix("env:") else { return Redis::open(url).map_err(invalid) };
    // Else it may be a URL, which has a key.
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if !variable.starts_with(|first: char| is_of_name(first) && !first.is_ascii_digit())
        || !variable.chars().all(is_of_name)
    {
        let why = "name the environment variable behind env:, as in env:CACHE_URL; it has letters, digits and _ only";
        return Err(invalid(why.to_owned()));
    }
    #[expect(clippy::disallowed_methods, reason = "the command line names the variable")]
    let value = std::env::var(variable).unwrap_or_default();
    if value.is_empty() {
        return Err(invalid(format!("the environment variable {variable} is not set")));
    }
    Redis::open(&value).map_err(invalid)
}

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::Invalid, "use the cache", why)
}
