//! Container names and the service's rules for them.

use std::fmt;

use reprieve_core::{Error, ErrorKind, Result};

/// The name of a blob container: 3 to 63 lower-case letters, digits and single hyphens, starting
/// and ending with a letter or digit.
/// <https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata>
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContainerName(String);

impl ContainerName {
    /// The default container: `reprieve`.
    pub const DEFAULT: &'static str = "reprieve";

    /// Checks `name` against the rules.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid), with the rule in the message.
    pub fn parse(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let ok = (3..=63).contains(&name.len())
            && name.bytes().all(allowed)
            && !name.starts_with('-')
            && !name.ends_with('-')
            && !name.contains("--");
        if ok {
            Ok(Self(name))
        } else {
            Err(Error::new(
                ErrorKind::Invalid,
                "read a container name",
                format!("{name:?} must be 3 to 63 of a-z, 0-9 and single hyphens, with none at its ends"),
            ))
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ContainerName {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_names_follow_the_rule_of_the_service() {
        for good in ["abc", "a-b-c", "007", &"x".repeat(63), ContainerName::DEFAULT] {
            assert!(ContainerName::parse(good).is_ok(), "{good:?}");
        }
        for bad in ["", "ab", "-abc", "abc-", "a--b", "Abc", "a_b", "$web", &"x".repeat(64)] {
            assert_eq!(ContainerName::parse(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad:?}");
        }
    }
}
