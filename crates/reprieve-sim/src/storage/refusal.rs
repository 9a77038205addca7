//! The errors of the storage services: status, code and message, as documented.
//!
//! <https://learn.microsoft.com/rest/api/storageservices/common-rest-api-error-codes>

use std::borrow::Cow;

/// A refused request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// Empty for the one answer that has neither code nor body; see [`UNWRITABLE`].
    pub(super) code: Cow<'static, str>,
    pub(super) message: Cow<'static, str>,
}

impl Refusal {
    const fn of(status: u16, code: &'static str, message: &'static str) -> Self {
        Self { status, code: Cow::Borrowed(code), message: Cow::Borrowed(message) }
    }

    /// Returns the refusal of a feature that the service has and the double lacks.
    pub(super) fn not_implemented(what: &str) -> Self {
        let message = format!("The mock storage service does not do this: {what}.");
        Self { message: Cow::Owned(message), ..NOT_IMPLEMENTED }
    }
}

pub(super) const NOT_IMPLEMENTED: Refusal = Refusal::of(501, "NotImplemented", "");
pub(super) const NO_AUTHENTICATION: Refusal = Refusal::of(
    401,
    "NoAuthenticationInformation",
    "Server failed to authenticate the request. Please refer to the information in the www-authenticate header.",
);
pub(super) const AUTHENTICATION_FAILED: Refusal = Refusal::of(
    403,
    "AuthenticationFailed",
    "Server failed to authenticate the request. Make sure the value of Authorization header is formed correctly including the signature.",
);
pub(super) const PERMISSION_MISMATCH: Refusal = Refusal::of(
    403,
    "AuthorizationPermissionMismatch",
    "This request is not authorized to perform this operation using this permission.",
);
pub(super) const SERVER_BUSY: Refusal = Refusal::of(503, "ServerBusy", "The server is busy.");
pub(super) const TOO_MANY_REQUESTS: Refusal = Refusal::of(429, "TooManyRequests", "Too many requests.");
pub(super) const TIMED_OUT: Refusal =
    Refusal::of(500, "OperationTimedOut", "Operation could not be completed within the specified time.");

pub(super) const INVALID_URI: Refusal =
    Refusal::of(400, "InvalidUri", "The requested URI does not represent any resource on the server.");
pub(super) const INVALID_RESOURCE_NAME: Refusal =
    Refusal::of(400, "InvalidResourceName", "The specified resource name contains invalid characters.");
pub(super) const NAME_LENGTH: Refusal = Refusal::of(
    400,
    "OutOfRangeInput",
    "The specified resource name length is not within the permissible limits.",
);
pub(super) const MISSING_QUERY: Refusal = Refusal::of(
    400,
    "MissingRequiredQueryParameter",
    "A query parameter that's mandatory for this request is not specified.",
);
pub(super) const INVALID_QUERY: Refusal = Refusal::of(
    400,
    "InvalidQueryParameterValue",
    "Value for one of the query parameters specified in the request URI is invalid.",
);
pub(super) const OUT_OF_RANGE_QUERY: Refusal = Refusal::of(
    400,
    "OutOfRangeQueryParameterValue",
    "One of the query parameters specified in the request URI is outside the permissible range.",
);
pub(super) const MISSING_HEADER: Refusal = Refusal::of(
    400,
    "MissingRequiredHeader",
    "An HTTP header that's mandatory for this request is not specified.",
);
pub(super) const INVALID_HEADER: Refusal = Refusal::of(
    400,
    "InvalidHeaderValue",
    "The value for one of the HTTP headers is not in the correct format.",
);
pub(super) const INVALID_METADATA: Refusal = Refusal::of(
    400,
    "InvalidMetadata",
    "The specified metadata is invalid. It includes characters that are not permitted.",
);
pub(super) const INVALID_XML: Refusal =
    Refusal::of(400, "InvalidXmlDocument", "XML specified is not syntactically valid.");
pub(super) const BODY_TOO_LARGE: Refusal = Refusal::of(
    413,
    "RequestBodyTooLarge",
    "The request body is too large and exceeds the maximum permissible limit.",
);

pub(super) const QUEUE_NOT_FOUND: Refusal =
    Refusal::of(404, "QueueNotFound", "The specified queue does not exist.");
pub(super) const QUEUE_ALREADY_EXISTS: Refusal =
    Refusal::of(409, "QueueAlreadyExists", "The specified queue already exists.");
pub(super) const MESSAGE_NOT_FOUND: Refusal =
    Refusal::of(404, "MessageNotFound", "The specified message does not exist.");
/// The answer to a batch with a message that XML can't hold: a bare 500. Measured on Azurite 3.37
/// only; the service's answer is not documented.
pub(super) const UNWRITABLE: Refusal = Refusal::of(500, "", "");

pub(super) const CONTAINER_NOT_FOUND: Refusal =
    Refusal::of(404, "ContainerNotFound", "The specified container does not exist.");
pub(super) const CONTAINER_ALREADY_EXISTS: Refusal =
    Refusal::of(409, "ContainerAlreadyExists", "The specified container already exists.");
pub(super) const BLOB_NOT_FOUND: Refusal =
    Refusal::of(404, "BlobNotFound", "The specified blob does not exist.");
pub(super) const BLOB_ALREADY_EXISTS: Refusal =
    Refusal::of(409, "BlobAlreadyExists", "The specified blob already exists.");
pub(super) const DIRECTORY_NOT_EMPTY: Refusal =
    Refusal::of(409, "DirectoryIsNotEmpty", "This operation is not permitted on a non-empty directory.");
pub(super) const RESOURCE_TYPE_MISMATCH: Refusal = Refusal::of(
    409,
    "ResourceTypeMismatch",
    "The specified resource type does not match the type of the existing resource.",
);
pub(super) const CONDITION_NOT_MET: Refusal = Refusal::of(
    412,
    "ConditionNotMet",
    "The condition specified using HTTP conditional header(s) is not met.",
);
pub(super) const NOT_MODIFIED: Refusal = Refusal::of(304, "ConditionNotMet", "");
pub(super) const MULTIPLE_CONDITIONS: Refusal =
    Refusal::of(400, "MultipleConditionHeadersNotSupported", "Multiple condition headers are not supported.");
pub(super) const INVALID_RANGE: Refusal =
    Refusal::of(416, "InvalidRange", "The range specified is invalid for the current size of the resource.");
pub(super) const INVALID_BLOCK: Refusal =
    Refusal::of(400, "InvalidBlobOrBlock", "The specified blob or block content is invalid.");
pub(super) const INVALID_BLOCK_LIST: Refusal =
    Refusal::of(400, "InvalidBlockList", "The specified block list is invalid.");
