//! The valid names of queues and containers.
//!
//! <https://learn.microsoft.com/rest/api/storageservices/naming-queues-and-metadata>

use super::refusal::{INVALID_RESOURCE_NAME, NAME_LENGTH, Refusal};

/// Checks a name: 3 to 63 lower-case letters, digits and single hyphens, none of them at an end.
/// The rule is the same for queues and containers.
pub(super) fn check(name: &str) -> Result<(), Refusal> {
    if !(3..=63).contains(&name.len()) {
        return Err(NAME_LENGTH);
    }
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.chars().all(fits) || name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        return Err(INVALID_RESOURCE_NAME);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_documented() {
        for good in ["abc", "a-b-c", "0-1", &"a".repeat(63)] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["-ab", "ab-", "a--b", "Abc", "a_b", "a.b", "äbc"] {
            assert_eq!(check(bad), Err(INVALID_RESOURCE_NAME), "{bad}");
        }
        for bad in ["", "ab", &"a".repeat(64)] {
            assert_eq!(check(bad), Err(NAME_LENGTH), "{bad}");
        }
    }
}
