//! `reprieve.toml`: finds it, reads it, and splits it into settings, which are checked with all
//! others.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::dependencies::Dependencies;
use super::given::{By, Given};
use super::kinds::Kinds;
use super::table::{self, Setting};

/// The file that is read when `--config` names none.
const NAME: &str = "reprieve.toml";

/// The key of the limits of kinds of job.
const KINDS: &str = "kinds";

/// The key of what jobs depend on.
const DEPENDENCIES: &str = "dependencies";

/// The contents of a settings file.
#[derive(Debug, Default)]
pub(crate) struct File {
    path: PathBuf,
    values: BTreeMap<String, Given>,
    pub(super) kinds: Kinds,
    dependencies: Option<toml::Value>,
}

impl File {
    /// Reads the file at `named`, or the one in the current directory if there is one. Returns the
    /// settings that could be read, and one sentence for each fault in the rest.
    pub(crate) fn read(named: Option<&Path>) -> (Self, Vec<String>) {
        let path = named.unwrap_or(Path::new(NAME));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => {
                return Self::nothing();
            }
            Err(error) => {
                let (file, _) = Self::nothing();
                return (file, vec![format!("the settings file {} can't be read: {error}", path.display())]);
            }
        };
        Self::parse(path, &text)
    }

    /// What jobs depend on, for a worker: others need not have what it is to be reached by. Returns one sentence
    /// for each fault.
    pub(super) fn dependencies(&self) -> (Dependencies, Vec<String>) {
        let Some(value) = &self.dependencies else { return Default::default() };
        let (dependencies, faults) = Dependencies::read(value);
        (dependencies, faults.into_iter().map(|fault| format!("{}: {fault}", self.name())).collect())
    }

    /// The value of `key`, if the file has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Given> {
        self.values.get(key)
    }

    /// The file's path, for messages.
    pub(crate) fn name(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    fn nothing() -> (Self, Vec<String>) {
        Default::default()
    }

    fn parse(path: &Path, text: &str) -> (Self, Vec<String>) {
        let mut file = Self { path: path.to_owned(), ..Self::default() };
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(error) => {
                let fault = syntax(path, text, &error);
                return (file, vec![fault]);
            }
        };
        let mut faults = Vec::new();
        for (key, value) in table {
            if key == KINDS {
                let of_kinds;
                (file.kinds, of_kinds) = Kinds::read(value);
                faults.extend(of_kinds.into_iter().map(|fault| format!("{}: {fault}", path.display())));
                continue;
            }
            if key == DEPENDENCIES {
                file.dependencies = Some(value);
                continue;
            }
            let text = match (table::find(&key), value) {
                (None, _) => Err(unknown(&key)),
                (Some(_), toml::Value::String(text)) => Ok(text),
                (Some(setting), toml::Value::Integer(number)) if setting.takes_number() => {
                    Ok(number.to_string())
                }
                (Some(setting), other) => Err(wrong_type(setting, &other)),
            };
            match text {
                Ok(text) => drop(file.values.insert(key, Given { text, by: By::File })),
                Err(fault) => faults.push(format!("{}: {fault}", path.display())),
            }
        }
        (file, faults)
    }
}

/// Describes the line where the file stops being TOML. The line itself is not repeated: it may
/// contain a connection string.
fn syntax(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    format!("{} line {line}: {}", path.display(), error.message().replace('\n', ", "))
}

fn unknown(key: &str) -> String {
    let keys: Vec<_> = table::keys().chain([KINDS]).collect();
    let nearest = table::nearest(key, keys.iter().copied());
    format!("there is no setting {key:?}; did you mean {nearest:?}? There are {}", keys.join(", "))
}

fn wrong_type(setting: &Setting, value: &toml::Value) -> String {
    let key = setting.key;
    let wanted = if setting.takes_number() { "a number or \"auto\"" } else { "text in quotes" };
    format!("{key} must be {wanted}, and is {}", article(value.type_str()))
}

fn article(noun: &str) -> String {
    let an = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{an} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_texts_and_names_every_fault_with_its_key() {
        let text = "store = 'sqlite:a.db'\nconcurrency = 4\nbudget = 5\nqueu = 'x'\nlease = ['a']\n";
        let (file, faults) = File::parse(Path::new("etc/reprieve.toml"), text);
        assert_eq!(file.get("store").map(|given| given.text.as_str()), Some("sqlite:a.db"));
        assert_eq!(file.get("concurrency").map(|given| given.text.as_str()), Some("4"));
        assert_eq!(faults.len(), 3, "{faults:?}");
        assert_eq!(faults[0], "etc/reprieve.toml: budget must be text in quotes, and is an integer");
        assert_eq!(faults[1], "etc/reprieve.toml: lease must be text in quotes, and is an array");
        assert!(faults[2].starts_with(
            "etc/reprieve.toml: there is no setting \"queu\"; did you mean \"queue\"? There are store, queue,"
        ));
    }

    #[test]
    fn a_file_that_is_not_toml_gives_the_line_and_repeats_nothing_of_it() {
        for text in
            ["queue = 'ok'\n\nstore = AccountKey=hunter2\n", "queue='ok'\n\nstore = \"AccountKey=hunter2"]
        {
            let (_, faults) = File::parse(Path::new("reprieve.toml"), text);
            let [fault] = &faults[..] else { panic!("{faults:?}") };
            assert!(fault.starts_with("reprieve.toml line 3: "), "{fault}");
            assert!(!fault.contains("hunter2") && !fault.contains('\n'), "{fault}");
        }
    }

    #[test]
    fn a_file_that_was_named_must_exist() {
        let (_, faults) = File::read(Some(Path::new("/nowhere/reprieve.toml")));
        assert!(
            faults[0].starts_with("the settings file /nowhere/reprieve.toml can't be read: "),
            "{faults:?}"
        );
        let (_, faults) = File::read(Some(Path::new("/")));
        assert_eq!(faults.len(), 1);
    }
}
