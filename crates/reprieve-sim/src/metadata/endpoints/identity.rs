//! `/metadata/identity/oauth2/token`: tokens of the VM's managed identity, without a signature.
//!
//! <https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token>

use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use uuid::Uuid;

use super::VmRequest;
use crate::metadata::app::App;
use crate::metadata::moment::Moment;

/// The documented version, and the one that Azure's SDK for Rust requests.
const VERSIONS: [&str; 2] = ["2018-02-01", "2019-08-01"];

/// The parameters that can name a user-assigned identity.
const NAMES: [&str; 3] = ["client_id", "object_id", "msi_res_id"];

/// The tenant of all identities of the mock.
const TENANT: &str = "00000000-0000-0000-0000-000000000000";

pub(super) fn answer(app: &App, request: &VmRequest<'_>) -> Response {
    if request.method != Method::GET {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let asked = |name: &str| request.query.get(name).map(String::as_str).filter(|value| !value.is_empty());
    if !asked("api-version").is_some_and(|asked| VERSIONS.contains(&asked)) {
        return refused(
            "bad_request",
            &format!("api-version is missing or none of {}", VERSIONS.join(" and ")),
        );
    }
    let Some(resource) = asked("resource") else {
        return refused("invalid_request", "Required query variable 'resource' is missing");
    };
    let named: Vec<_> = NAMES.into_iter().filter_map(|name| Some((name, asked(name)?))).collect();
    if named.len() > 1 {
        return refused("invalid_request", "only one of client_id, object_id and msi_res_id may be given");
    }
    let now = Moment::now().unix_ms() / 1000;
    let lasts = i64::try_from(app.token_lifetime.as_secs()).unwrap_or(i64::MAX);
    let expires = now.saturating_add(lasts);
    // As documented, all numbers are strings, and the clocks of the two sides may differ by five
    // minutes.
    let not_before = now - 300;
    let claims = claims(request.vm.id, named.first().copied(), resource, not_before, expires);
    Json(json!({
        "access_token": token(&claims),
        "refresh_token": "",
        "expires_in": lasts.to_string(),
        "expires_on": expires.to_string(),
        "not_before": not_before.to_string(),
        "resource": resource,
        "token_type": "Bearer",
    }))
    .into_response()
}

/// Refuses a request that breaks the rules of all endpoints. The error code is documented for the
/// missing header.
pub(super) fn broken_rule(broken: &str) -> Response {
    refused("bad_request_102", broken.strip_prefix("Bad Request, ").unwrap_or(broken))
}

fn refused(error: &str, description: &str) -> Response {
    let body = json!({ "error": error, "error_description": description });
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

/// Returns the claims of the VM's own identity, unless another is named. Every named identity is
/// assigned to every VM.
fn claims(vm: Uuid, named: Option<(&str, &str)>, resource: &str, not_before: i64, expires: i64) -> Value {
    let own = vm.to_string();
    let given = |name| named.filter(|(by, _)| *by == name).map_or(own.as_str(), |(_, value)| value);
    let object = given("object_id");
    let mut claims = json!({
        "aud": resource,
        "iss": format!("https://sts.windows.net/{TENANT}/"),
        "iat": not_before,
        "nbf": not_before,
        "exp": expires,
        "appid": given("client_id"),
        "oid": object,
        "sub": object,
        "tid": TENANT,
        "ver": "1.0",
    });
    if let Some(("msi_res_id", resource_id)) = named {
        claims["xms_mirid"] = resource_id.into();
    }
    claims
}

/// Returns a JSON Web Token with algorithm `none`, without a signature.
fn token(claims: &Value) -> String {
    let part = |part: &Value| BASE64_URL_SAFE_NO_PAD.encode(part.to_string());
    format!("{}.{}.", part(&json!({ "typ": "JWT", "alg": "none" })), part(claims))
}
