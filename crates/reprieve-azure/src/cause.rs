//! The cause of an HTTP client's error.

/// The innermost cause, which describes the failure; the outer ones only add the location, with the
/// whole URL.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
