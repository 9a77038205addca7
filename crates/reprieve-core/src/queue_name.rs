//! Queue names, under the rules of Azure, so that a queue can move there.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, ErrorKind, Result};

const LENGTH_MIN: usize = 3;
const LENGTH_MAX: usize = 63;
const POISON: &str = "-poison";

/// The name of a queue: 3 to 63 lower-case letters, digits and single hyphens, starting and ending
/// with a letter or digit.
///
/// The rule is that of Azure Storage Queues:
/// <https://learn.microsoft.com/rest/api/storageservices/naming-queues-and-metadata>. It also
/// applies to the name of the poison queue, `<queue>-poison`, so the name of any other queue has at
/// most 56 characters.
///
/// # Example: the poison queue is a queue
/// ```
/// # use reprieve_core::QueueName;
/// let queue = QueueName::parse("thumbnails")?;
/// assert_eq!(queue.poison().as_str(), "thumbnails-poison");
/// # Ok::<(), reprieve_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct QueueName(String);

impl QueueName {
    /// Validates `name`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] names the rule that is broken.
    pub fn parse(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        match fault(&name) {
            None => Ok(Self(name)),
            Some(fault) => Err(Error::new(
                ErrorKind::Invalid,
                "read a queue name",
                format!("{name:?} {fault}; use something like \"thumbnails\" or \"orders-2\""),
            )),
        }
    }

    /// The name of this queue's poison queue.
    #[must_use]
    pub fn poison(&self) -> Self {
        Self(format!("{}{POISON}", self.0))
    }

    /// Whether `name` is that of a poison queue.
    #[must_use]
    pub fn is_poison(name: &str) -> bool {
        name.ends_with(POISON)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn fault(name: &str) -> Option<&'static str> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if !name.bytes().all(allowed) {
        Some("may hold only a-z, 0-9 and hyphens")
    } else if name.len() < LENGTH_MIN {
        Some("is shorter than 3 characters")
    } else if name.len() > LENGTH_MAX {
        Some("is longer than 63 characters")
    } else if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        Some("may hold single hyphens only, and none at its ends")
    } else if name.len() + POISON.len() > LENGTH_MAX && !name.ends_with(POISON) {
        Some("is longer than 56 characters, which leaves no room for its poison queue")
    } else {
        None
    }
}

impl FromStr for QueueName {
    type Err = Error;
    fn from_str(name: &str) -> Result<Self> {
        Self::parse(name)
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_names_follow_the_rule_of_the_cloud() {
        for good in
            ["abc", "a-b-c", "orders-2", "007", &"x".repeat(56), &format!("{}-poison", "x".repeat(56))]
        {
            assert!(QueueName::parse(good).is_ok(), "{good:?}");
        }
        let too_long = "x".repeat(57);
        for bad in ["", "ab", "-abc", "abc-", "a--b", "Abc", "a_b", "a b", "é12", &too_long, &"x".repeat(64)]
        {
            let error = QueueName::parse(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad:?}");
            assert!(error.to_string().contains(bad), "{error}");
        }
    }
}
