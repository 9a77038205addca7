//! What jobs depend on besides the store, in the tables `[dependencies.NAME]` of `reprieve.toml`.

use std::sync::Arc;

use reprieve_core::dependency::Dependency;
use reprieve_core::worker::WorkerBuilder;

use super::table::nearest;

/// The keys of such a table: the kind of dependency, and what there is to say of it.
const KEYS: [&str; 3] = ["redis", "replica", "identity"];

/// The beginning of a value that names an environment variable.
const ENV: &str = "env:";

/// The dependencies that the file names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dependencies(Vec<(String, Arc<dyn Dependency>)>);

impl Dependencies {
    /// Reads the table `dependencies` of the file. Returns what could be read, and one sentence for each fault,
    /// which repeats no value: it may have a password.
    pub(super) fn read(value: &toml::Value) -> (Self, Vec<String>) {
        let (mut dependencies, mut faults) = (Self::default(), Vec::new());
        let toml::Value::Table(tables) = value else {
            return (
                dependencies,
                vec!["dependencies must be tables such as [dependencies.cache]".to_owned()],
            );
        };
        for (name, value) in tables {
            match value.as_table().ok_or_else(|| format!("write [dependencies.{name}] and its kind below")) {
                Err(why) => faults.push(format!("dependencies.{name} must be a table; {why}")),
                Ok(table) => match read(table) {
                    Ok(dependency) => dependencies.0.push((name.clone(), dependency)),
                    Err(why) => faults.push(format!("dependencies.{name}: {why}")),
                },
            }
        }
        (dependencies, faults)
    }

    /// Returns them by their names.
    pub(crate) fn into_parts(self) -> Vec<(String, Arc<dyn Dependency>)> {
        self.0
    }

    /// Adds them to the worker.
    pub(crate) fn apply(&self, worker: WorkerBuilder) -> WorkerBuilder {
        self.0
            .iter()
            .fold(worker, |worker, (name, dependency)| worker.dependency(name, Arc::clone(dependency)))
    }
}

fn read(table: &toml::Table) -> Result<Arc<dyn Dependency>, String> {
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let nearest = nearest(key, KEYS.into_iter());
        return Err(format!("there is no key {key:?} for a dependency; did you mean {nearest:?}?"));
    }
    let url = text(table, "redis")?.ok_or("say what it is: redis = \"env:CACHE_URL\"")?;
    let has_identity = match table.get("identity") {
        None => false,
        Some(value) => value.as_bool().ok_or("identity must be true or false")?,
    };
    redis(&url, text(table, "replica")?.as_deref(), has_identity)
}

/// Returns the value of a key, from the environment if it says so.
fn text(table: &toml::Table, key: &str) -> Result<Option<String>, String> {
    let Some(value) = table.get(key) else { return Ok(None) };
    let text = value.as_str().ok_or_else(|| format!("{key} must be text in quotes"))?;
    resolve(text).map(Some)
}

/// Returns the text, or the value of the environment variable that it names.
fn resolve(text: &str) -> Result<String, String> {
    let Some(variable) = text.strip_prefix(ENV) else { return Ok(text.to_owned()) };
    // Else it may be a URL, which has a key.
    if !is_name(variable) {
        return Err("name the environment variable behind env:, as in env:CACHE_URL; it has letters, digits and _ only"
            .to_owned());
    }
    #[expect(clippy::disallowed_methods, reason = "the settings name the variable")]
    let value = std::env::var(variable).ok().filter(|value| !value.is_empty());
    value.ok_or_else(|| format!("the environment variable {variable} is not set"))
}

/// Whether it can be the name of an environment variable that a shell sets.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

#[cfg(feature = "redis")]
fn redis(url: &str, replica: Option<&str>, has_identity: bool) -> Result<Arc<dyn Dependency>, String> {
    let mut cache = reprieve_redis::Redis::open(url).map_err(|why| format!("redis: {why}"))?;
    if let Some(url) = replica {
        cache = cache.with_replica(url).map_err(|why| format!("replica: {why}"))?;
    }
    if has_identity {
        let identity = crate::CacheIdentity::of_this_machine().map_err(|error| error.to_string())?;
        cache = cache.with_identity(identity)?;
    }
    Ok(Arc::new(cache))
}

#[cfg(not(feature = "redis"))]
fn redis(_: &str, _: Option<&str>, _: bool) -> Result<Arc<dyn Dependency>, String> {
    Err("this program was built without Redis; build it with the feature \"redis\" of reprieve".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependencies(text: &str) -> (Dependencies, Vec<String>) {
        let mut table: toml::Table = text.parse().unwrap();
        Dependencies::read(&table.remove("dependencies").unwrap())
    }

    #[test]
    fn every_fault_is_named_without_the_value() {
        for (text, why) in [
            ("dependencies = 3", "must be tables"),
            ("[dependencies]\ncache = 'redis://:hunter2@host'", "dependencies.cache must be a table"),
            ("[dependencies.cache]", "dependencies.cache: say what it is"),
            ("[dependencies.cache]\nredi = 'hunter2'", "did you mean \"redis\"?"),
            ("[dependencies.cache]\nredis = 3", "must be text"),
            ("[dependencies.cache]\nredis = 'hunter2'\nidentity = 'hunter2'", "must be true or false"),
            ("[dependencies.cache]\nredis = 'env:REPRIEVE_TEST_NOT_SET'", "REPRIEVE_TEST_NOT_SET is not set"),
            ("[dependencies.cache]\nredis = 'env:redis://:hunter2@host'", "name the environment variable"),
            ("[dependencies.cache]\nredis = 'env:'", "as in env:CACHE_URL"),
            ("[dependencies.cache]\nredis = 'env:7hunter2'", "as in env:CACHE_URL"),
        ] {
            let (_, faults) = dependencies(text);
            assert_eq!(faults.len(), 1, "{text}: {faults:?}");
            assert!(faults[0].contains(why) && !faults[0].contains("hunter2"), "{text}: {faults:?}");
        }
    }

    #[cfg(feature = "redis")]
    #[test]
    fn a_cache_is_added_to_the_worker() {
        let (found, faults) = dependencies("[dependencies.cache]\nredis = 'redis://:hunter2@localhost'");
        assert_eq!((found.0.len(), faults), (1, Vec::new()));
        assert_eq!(found.0[0].0, "cache");
        let (found, _) = dependencies(
            "[dependencies.cache]\nredis = 'redis://localhost'\nreplica = 'redis://localhost:2'",
        );
        assert_eq!(found.0.len(), 1);
        for (url, faults) in [("rediss://a.redis.cache.windows.net:6380", 0), ("redis://a.example:6379", 1)] {
            let (_, found) = dependencies(&format!("[dependencies.cache]\nredis = '{url}'\nidentity = true"));
            assert_eq!(found.len(), faults, "{found:?}");
        }
        let (_, faults) = dependencies(
            "[dependencies.cache]\nredis = 'redis://localhost'\nreplica = 'http://:hunter2@localhost'",
        );
        assert!(faults[0].contains("URL") && !faults[0].contains("hunter2"), "{faults:?}");
        let (_, faults) = dependencies("[dependencies.cache]\nredis = 'http://:hunter2@localhost'");
        assert!(faults[0].contains("URL") && !faults[0].contains("hunter2"), "{faults:?}");
    }

    #[cfg(not(feature = "redis"))]
    #[test]
    fn a_program_without_redis_says_which_feature_it_needs() {
        let (_, faults) = dependencies("[dependencies.cache]\nredis = 'redis://localhost'");
        assert!(faults[0].contains("feature \"redis\""), "{faults:?}");
    }
}
