//! Runs commands in the root of the repository, and reports what runs and what failed.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The reason for which a verb failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Wrong usage. Exit code 2.
    Usage(String),
    /// A command failed. Exit code 1.
    Failed(String),
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) => write!(f, "{message}; `cargo xtask help` lists the verbs"),
            Self::Failed(message) => f.write_str(message),
        }
    }
}

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}

/// Returns `cargo` with `arguments`, in the root of the repository: it builds the whole workspace
/// unless a package is named.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root());
    command
}

/// Returns the target directory; this program is in its `debug`.
pub(crate) fn builds() -> Result<PathBuf, Failure> {
    let this = env::current_exe()
        .map_err(|error| Failure::Failed(format!("the target directory can't be found: {error}")))?;
    Ok(this.ancestors().nth(2).unwrap_or(&this).to_owned())
}

/// Returns whether the environment variable `name` is set and not 0.
pub(crate) fn is_needed(name: &str) -> bool {
    env::var_os(name).is_some_and(|needed| !needed.is_empty() && needed != "0")
}

/// Returns whether `cargo SUBCOMMAND` is installed.
pub(crate) fn has_subcommand(subcommand: &str) -> bool {
    let mut command = cargo(&[subcommand, "--version"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

const NOTHING: &[(&str, &str)] = &[];

/// Shows `command` and runs it to its end.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    run_with(command, NOTHING)
}

/// Shows `command` and runs it to its end, with `variables` that are not shown.
pub(crate) fn run_with(mut command: Command, variables: &[(&str, impl AsRef<OsStr>)]) -> Result<(), Failure> {
    let shown = shown(&command);
    say(&format!("> {shown}"));
    for (name, value) in variables {
        command.env(name, value);
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Failed(format!("`{shown}` failed with {status}"))),
        Err(error) => Err(Failure::Failed(format!("`{shown}` could not be started: {error}"))),
    }
}

/// Runs `command` to its end, and then shows what it printed: for commands that run beside others.
pub(crate) fn run_apart(mut command: Command) -> Result<(), Failure> {
    let shown = shown(&command);
    say(&format!("> {shown}"));
    let output = command.stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| Failure::Failed(format!("`{shown}` could not be started: {error}")))?;
    let printed = [output.stdout, output.stderr].concat();
    say(&format!("> {shown}:\n{}", String::from_utf8_lossy(&printed).trim_end()));
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::Failed(format!("`{shown}` failed with {}", output.status)))
}

/// Shows `command` and replaces this program with it.
pub(crate) fn become_it(mut command: Command) -> Result<(), Failure> {
    let shown = shown(&command);
    say(&format!("> {shown}"));
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        let error = command.exec();
        Err(Failure::Failed(format!("`{shown}` could not be started: {error}")))
    }
    #[cfg(not(unix))]
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) if status.code() == Some(2) => Err(Failure::usage(format!("`{shown}` was refused"))),
        Ok(status) => Err(Failure::Failed(format!("`{shown}` failed with {status}"))),
        Err(error) => Err(Failure::Failed(format!("`{shown}` could not be started: {error}"))),
    }
}

/// Prints one line to stderr.
#[expect(clippy::print_stderr, reason = "progress goes to stderr; stdout belongs to the command that runs")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}

fn shown(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let variables = variables.map(|(name, value)| format!("{}='{}'", name.display(), value.display()));
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    variables.chain(words.map(|word| word.display().to_string())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_fails_is_named_with_its_status() {
        let failure = run(cargo(&["no-such-subcommand"])).unwrap_err().to_string();
        assert!(failure.starts_with("`cargo no-such-subcommand` failed with exit "), "{failure}");
    }

    #[test]
    fn a_command_that_is_not_there_is_named() {
        let failure = run(Command::new("./no-such-program")).unwrap_err().to_string();
        assert!(failure.starts_with("`./no-such-program` could not be started: "), "{failure}");
    }

    #[test]
    fn a_command_is_shown_as_it_would_be_typed() {
        let mut command = cargo(&["doc", "--no-deps"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(shown(&command), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps");
    }

    #[test]
    fn a_missing_subcommand_is_noticed() {
        assert!(has_subcommand("clippy"));
        assert!(!has_subcommand("no-such-subcommand"));
    }
}
