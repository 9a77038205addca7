//! The store's address in flags and settings files: `sqlite:PATH[?durability=process|power-loss]`.

use std::path::PathBuf;
use std::str::FromStr;

use reprieve_core::{Error, ErrorKind, Result};

/// The failures that a commit survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// A power loss: every commit waits for the disk (SQLite's `synchronous=FULL`). The default,
    /// because a message that was sent must not vanish.
    #[default]
    PowerLoss,
    /// The death of the process, from any cause. A power loss may undo the last commits, but never
    /// damages the file (`synchronous=NORMAL`). Several times faster on disks that are slow to
    /// flush.
    Process,
}

/// The path and the durability of a store.
///
/// # Example: a store that need not survive a power loss
/// ```
/// # use reprieve_local::{Address, Durability};
/// let address: Address = "sqlite:jobs/reprieve.db?durability=process".parse()?;
/// assert_eq!(address.path.to_str(), Some("jobs/reprieve.db"));
/// assert_eq!(address.durability, Durability::Process);
/// # Ok::<(), reprieve_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The path of the SQLite file.
    pub path: PathBuf,
    /// The failures that its commits survive.
    pub durability: Durability,
}

impl Address {
    /// Parses `sqlite:PATH[?durability=process|power-loss]`. The path is everything up to the first
    /// `?`, without escapes.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`], with a sentence that says what to write instead.
    pub fn parse(address: &str) -> Result<Self> {
        read(address).map_err(|message| Error::new(ErrorKind::Invalid, "read a store address", message))
    }
}

impl FromStr for Address {
    type Err = Error;
    fn from_str(address: &str) -> Result<Self> {
        Self::parse(address)
    }
}

fn read(address: &str) -> Result<Address, String> {
    let Some(rest) = address.strip_prefix("sqlite:") else {
        return Err(format!("{address:?} must begin with sqlite:, such as sqlite:reprieve.db"));
    };
    let (path, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    match path {
        "" => return Err("write the file after sqlite:, such as sqlite:reprieve.db".to_owned()),
        ":memory:" => {
            return Err(
                "a store in memory can't be shared by processes; name a file, such as sqlite:reprieve.db"
                    .to_owned(),
            );
        }
        // `sqlite://jobs.db` would otherwise mean a file in the root directory, which is never
        // intended.
        _ if path.starts_with("//") => {
            let root = if path.starts_with("///") { "/" } else { "" };
            return Err(format!(
                "write sqlite:PATH without the //, such as sqlite:{root}{}",
                path.trim_start_matches('/')
            ));
        }
        _ => {}
    }
    Ok(Address { path: PathBuf::from(path), durability: durability(parameters)? })
}

fn durability(parameters: &str) -> Result<Durability, String> {
    let mut durability = None;
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        let Some(("durability", value)) = parameter.split_once('=') else {
            // The value of an unknown parameter may be a secret.
            let name = parameter.split_once('=').map_or(parameter, |(name, _)| name);
            return Err(format!("unknown parameter {name:?}; the only one is durability"));
        };
        let value = match value {
            "power-loss" => Durability::PowerLoss,
            "process" => Durability::Process,
            _ => {
                return Err("durability must be power-loss (the default) or process".to_owned());
            }
        };
        if durability.replace(value).is_some() {
            return Err("durability is given twice; give it once".to_owned());
        }
    }
    Ok(durability.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_give_a_path_and_a_durability() {
        for (address, path, durability) in [
            ("sqlite:reprieve.db", "reprieve.db", Durability::PowerLoss),
            ("sqlite:/var/lib/a b.db", "/var/lib/a b.db", Durability::PowerLoss),
            ("sqlite:x.db?", "x.db", Durability::PowerLoss),
            ("sqlite:x.db?durability=power-loss", "x.db", Durability::PowerLoss),
            ("sqlite:C:\\jobs\\x.db?durability=process", "C:\\jobs\\x.db", Durability::Process),
        ] {
            let wanted = Address { path: PathBuf::from(path), durability };
            assert_eq!(Address::parse(address).unwrap(), wanted, "{address}");
        }
    }

    #[test]
    fn a_wrong_address_error_gives_the_right_form_in_one_sentence() {
        for (address, wanted) in [
            ("reprieve.db", "must begin with sqlite:"),
            ("sqlite:", "write the file after sqlite:"),
            ("sqlite:?durability=process", "write the file after sqlite:"),
            ("sqlite::memory:", "can't be shared"),
            ("sqlite://jobs.db", "such as sqlite:jobs.db"),
            ("sqlite:x.db?mode=ro", "unknown parameter \"mode\";"),
            ("sqlite:///tmp/x.db", "such as sqlite:/tmp/x.db"),
            ("sqlite:x.db?durability", "unknown parameter \"durability\""),
            ("sqlite:x.db?durability=high", "durability must be power-loss (the default) or process"),
            ("sqlite:x.db?durability=process&durability=process", "given twice"),
        ] {
            let error = Address::parse(address).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{address}");
            assert!(error.to_string().contains(wanted), "{address}: {error}");
        }
    }
}
