//! The limits of kinds of job, and what they depend on, in the tables `[kinds.NAME]` of `reprieve.toml`. They
//! override those in the code.

use std::collections::BTreeMap;
use std::str::FromStr;

use reprieve_core::worker::{Depends, Limits, WorkerBuilder};

use super::table::nearest;
use crate::duration::parse_duration;
use crate::size::parse_size;

/// The value that removes a limit that the code sets.
const NONE: &str = "none";

/// What such a table sets.
#[derive(Default)]
struct Of {
    limits: Limits,
    depends: Depends,
}

impl Of {
    fn set(&mut self, values: &[(&'static str, String)]) {
        for (name, text) in values {
            for key in KEYS.iter().filter(|key| key.name == *name) {
                // It was parsed before.
                let _parsed = (key.parse)(text, self);
            }
        }
    }
}

/// One key of such a table.
struct Key {
    name: &'static str,
    parse: fn(&str, &mut Of) -> Result<(), String>,
}

static KEYS: [Key; 12] = [
    Key { name: "per-worker", parse: |text, to| optional(text, count).map(|it| to.limits.per_worker = it) },
    Key { name: "in-fleet", parse: |text, to| optional(text, count).map(|it| to.limits.in_fleet = it) },
    Key { name: "memory", parse: |text, to| optional(text, parse_size).map(|it| to.limits.memory = it) },
    Key {
        name: "step-timeout",
        parse: |text, to| optional(text, duration).map(|it| to.limits.step_timeout = it),
    },
    Key {
        name: "job-timeout",
        parse: |text, to| optional(text, duration).map(|it| to.limits.job_timeout = it),
    },
    Key {
        name: "stall-after",
        parse: |text, to| optional(text, duration).map(|it| to.limits.stall_after = it),
    },
    Key { name: "attempts", parse: |text, to| count(text).map(|it| to.limits.attempts = it) },
    Key { name: "backoff", parse: |text, to| duration(text).map(|it| to.limits.backoff = it) },
    Key { name: "backoff-max", parse: |text, to| duration(text).map(|it| to.limits.backoff_max = it) },
    Key { name: NEEDS, parse: |text, to| names(text).map(|it| to.depends.needs = it) },
    Key { name: USES, parse: |text, to| names(text).map(|it| to.depends.uses = it) },
    Key { name: "without", parse: |text, to| count(text).map(|it| to.depends.without = Some(it)) },
];

/// The keys whose values are lists of names.
const NEEDS: &str = "needs";
const USES: &str = "uses";

/// Reads names that are separated by commas.
fn names(text: &str) -> Result<Vec<String>, String> {
    let names: Vec<_> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) && !text.is_empty() {
        return Err("a name in the list is empty".to_owned());
    }
    Ok(if text.is_empty() { Vec::new() } else { names })
}

fn optional<T>(text: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
    if text == NONE { Ok(None) } else { parse(text).map(Some).map_err(|why| format!("{why}, or {NONE}")) }
}

fn count<T: FromStr + Default + PartialEq>(text: &str) -> Result<T, String> {
    let count = text.parse().ok().filter(|count| *count != T::default());
    count.ok_or_else(|| format!("{text:?} is not a number of at least 1"))
}

fn duration(text: &str) -> Result<std::time::Duration, String> {
    parse_duration(text).map_err(|error| error.message().to_owned())
}

/// What the file says of each kind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kinds(BTreeMap<String, Vec<(&'static str, String)>>);

impl Kinds {
    /// Reads the table `kinds` of the file. Returns what could be read, and one sentence for each fault.
    pub(super) fn read(value: toml::Value) -> (Self, Vec<String>) {
        let (mut kinds, mut faults) = (Self::default(), Vec::new());
        let toml::Value::Table(tables) = value else {
            return (kinds, vec!["kinds must be tables such as [kinds.resize]".to_owned()]);
        };
        for (kind, value) in tables {
            let toml::Value::Table(table) = value else {
                faults
                    .push(format!("kinds.{kind} must be a table; write [kinds.{kind}] and its limits below"));
                continue;
            };
            for (name, value) in table {
                match read(&name, &value) {
                    Ok(read) => kinds.0.entry(kind.clone()).or_default().push(read),
                    Err(fault) => faults.push(format!("kinds.{kind}: {fault}")),
                }
            }
            let mut of = Of::default();
            of.set(kinds.0.get(&kind).map_or(&[][..], Vec::as_slice));
            if let Some(name) = of.depends.needs.iter().find(|name| of.depends.uses.contains(name)) {
                faults.push(format!("kinds.{kind}: it both needs and uses {name:?}; name it once"));
            }
        }
        (kinds, faults)
    }

    /// Returns the memory that one job of each kind takes, where the file says so.
    pub(crate) fn memory(&self) -> Vec<(String, u64)> {
        let of = |values: &[(&'static str, String)]| {
            let (_, text) = values.iter().find(|(name, _)| *name == "memory")?;
            parse_size(text).ok()
        };
        self.0.iter().filter_map(|(kind, values)| Some((kind.clone(), of(values)?))).collect()
    }

    /// Sets the limits of the worker's kinds.
    pub(crate) fn apply(&self, worker: WorkerBuilder) -> WorkerBuilder {
        self.0.iter().fold(worker, |worker, (kind, values)| {
            let mut of = Of::default();
            let worker = worker.change_limits(kind, |limits| of.limits = *limits);
            let worker = worker.change_depends(kind, |depends| of.depends = depends.clone());
            of.set(values);
            let has = |key| values.iter().any(|(name, _)| *name == key);
            let Of { limits, mut depends } = of;
            // What the file names in one list, the code may have in the other one.
            if has(NEEDS) && !has(USES) {
                depends.uses.retain(|name| !depends.needs.contains(name));
            } else if has(USES) && !has(NEEDS) {
                depends.needs.retain(|name| !depends.uses.contains(name));
            }
            let worker = worker.change_limits(kind, |it| *it = limits);
            worker.change_depends(kind, |it| *it = depends)
        })
    }
}

fn read(name: &str, value: &toml::Value) -> Result<(&'static str, String), String> {
    let Some(key) = KEYS.iter().find(|key| key.name == name) else {
        let names = || KEYS.iter().map(|key| key.name);
        let all = names().collect::<Vec<_>>().join(", ");
        return Err(format!(
            "there is no key {name:?}; did you mean {:?}? There are {all}",
            nearest(name, names())
        ));
    };
    let text = match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Array(list) if [NEEDS, USES].contains(&name) => {
            let names: Option<Vec<_>> = list.iter().map(toml::Value::as_str).collect();
            let names = names.filter(|names| names.iter().all(|name| !name.contains(',')));
            names.ok_or_else(|| format!("{name} must be names in quotes"))?.join(",")
        }
        other => {
            return Err(format!(
                "{name} must be a number, or text in quotes, and is of type {}",
                other.type_str()
            ));
        }
    };
    (key.parse)(&text, &mut Of::default()).map_err(|fault| format!("{name}: {fault}"))?;
    Ok((key.name, text))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reprieve_core::worker::Worker;
    use reprieve_core::{Job, JobContext, JobError, Step};

    use super::*;

    struct Resize;

    #[async_trait::async_trait]
    impl Job for Resize {
        const KIND: &'static str = "resize";
        type Args = ();
        type Checkpoint = ();
        type Output = ();

        fn begin(&self, (): &()) {}

        async fn step(&self, _: &JobContext, (): &(), (): ()) -> Result<Step<(), ()>, JobError> {
            Ok(Step::Done(()))
        }
    }

    fn kinds(text: &str) -> (Kinds, Vec<String>) {
        let mut table: toml::Table = text.parse().unwrap();
        Kinds::read(table.remove("kinds").unwrap())
    }

    #[test]
    fn the_file_overrides_the_code_value_by_value() {
        let (kinds, faults) = kinds(
            "[kinds.resize]\nper-worker = 2\nin-fleet = 'none'\nmemory = '2GiB'\nstep-timeout = '10m'\nstall-after = '5m'\nattempts = '7'\nbackoff = '5s'",
        );
        assert_eq!(faults, Vec::<String>::new());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _inside = runtime.enter();
        let code =
            Limits { in_fleet: Some(3), job_timeout: Some(Duration::from_secs(9)), ..Limits::default() };
        assert_eq!(kinds.memory(), [("resize".to_owned(), 2 << 30)]);
        let worker = Worker::builder(reprieve_core::memory::store()).job(Resize).limits::<Resize>(code);
        let mut found = None;
        drop(kinds.apply(worker).change_limits("resize", |limits| found = Some(*limits)));
        let expected = Limits {
            per_worker: Some(2),
            in_fleet: None,
            memory: Some(2 << 30),
            step_timeout: Some(Duration::from_secs(600)),
            stall_after: Some(Duration::from_secs(300)),
            attempts: 7,
            backoff: Duration::from_secs(5),
            ..code
        };
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn what_a_kind_depends_on_is_a_list_of_names() {
        let (kinds, faults) =
            kinds("[kinds.resize]\nneeds = ['cache', 'prices']\nuses = 'search'\nwithout = 2");
        assert_eq!(faults, Vec::<String>::new());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _inside = runtime.enter();
        let worker = Worker::builder(reprieve_core::memory::store()).job(Resize);
        let mut found = None;
        drop(kinds.apply(worker).change_depends("resize", |depends| found = Some(depends.clone())));
        let expected =
            Depends { uses: vec!["search".into()], without: Some(2), ..Depends::needs(["cache", "prices"]) };
        assert_eq!(found, Some(expected));
        let (kinds, _) = super::tests::kinds("[kinds.resize]\nneeds = 'cache'");
        let worker = Worker::builder(reprieve_core::memory::store()).job(Resize);
        let worker = worker.depends::<Resize>(Depends::uses(["cache", "search"]));
        drop(kinds.apply(worker).change_depends("resize", |depends| found = Some(depends.clone())));
        let expected = Depends { uses: vec!["search".into()], ..Depends::needs(["cache"]) };
        assert_eq!(found, Some(expected), "what the code uses, the file says that it needs");
        for bad in [
            "needs = 3.5",
            "needs = ['a', 2]",
            "uses = ['a,b']",
            "uses = 'a,,b'",
            "without = 'x'",
            "without = 0",
            "needs = 'a,b'\nuses = 'b'",
        ] {
            let (_, faults) = super::tests::kinds(&format!("[kinds.resize]\n{bad}"));
            assert_eq!(faults.len(), 1, "{bad}: {faults:?}");
        }
    }

    #[test]
    fn every_fault_is_named_with_its_kind() {
        let (_, faults) = kinds(
            "[kinds]\nother = 3\n[kinds.resize]\nper-workers = 2\nin-fleet = true\nstep-timeout = '10'\nattempts = 'x'\nmemory = 7",
        );
        let expected = [
            "kinds.other must be a table; write [kinds.other] and its limits below",
            "kinds.resize: attempts: \"x\" is not a number of at least 1",
            "kinds.resize: in-fleet must be a number, or text in quotes, and is of type boolean",
            "kinds.resize: there is no key \"per-workers\"; did you mean \"per-worker\"?",
            "kinds.resize: memory: \"7\" is not a whole number and a unit",
            "kinds.resize: step-timeout: \"10\" is not a number and a unit",
        ];
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        for start in expected {
            assert!(faults.iter().any(|fault| fault.starts_with(start)), "{start}: {faults:?}");
        }
    }
}
