//! The arguments of `package`.

use std::env;
use std::path::PathBuf;

use crate::command::Failure;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// The worker.
    pub(super) bin: PathBuf,
    /// The `reprieve` command, for whoever looks at a VM.
    pub(super) cli: Option<PathBuf>,
    pub(super) version: String,
    pub(super) out: Option<PathBuf>,
    pub(super) allow_large: bool,
    /// The time of all files in the archive, in seconds since the Unix epoch.
    pub(super) mtime: u64,
}

pub(super) fn parse(arguments: &[String]) -> Result<Options, Failure> {
    let (mut bin, mut cli, mut out, mut allow_large) = (None, None, None, false);
    let mut version = env!("CARGO_PKG_VERSION").to_owned();
    let mut arguments = arguments.iter();
    while let Some(name) = arguments.next() {
        let mut value =
            || arguments.next().cloned().ok_or_else(|| Failure::usage(format!("{name} needs a value")));
        match name.as_str() {
            "--bin" => bin = Some(PathBuf::from(value()?)),
            "--cli" => cli = Some(PathBuf::from(value()?)),
            "--out" => out = Some(PathBuf::from(value()?)),
            "--version" => version = checked(value()?)?,
            "--allow-large" => allow_large = true,
            _ => return Err(Failure::usage(format!("package has no argument {name:?}"))),
        }
    }
    let bin = bin.ok_or_else(|| Failure::usage("package needs --bin PATH, the worker's program"))?;
    Ok(Options { bin, cli, version, out, allow_large, mtime: mtime()? })
}

/// Returns the version if Azure accepts it: three numbers, each an int32.
/// <https://learn.microsoft.com/azure/virtual-machines/vm-applications>
fn checked(version: String) -> Result<String, Failure> {
    let is_number = |part: &str| {
        part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
            && part.parse::<i32>().is_ok()
    };
    if version.split('.').count() == 3 && version.split('.').all(is_number) {
        Ok(version)
    } else {
        Err(Failure::usage(format!("--version {version:?} is not of the form MAJOR.MINOR.PATCH")))
    }
}

/// Returns the time that reproducible builds agree on, else the epoch.
/// <https://reproducible-builds.org/specs/source-date-epoch/>
fn mtime() -> Result<u64, Failure> {
    let Some(epoch) = env::var_os("SOURCE_DATE_EPOCH") else { return Ok(0) };
    let parsed = epoch.to_str().and_then(|epoch| epoch.parse().ok());
    parsed.ok_or_else(|| {
        Failure::usage(format!("SOURCE_DATE_EPOCH={} is not a number of seconds", epoch.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(arguments: &[&str], expected: &str) {
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        let failure = parse(&arguments).unwrap_err();
        assert_eq!(failure, Failure::usage(expected), "{arguments:?}");
    }

    #[test]
    fn wrong_arguments_are_refused() {
        refused(&[], "package needs --bin PATH, the worker's program");
        refused(&["--bin"], "--bin needs a value");
        refused(&["worker"], "package has no argument \"worker\"");
    }

    #[test]
    fn a_version_is_three_numbers_that_azure_accepts() {
        for version in
            ["1", "1.2", "1.2.3.4", "1.2.x", "1..3", "v1.2.3", "1.2.3-rc1", "1.02.3", "1.2.2147483648"]
        {
            refused(
                &["--version", version],
                &format!("--version {version:?} is not of the form MAJOR.MINOR.PATCH"),
            );
        }
        for version in ["0.0.0", "1.2.3", "1.20.2147483647"] {
            let arguments = ["--bin", "worker", "--version", version].map(str::to_owned);
            assert_eq!(parse(&arguments).unwrap().version, version);
        }
    }
}
