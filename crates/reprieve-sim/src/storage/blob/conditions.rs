//! The conditions of a request: If-Match and If-None-Match.
//!
//! <https://learn.microsoft.com/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations>

use axum::http::header::{
    HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE,
};

use crate::storage::refusal::{
    BLOB_ALREADY_EXISTS, CONDITION_NOT_MET, INVALID_HEADER, MULTIPLE_CONDITIONS, NOT_MODIFIED, Refusal,
};

/// The condition under which a request is performed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Condition {
    #[default]
    Always,
    Match(Tag),
    NoneMatch(Tag),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    Any,
    Is(String),
}

impl Condition {
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        for name in [IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, HeaderName::from_static("x-ms-if-tags")] {
            if headers.contains_key(&name) {
                return Err(Refusal::not_implemented(name.as_str()));
            }
        }
        match (tag(headers, &IF_MATCH)?, tag(headers, &IF_NONE_MATCH)?) {
            (None, None) => Ok(Self::Always),
            (Some(tag), None) => Ok(Self::Match(tag)),
            (None, Some(tag)) => Ok(Self::NoneMatch(tag)),
            (Some(_), Some(_)) => Err(MULTIPLE_CONDITIONS),
        }
    }

    /// Checks a write of the whole blob. If the blob must not exist but does, the answer is 409.
    pub(crate) fn check_put(&self, current: Option<&str>) -> Result<(), Refusal> {
        if *self == Self::NoneMatch(Tag::Any) && current.is_some() {
            return Err(BLOB_ALREADY_EXISTS);
        }
        self.check_write(current)
    }

    /// Checks any other write. A missing blob matches nothing, not even `*`.
    pub(crate) fn check_write(&self, current: Option<&str>) -> Result<(), Refusal> {
        let met = match self {
            Self::Always => true,
            Self::Match(tag) => current.is_some_and(|current| tag.matches(current)),
            Self::NoneMatch(tag) => !current.is_some_and(|current| tag.matches(current)),
        };
        if met { Ok(()) } else { Err(CONDITION_NOT_MET) }
    }

    /// Checks a read of an existing blob.
    pub(crate) fn check_read(&self, current: &str) -> Result<(), Refusal> {
        match self {
            Self::Always => Ok(()),
            Self::Match(tag) if tag.matches(current) => Ok(()),
            Self::Match(_) => Err(CONDITION_NOT_MET),
            Self::NoneMatch(tag) if tag.matches(current) => Err(NOT_MODIFIED),
            Self::NoneMatch(_) => Ok(()),
        }
    }
}

impl Tag {
    fn matches(&self, current: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Is(tag) => tag == current,
        }
    }
}

/// Returns the single tag in this header: the service accepts no list.
fn tag(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tag>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let value = value.to_str().map_err(|_| INVALID_HEADER)?.trim();
    if values.next().is_some() || value.contains(',') {
        return Err(MULTIPLE_CONDITIONS);
    }
    Ok(Some(match value {
        "*" => Tag::Any,
        value if value.starts_with('"') => Tag::Is(value.to_owned()),
        bare => Tag::Is(format!("\"{bare}\"")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "\"0x1\"";
    const NEW: &str = "\"0x2\"";

    fn condition(name: &HeaderName, value: &str) -> Condition {
        Condition::of(&HeaderMap::from_iter([(name.clone(), value.parse().unwrap())])).unwrap()
    }

    /// Every condition against an existing blob and a missing one: a put, another write, a read.
    #[test]
    fn conditions_are_answered_as_the_service_does() {
        type Done = Result<(), Refusal>;
        let refused = |refusal: &Refusal| Err(refusal.clone());
        let (not_met, exists) = (refused(&CONDITION_NOT_MET), refused(&BLOB_ALREADY_EXISTS));
        let table: [(&HeaderName, &str, [Done; 3], Done); 6] = [
            (&IF_MATCH, NEW, [Ok(()), Ok(()), Ok(())], not_met.clone()),
            (&IF_MATCH, "0x2", [Ok(()), Ok(()), Ok(())], not_met.clone()),
            (&IF_MATCH, OLD, [not_met.clone(), not_met.clone(), not_met.clone()], not_met.clone()),
            (&IF_MATCH, "*", [Ok(()), Ok(()), Ok(())], not_met.clone()),
            (&IF_NONE_MATCH, "*", [exists, not_met.clone(), refused(&NOT_MODIFIED)], Ok(())),
            (&IF_NONE_MATCH, NEW, [not_met.clone(), not_met.clone(), refused(&NOT_MODIFIED)], Ok(())),
        ];
        for (name, value, there, missing) in table {
            let condition = condition(name, value);
            let answers =
                [condition.check_put(Some(NEW)), condition.check_write(Some(NEW)), condition.check_read(NEW)];
            assert_eq!(answers, there, "{name}: {value}");
            assert_eq!(condition.check_put(None), missing, "{name}: {value}, missing");
            assert_eq!(condition.check_write(None), missing, "{name}: {value}, missing");
        }
    }

    #[test]
    fn more_than_one_condition_is_refused() {
        let both =
            HeaderMap::from_iter([(IF_MATCH, NEW.parse().unwrap()), (IF_NONE_MATCH, "*".parse().unwrap())]);
        let two = HeaderMap::from_iter([(IF_MATCH, format!("{OLD}, {NEW}").parse().unwrap())]);
        for headers in [both, two] {
            assert_eq!(Condition::of(&headers), Err(MULTIPLE_CONDITIONS), "{headers:?}");
        }
        assert_eq!(Condition::of(&HeaderMap::new()), Ok(Condition::Always));
        let unknown = HeaderMap::from_iter([(IF_MODIFIED_SINCE, "now".parse().unwrap())]);
        assert_eq!(Condition::of(&unknown).unwrap_err().status, 501);
    }
}
