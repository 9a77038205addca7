//! Placement scores.

use serde::{Deserialize, Deserializer, Serialize};

/// How likely Spot VMs of a size are to be had now. It is of the moment of the answer, and no promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Score {
    /// Likely.
    High,
    /// Less likely.
    Medium,
    /// Unlikely.
    Low,
    /// The subscription may not have the size.
    RestrictedSku,
    /// The service has no data, or only old ones.
    DataNotFound,
    /// A text that no page documents.
    Other(String),
}

/// The score of one size in one region.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// The size.
    pub sku: String,
    /// The region.
    pub region: String,
    /// The score.
    #[serde(deserialize_with = "read_score")]
    pub score: Score,
    /// Whether the quota allows the VMs; `None` where the answer does not say.
    #[serde(default)]
    pub is_quota_available: Option<bool>,
}

impl Score {
    /// Reads a score. The documentation prints the words with spaces, and does not show them as they are sent; so
    /// spaces, case and what follows the known words don't matter.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let letters: String = text.chars().filter(char::is_ascii_alphanumeric).collect();
        match letters.to_ascii_lowercase().as_str() {
            "high" => Self::High,
            "medium" => Self::Medium,
            "low" => Self::Low,
            other if other.starts_with("restrictedsku") => Self::RestrictedSku,
            other if other.starts_with("datanotfound") => Self::DataNotFound,
            _ => Self::Other(text.to_owned()),
        }
    }

    /// The score for people.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
            Self::RestrictedSku => "restricted",
            Self::DataNotFound => "unknown",
            Self::Other(text) => text,
        }
    }
}

fn read_score<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Score, D::Error> {
    String::deserialize(deserializer).map(|text| Score::parse(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_read_however_it_is_written() {
        for (text, expected) in [
            ("High", Score::High),
            ("MEDIUM", Score::Medium),
            ("low", Score::Low),
            ("Restricted SKU", Score::RestrictedSku),
            ("RestrictedSkuNotAvailable", Score::RestrictedSku),
            ("Data Not Found", Score::DataNotFound),
            ("DataNotFoundOrStale", Score::DataNotFound),
            ("Splendid", Score::Other("Splendid".to_owned())),
            ("", Score::Other(String::new())),
        ] {
            assert_eq!(Score::parse(text), expected, "{text}");
        }
    }
}
