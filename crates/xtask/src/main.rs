//! The developer commands of this repository: `cargo xtask VERB`. Each verb is a file; most need
//! nothing but cargo.

mod bench;
mod certificates;
mod check;
mod command;
mod demo;
mod foreground;
mod help;
mod infra;
mod install;
mod modules;
mod mutants;
mod package;
mod services;
mod simulate;
mod test;
mod thumbnails;

use std::env;
use std::process::ExitCode;

use command::{Failure, say};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            say(&format!("xtask: {failure}"));
            failure.exit_code()
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let Some((verb, arguments)) = arguments.split_first() else {
        return Err(Failure::usage("a verb is missing"));
    };
    match verb.as_str() {
        "azurite" => foreground::run(arguments),
        "bench" => bench::run(arguments),
        "check" => check::run(arguments),
        "demo" => demo::run(arguments),
        "infra" => infra::run(arguments),
        "modules" => modules::run(arguments),
        "mutants" => mutants::run(arguments),
        "package" => package::run(arguments),
        "simulate" => simulate::run(arguments),
        "test" => test::run(arguments),
        "thumbnails" => thumbnails::run_on(arguments),
        "help" | "--help" | "-h" => help::run(),
        _ => Err(Failure::usage(format!("there is no verb {verb:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(arguments: &[&str], expected: &str) {
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        let outcome = run(&arguments).map_or_else(|failure| failure.to_string(), |()| "done".to_owned());
        assert_eq!(outcome, expected, "{arguments:?}");
    }

    #[test]
    fn wrong_usage_refers_to_the_help() {
        check(&[], "a verb is missing; `cargo xtask help` lists the verbs");
        check(&["tset"], "there is no verb \"tset\"; `cargo xtask help` lists the verbs");
        check(
            &["thumbnails", "a", "b"],
            "thumbnails takes one directory at the most; `cargo xtask help` lists the verbs",
        );
        check(&["azurite", "10000"], "azurite takes no arguments; `cargo xtask help` lists the verbs");
        check(
            &["modules", "core"],
            "modules takes `--crate NAME` or nothing; `cargo xtask help` lists the verbs",
        );
        check(&["check", "fast"], "check takes no arguments; `cargo xtask help` lists the verbs");
    }

    #[test]
    fn help_is_a_verb_and_two_flags() {
        for spelling in ["help", "--help", "-h"] {
            check(&[spelling], "done");
        }
    }
}
