//! The cache of prices: a file for each size, region, currency and service.

use std::fs;
use std::io::ErrorKind as IoErrorKind;
use std::path::{Path, PathBuf};

use reprieve_azure::prices::{Meter, Query};
use serde::{Deserialize, Serialize};

/// The format of the files. A file of another one is read by nobody and written over.
const FORMAT: u32 = 1;

/// A directory of prices of one service; without a directory it keeps nothing.
#[derive(Debug)]
pub(super) struct Cache {
    directory: Option<PathBuf>,
}

/// What the service answered, and when.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    format: u32,
    /// When the service was asked, in milliseconds since the Unix epoch.
    pub(super) asked_unix_ms: i64,
    pub(super) meters: Vec<Meter>,
    /// How many rows of the answer could not be read.
    #[serde(default)]
    pub(super) skipped: usize,
}

impl Entry {
    pub(super) const fn new(asked_unix_ms: i64, meters: Vec<Meter>, skipped: usize) -> Self {
        Self { format: FORMAT, asked_unix_ms, meters, skipped }
    }
}

/// The directory for the cache below the user's: of `XDG_CACHE_HOME` if that is set, else the usual one of
/// the system. `None` for a user without a home.
pub(super) fn default_directory(xdg_cache_home: Option<PathBuf>) -> Option<PathBuf> {
    // A relative path is invalid there, by the specification.
    let xdg = xdg_cache_home.filter(|directory| directory.is_absolute());
    let usual = if cfg!(windows) {
        "AppData/Local"
    } else if cfg!(target_os = "macos") {
        "Library/Caches"
    } else {
        ".cache"
    };
    let home = || std::env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(usual));
    xdg.or_else(home).map(|directory| directory.join("reprieve").join("prices"))
}

impl Cache {
    /// The cache in `directory` of the service at `base`. The prices of a mock are not those of Azure.
    pub(super) fn new(directory: Option<PathBuf>, base: &str) -> Self {
        let service: String = base.split_once("://").map_or(base, |(_, service)| service).to_owned();
        let service = service.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-', "_");
        Self { directory: directory.map(|directory| directory.join(service)) }
    }

    /// The directory, for messages.
    pub(super) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Returns what is kept for the query: `Ok(None)` for nothing, and an error for a file that can't be used.
    pub(super) fn read(&self, query: &Query) -> Result<Option<Entry>, String> {
        let Some(file) = self.file(query) else { return Ok(None) };
        let text = match fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{} can't be read: {error}", file.display())),
        };
        match serde_json::from_slice::<Entry>(&text) {
            Ok(entry) if entry.format != FORMAT => Err(format!("{} is of another version", file.display())),
            Ok(entry) if entry.meters.iter().any(|meter| !is_of(meter, query)) => {
                Err(format!("{} has prices of another size, region or currency", file.display()))
            }
            Ok(entry) => Ok(Some(entry)),
            Err(error) => Err(format!("{} is damaged: {error}", file.display())),
        }
    }

    /// Keeps the meters of the query's size, region and currency; nothing if there is none. Written beside the file and then
    /// renamed, so that another command reads the old prices or the new ones.
    pub(super) fn write(&self, query: &Query, entry: &Entry) -> Result<(), String> {
        let meters: Vec<_> = entry.meters.iter().filter(|meter| is_of(meter, query)).cloned().collect();
        let Some(file) = self.file(query).filter(|_| !meters.is_empty()) else { return Ok(()) };
        let directory = file.parent().unwrap_or(Path::new("."));
        let written = || {
            fs::create_dir_all(directory)?;
            let new = directory.join(format!(".{}-{}", query.size(), std::process::id()));
            fs::write(&new, serde_json::to_vec(&Entry::new(entry.asked_unix_ms, meters, entry.skipped))?)?;
            fs::rename(&new, &file).inspect_err(|_| drop(fs::remove_file(&new)))
        };
        written().map_err(|error: std::io::Error| format!("{} can't be written: {error}", file.display()))
    }

    /// The file of a query. Its names are letters, digits, `_` and `-`.
    fn file(&self, query: &Query) -> Option<PathBuf> {
        let name = format!("{}.json", query.size().to_ascii_lowercase());
        Some(self.directory.as_ref()?.join(query.currency()).join(query.region()).join(name))
    }
}

/// Whether the meter is one that the query asks for.
fn is_of(meter: &Meter, query: &Query) -> bool {
    meter.arm_sku_name.eq_ignore_ascii_case(query.size())
        && meter.arm_region_name.eq_ignore_ascii_case(query.region())
        && meter.currency_code == query.currency()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(size: &str) -> Query {
        Query::new(size, "westeurope", "EUR").expect("a query")
    }

    fn meter(size: &str) -> Meter {
        let text = format!(
            r#"{{"currencyCode":"EUR","retailPrice":0.1,"armRegionName":"westeurope","armSkuName":"{size}",
                "meterName":"m","productName":"p","serviceName":"s","unitOfMeasure":"1 Hour","type":"Consumption",
                "effectiveStartDate":"2021-11-01T00:00:00Z"}}"#
        );
        serde_json::from_str(&text).expect("a meter")
    }

    #[test]
    fn an_entry_is_kept_for_its_service_and_size_in_any_spelling() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = |base| Cache::new(Some(dir.path().to_owned()), base);
        let azure = cache("https://prices.azure.com");
        let entry = || Entry::new(7, vec![meter("Standard_A1"), meter("Standard_B1")], 2);
        azure.write(&query("Standard_A1"), &entry()).expect("written");
        let kept = Entry::new(7, vec![meter("Standard_A1")], 2);
        assert_eq!(azure.read(&query("standard_a1")), Ok(Some(kept)));
        assert_eq!(azure.read(&query("Standard_B1")), Ok(None));
        assert_eq!(cache("http://127.0.0.1:81/x").read(&query("Standard_A1")), Ok(None));
        let file = dir.path().join("prices.azure.com/EUR/westeurope/standard_a1.json");
        assert!(file.is_file());
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn an_answer_without_the_size_is_not_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Cache::new(Some(dir.path().to_owned()), "x");
        cache
            .write(&query("Standard_X1"), &Entry::new(7, vec![meter("Standard_A1")], 0))
            .expect("nothing to write");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_is_damaged_or_of_another_version_is_said_and_written_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Cache::new(Some(dir.path().to_owned()), "x");
        let query = query("Standard_A1");
        let file = cache.file(&query).unwrap();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        for (text, why) in [
            ("", "is damaged"),
            ("{\"format\":1,\"asked_unix", "is damaged"),
            (r#"{"format":2,"asked_unix_ms":1,"meters":[]}"#, "is of another version"),
        ] {
            fs::write(&file, text).unwrap();
            let fault = cache.read(&query).expect_err(why);
            assert!(fault.contains(why) && fault.contains("standard_a1.json"), "{fault}");
        }
        let entry = || Entry::new(8, vec![meter("Standard_A1")], 0);
        cache.write(&query, &entry()).expect("written");
        assert_eq!(cache.read(&query), Ok(Some(entry())));
    }

    #[test]
    fn a_file_of_another_size_region_or_currency_is_said() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = Cache::new(Some(dir.path().to_owned()), "x");
        let query = query("Standard_A1");
        let file = cache.file(&query).unwrap();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let of = |change: fn(&mut Meter)| {
            let mut other = meter("Standard_A1");
            change(&mut other);
            let entry = Entry::new(7, vec![meter("Standard_A1"), other], 0);
            fs::write(&file, serde_json::to_vec(&entry).unwrap()).unwrap();
            cache.read(&query)
        };
        for change in [
            (|it| it.arm_sku_name = "Standard_B1".to_owned()) as fn(&mut Meter),
            |it| it.arm_region_name = "northeurope".to_owned(),
            |it| it.currency_code = "USD".to_owned(),
        ] {
            let fault = of(change).expect_err("another one");
            assert!(fault.ends_with("has prices of another size, region or currency"), "{fault}");
        }
        assert!(of(|it| it.arm_sku_name = "standard_A1".to_owned()).is_ok(), "in another spelling");
    }

    #[test]
    fn without_a_directory_nothing_is_kept_and_one_that_cannot_be_written_is_said() {
        let entry = || Entry::new(8, vec![meter("Standard_A1")], 0);
        let none = Cache::new(None, "x");
        assert_eq!(none.write(&query("Standard_A1"), &entry()), Ok(()));
        assert_eq!(none.read(&query("Standard_A1")), Ok(None));
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let fault = Cache::new(Some(file), "x").write(&query("Standard_A1"), &entry()).expect_err("a file");
        assert!(fault.contains("can't be written"), "{fault}");
    }

    #[test]
    fn the_directory_is_the_users_by_the_specification() {
        let set = default_directory(Some(PathBuf::from("/var/cache/me")));
        assert_eq!(set, Some(PathBuf::from("/var/cache/me/reprieve/prices")));
        assert_eq!(default_directory(Some(PathBuf::from("relative"))), default_directory(None));
    }
}
