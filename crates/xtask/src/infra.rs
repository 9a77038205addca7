//! `cargo xtask infra`: tests of the templates, of the package's scripts, and of the package on
//! machines with a real systemd.

use std::env;
use std::fs;
use std::panic;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::command::{Failure, builds, cargo, is_needed, root, run as run_command, run_apart, say};
use crate::install;
use crate::services::{NEED_PYTHON, unless_needed};

/// Makes it a failure that this machine can't run the scripts' and the machines' tests.
const NEEDED: &str = "REPRIEVE_TESTS_NEED_NSPAWN";

const PARTS: [&str; 3] = ["templates", "scripts", "machines"];

/// Runs the named parts, or all.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if let Some(unknown) = arguments.iter().find(|named| !PARTS.contains(&named.as_str())) {
        return Err(Failure::usage(format!("infra has no part {unknown:?}")));
    }
    let is_chosen = |part: &&str| arguments.is_empty() || arguments.iter().any(|named| named == part);
    // The machines wait for most of the time, in which the others compute.
    beside(PARTS.into_iter().filter(is_chosen).map(|part| {
        move || match part {
            "templates" => templates(),
            "scripts" => scripts(),
            _ => machines(),
        }
    }))
}

/// Runs tasks beside each other, all to their ends, and returns the first one's failure.
fn beside<T: FnOnce() -> Result<(), Failure> + Send>(tasks: impl Iterator<Item = T>) -> Result<(), Failure> {
    thread::scope(|scope| {
        let running: Vec<_> = tasks.map(|task| scope.spawn(task)).collect();
        // The scope waits for the others.
        running.into_iter().try_for_each(|task| task.join().unwrap_or_else(|why| panic::resume_unwind(why)))
    })
}

fn in_root(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Checks the templates with what there is: the types, the kept snapshots, checkov, the parser of
/// queries, and the real compiler. Each file of tests has a process.
fn templates() -> Result<(), Failure> {
    let unreadable = |error| Failure::Failed(format!("infra/tests can't be read: {error}"));
    let entries = fs::read_dir(root().join("infra/tests")).map_err(unreadable)?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_python = |name: &str| Path::new(name).extension().is_some_and(|extension| extension == "py");
    let tests = names.filter(|name| name.starts_with("test_") && is_python(name));
    beside(tests.map(|name| move || templates_test(&name)))
}

fn templates_test(name: &str) -> Result<(), Failure> {
    // The checker leaves its files to the garbage collector.
    let unittest =
        ["-W", "ignore::ResourceWarning", "-m", "unittest", "discover", "-s", "infra/tests", "-p", name];
    let mut test = in_root("python3", &unittest);
    // checkov reads evaluated templates, and only the checker evaluates them. It takes a minute to install.
    if name == "test_checkov.py"
        && env::var_os("BICEPLINT").is_some()
        && let Some(programs) = unless_needed(NEED_PYTHON, "with checkov", install::checkov())?
    {
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([programs].into_iter().chain(env::split_paths(&path)))
            .map_err(|error| Failure::Failed(format!("PATH can't be extended: {error}")))?;
        test.env("PATH", path).env("INFRA_TESTS_NEED_CHECKOV", "1");
    }
    if name == "test_files.py"
        && let Some(()) = unless_needed(NEED_PYTHON, "of queries", install::kusto())?
    {
        test.env("INFRA_TESTS_NEED_KQL", "1");
    }
    run_apart(test)
}

/// Runs the package's scripts, without a machine.
fn scripts() -> Result<(), Failure> {
    for tool in ["bats", "shellcheck", "systemd-analyze"] {
        let mut ask = Command::new(tool);
        let asked = ask.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if asked.is_ok_and(|status| status.success()) {
            continue;
        }
        let missing = format!("{tool} is not installed, so the package's scripts can't be tested");
        if is_needed(NEEDED) {
            return Err(Failure::Failed(missing));
        }
        say(&format!("SKIPPED: {missing}"));
        return Ok(());
    }
    run_apart(in_root("bats", &["infra/tests/package.bats"]))
}

/// Installs, updates, disturbs and removes the package on machines with a real systemd.
fn machines() -> Result<(), Failure> {
    // As `cargo xtask test` builds them, so that nothing is built twice.
    run_command(cargo(&["test", "--no-run"]))?;
    let mut test = in_root("python3", &["infra/tests/nspawn/test_package.py", "--jobs=4"]);
    test.env("REPRIEVE_TEST_BINARIES", builds()?.join("debug"));
    run_command(test)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_run_to_their_ends_when_one_fails() {
        let (sender, ended) = std::sync::mpsc::channel();
        let tasks = [false, true, true].into_iter().map(|is_well| {
            let sender = sender.clone();
            move || {
                sender.send(()).expect("the test still listens");
                if is_well { Ok(()) } else { Err(Failure::Failed("it was cut".to_owned())) }
            }
        });
        assert_eq!(beside(tasks), Err(Failure::Failed("it was cut".to_owned())));
        assert_eq!(ended.try_iter().count(), 3);
    }

    #[test]
    fn an_unknown_part_is_wrong_usage() {
        let refused = run(&["machine".to_owned()]).unwrap_err();
        assert_eq!(refused, Failure::usage("infra has no part \"machine\""));
    }
}
