//! The api-versions of Scheduled Events, and the parts of the document that each of them added.

use std::fmt;
use std::str::FromStr;

use reprieve_core::{Error, ErrorKind};
use serde::{Serialize, Serializer};

use super::EventType;

/// An api-version of Scheduled Events; a later one is greater.
///
/// The instance document has a different set of versions. The additions of each version, after
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#version-and-region-availability>:
///
/// | version | adds |
/// |---|---|
/// | 2017-03-01 | the document; names in `Resources` begin with `_` |
/// | 2017-08-01 | names without `_`; the header `Metadata: true` is required |
/// | 2017-11-01 | events of the type `Preempt` |
/// | 2019-01-01 | events of the type `Terminate` |
/// | 2019-04-01 | the field `Description` |
/// | 2019-08-01 | the field `EventSource` |
/// | 2020-07-01 | the field `DurationInSeconds` |
/// | 2024-07-09 | advice of the type `SpotRebalanceRecommendation`, in preview |
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the table above describes each")]
pub enum ApiVersion {
    V2017_03_01,
    V2017_08_01,
    V2017_11_01,
    V2019_01_01,
    V2019_04_01,
    V2019_08_01,
    V2020_07_01,
    V2024_07_09,
}

impl ApiVersion {
    /// Every version, the newest first.
    pub const ALL: [Self; 8] = [
        Self::V2024_07_09,
        Self::V2020_07_01,
        Self::V2019_08_01,
        Self::V2019_04_01,
        Self::V2019_01_01,
        Self::V2017_11_01,
        Self::V2017_08_01,
        Self::V2017_03_01,
    ];

    /// The newest version, which is a preview.
    pub const NEWEST: Self = Self::ALL[0];

    /// The newest version that is documented as generally available.
    pub const DOCUMENTED: Self = Self::V2020_07_01;

    /// The version as it appears in a request.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2017_03_01 => "2017-03-01",
            Self::V2017_08_01 => "2017-08-01",
            Self::V2017_11_01 => "2017-11-01",
            Self::V2019_01_01 => "2019-01-01",
            Self::V2019_04_01 => "2019-04-01",
            Self::V2019_08_01 => "2019-08-01",
            Self::V2020_07_01 => "2020-07-01",
            Self::V2024_07_09 => "2024-07-09",
        }
    }

    /// The version before this one; `None` for the first.
    #[must_use]
    pub fn older(self) -> Option<Self> {
        Self::ALL.into_iter().find(|version| *version < self)
    }

    /// Whether names in `Resources` have a leading `_`, which is not part of the VM's name.
    #[must_use]
    pub const fn underscores(self) -> bool {
        matches!(self, Self::V2017_03_01)
    }

    /// Whether events have a `Description`.
    #[must_use]
    pub fn has_description(self) -> bool {
        self >= Self::V2019_04_01
    }

    /// Whether events have an `EventSource`.
    #[must_use]
    pub fn has_source(self) -> bool {
        self >= Self::V2019_08_01
    }

    /// Whether events have a `DurationInSeconds`.
    #[must_use]
    pub fn has_duration(self) -> bool {
        self >= Self::V2020_07_01
    }

    /// Whether documents of this version include events of this type. An older version leaves them
    /// out, so a missing event of that type proves nothing. A type that is in no table is newer
    /// than all of them, so only the newest version is expected to include it.
    #[must_use]
    pub fn knows(self, event_type: &EventType) -> bool {
        let since = match event_type {
            EventType::Freeze | EventType::Reboot | EventType::Redeploy => Self::V2017_03_01,
            EventType::Preempt => Self::V2017_11_01,
            EventType::Terminate => Self::V2019_01_01,
            EventType::SpotRebalanceRecommendation => Self::V2024_07_09,
            EventType::Other(_) => Self::NEWEST,
        };
        self >= since
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ApiVersion {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|version| version.as_str() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            let message = format!("{text:?} is not an api-version of Scheduled Events; use one of {known}");
            Error::new(ErrorKind::Invalid, "read an api-version", message)
        })
    }
}

impl Serialize for ApiVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_listed_newest_first_and_ordered_by_their_dates() {
        assert!(ApiVersion::ALL.is_sorted_by(|newer, older| newer > older));
        assert!(ApiVersion::ALL.is_sorted_by_key(|version| std::cmp::Reverse(version.as_str())));
        assert_eq!(ApiVersion::NEWEST.as_str(), "2024-07-09");
        assert_eq!(ApiVersion::NEWEST.older(), Some(ApiVersion::V2020_07_01));
        assert_eq!(ApiVersion::V2017_03_01.older(), None);
    }

    #[test]
    fn only_the_text_of_a_version_is_parsed() {
        for version in ApiVersion::ALL {
            assert_eq!(version.to_string().parse::<ApiVersion>().expect("a version"), version);
        }
        let error = "2020-09-01".parse::<ApiVersion>().expect_err("a version of the instance document");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("2020-07-01"), "{error}");
        "latest".parse::<ApiVersion>().expect_err("the service has no such word");
    }

    #[test]
    fn each_version_adds_its_fields() {
        let brief = |version: ApiVersion| {
            let types = ["Freeze", "Preempt", "Terminate", "SpotRebalanceRecommendation", "Surprise"];
            let knows = types.map(|name| version.knows(&EventType::from(name.to_owned())));
            let fields = [version.has_description(), version.has_source(), version.has_duration()];
            (version.underscores(), fields.map(u8::from), knows.map(u8::from))
        };
        assert_eq!(
            ApiVersion::ALL.map(brief),
            [
                (false, [1, 1, 1], [1, 1, 1, 1, 1]),
                (false, [1, 1, 1], [1, 1, 1, 0, 0]),
                (false, [1, 1, 0], [1, 1, 1, 0, 0]),
                (false, [1, 0, 0], [1, 1, 1, 0, 0]),
                (false, [0, 0, 0], [1, 1, 1, 0, 0]),
                (false, [0, 0, 0], [1, 1, 0, 0, 0]),
                (false, [0, 0, 0], [1, 0, 0, 0, 0]),
                (true, [0, 0, 0], [1, 0, 0, 0, 0]),
            ]
        );
    }
}
