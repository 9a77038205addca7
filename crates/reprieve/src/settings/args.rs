//! The command line of a worker, and of programs that only use its store: flags from the table.

use std::collections::BTreeMap;

use clap::{Arg, ArgGroup, ArgMatches, Args, Command, FromArgMatches, Id};

use super::given::{AnyText, Given};
use super::table::{self, CONFIG, KEEP, STORE, Setting, WORKER};

/// Which store and queue: `--store`, `--queue`, `--container` and `--config`, with their
/// environment variables and their keys in `reprieve.toml`. Flatten it into a command of your own;
/// see [`Client::open`](crate::Client::open).
///
/// The default is that of an empty command line without environment variables: the file, and the
/// defaults.
#[derive(Debug, Clone, Default)]
pub struct StoreArgs(Texts);

/// All settings of a worker: flags, with their environment variables and their keys in
/// `reprieve.toml`. Flatten it into a command of your own; see [`work`](crate::work).
///
/// The default is that of an empty command line without environment variables: the file, and the
/// defaults.
#[derive(Debug, Clone, Default)]
pub struct WorkerArgs(Texts);

/// Which store, and for how long it keeps what: flags, with their environment variables and their
/// keys in `reprieve.toml`. Flatten it into a command of your own; see
/// [`Client::cleaner`](crate::Client::cleaner).
#[derive(Debug, Clone, Default)]
pub struct CleanArgs(Texts);

/// The unchecked texts that were given as flags or variables, by key.
#[derive(Debug, Clone, Default)]
pub(super) struct Texts(BTreeMap<&'static str, Given>);

impl Texts {
    pub(super) fn get(&self, key: &str) -> Option<&Given> {
        self.0.get(key)
    }

    fn of(matches: &ArgMatches, settings: impl Iterator<Item = &'static Setting>) -> Self {
        let given = |key: &'static str| Some((key, matches.get_one::<Given>(key)?.clone()));
        Self(settings.filter_map(|setting| given(setting.key)).collect())
    }
}

impl StoreArgs {
    pub(super) const fn texts(&self) -> &Texts {
        &self.0
    }
}

impl CleanArgs {
    pub(super) const fn texts(&self) -> &Texts {
        &self.0
    }
}

impl WorkerArgs {
    pub(super) const fn texts(&self) -> &Texts {
        &self.0
    }

    #[cfg(test)]
    pub(super) fn set_env(&mut self, key: &'static str, text: &str) {
        let given = Given { text: text.to_owned(), by: super::given::By::Env };
        self.0.0.insert(key, given);
    }
}

fn of_store() -> impl Iterator<Item = &'static Setting> {
    STORE.iter().chain([&CONFIG])
}

fn of_worker() -> impl Iterator<Item = &'static Setting> {
    of_store().chain(&WORKER).chain(&KEEP)
}

fn of_cleaning() -> impl Iterator<Item = &'static Setting> {
    of_store().chain(&KEEP)
}

fn flag(setting: &'static Setting) -> Arg {
    Arg::new(setting.key)
        .long(setting.key)
        .value_name(setting.value)
        .env(table::variable(setting.key))
        // Its value may be a secret.
        .hide_env_values(true)
        .value_parser(AnyText)
        .help(setting.short_help())
        .long_help(setting.long_help())
}

/// Adds the flags, and a group of them, by which an optional set of flags is recognized.
fn augment(command: Command, group: &'static str, settings: &[&'static Setting]) -> Command {
    let group = ArgGroup::new(group).multiple(true).args(settings.iter().map(|setting| setting.key));
    command.args(settings.iter().map(|setting| flag(setting))).group(group)
}

macro_rules! args {
    ($type:ident, $settings:ident) => {
        impl Args for $type {
            fn augment_args(command: Command) -> Command {
                augment(command, stringify!($type), &$settings().collect::<Vec<_>>())
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }

            fn group_id() -> Option<Id> {
                Some(Id::from(stringify!($type)))
            }
        }

        impl FromArgMatches for $type {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self(Texts::of(matches, $settings())))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                self.0.0.extend(Texts::of(matches, $settings()).0);
                Ok(())
            }
        }
    };
}

args!(StoreArgs, of_store);
args!(WorkerArgs, of_worker);
args!(CleanArgs, of_cleaning);

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    /// Works.
    #[derive(Debug, Parser)]
    struct Own {
        #[command(flatten)]
        worker: WorkerArgs,
    }

    #[derive(Debug, Parser)]
    enum Commands {
        /// Works, too.
        Work(WorkerArgs),
        /// Enqueues.
        Enqueue(StoreArgs),
    }

    #[derive(Debug, Parser)]
    struct Optional {
        #[command(flatten)]
        store: Option<StoreArgs>,
    }

    #[test]
    fn a_command_keeps_its_own_description() {
        assert_eq!(Own::command().get_about().map(ToString::to_string).as_deref(), Some("Works"));
        assert_eq!(Own::command().get_long_about(), None);
        let commands = Commands::command();
        let about =
            |name| commands.find_subcommand(name).and_then(|one| one.get_about()).map(ToString::to_string);
        assert_eq!(about("work").as_deref(), Some("Works, too"));
        assert_eq!(about("enqueue").as_deref(), Some("Enqueues"));
        assert!(commands.get_subcommands().all(|one| one.get_long_about().is_none()));
    }

    #[test]
    fn every_setting_has_a_flag_a_variable_and_a_key_of_the_same_name() {
        let command = Own::command();
        for arg in command.get_arguments().filter(|arg| arg.get_id() != "help") {
            let flag = arg.get_long().expect("every setting is a flag");
            let env = arg.get_env().and_then(|env| env.to_str()).expect("every setting has a variable");
            assert_eq!(env, format!("REPRIEVE_{}", flag.to_uppercase().replace('-', "_")));
            assert_eq!(table::keys().any(|key| key == flag), flag != "config", "{flag}");
            assert!(arg.is_hide_env_values_set(), "{flag}: its value may be a secret");
            let help = arg.get_help().expect("every setting is explained").to_string();
            assert!(help.contains("[default: "), "{flag}: {help}");
        }
        assert_eq!(command.get_arguments().count(), table::keys().count() + 1);
    }

    #[test]
    fn a_set_of_flags_may_be_optional() {
        assert!(Optional::parse_from(["optional", "--queue", "photos"]).store.is_some());
    }

    #[test]
    fn a_store_address_never_shows_in_debug_output() {
        let own = Own::parse_from(["own", "--store", "AccountKey=hunter2"]);
        assert!(!format!("{own:?}").contains("hunter2"));
    }
}
