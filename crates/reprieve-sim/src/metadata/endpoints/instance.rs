//! `/metadata/instance`: the document of a VM of the mock in each version, and the paths into it.
//!
//! <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service>

use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::{VmRequest, wrong_version};
use crate::metadata::app::App;
use crate::metadata::world::Vm;

/// The api-versions of the instance document, newest first.
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#supported-api-versions>
const VERSIONS: [&str; 35] = [
    "2025-04-07",
    "2024-07-17",
    "2024-03-15",
    "2023-11-15",
    "2023-07-01",
    "2021-12-13",
    "2021-11-15",
    "2021-11-01",
    "2021-10-01",
    "2021-08-01",
    "2021-05-01",
    "2021-03-01",
    "2021-02-01",
    "2021-01-01",
    "2020-12-01",
    "2020-10-01",
    "2020-09-01",
    "2020-07-15",
    "2020-06-01",
    "2019-11-01",
    "2019-08-15",
    "2019-08-01",
    "2019-06-04",
    "2019-06-01",
    "2019-04-30",
    "2019-03-11",
    "2019-02-01",
    "2018-10-01",
    "2018-04-02",
    "2018-02-01",
    "2017-12-01",
    "2017-10-01",
    "2017-08-01",
    "2017-04-02",
    "2017-03-01",
];

/// `GET /metadata/versions`, the only endpoint without a version of its own.
pub(super) fn versions(request: &VmRequest<'_>) -> Response {
    if request.method != Method::GET {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let oldest_first: Vec<_> = VERSIONS.into_iter().rev().collect();
    Json(json!({ "apiVersions": oldest_first })).into_response()
}

/// Answers `GET /metadata/instance/…`: JSON for objects and lists, text for single values, each
/// only if requested so.
pub(super) fn answer(app: &App, request: &VmRequest<'_>, path: &[&str]) -> Response {
    if request.method != Method::GET {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let asked = request.query.get("api-version").map(String::as_str);
    let Some(version) = VERSIONS.into_iter().find(|version| asked == Some(version)) else {
        return wrong_version(VERSIONS.into_iter());
    };
    // A trailing slash changes nothing.
    let path = path.strip_suffix(&[""]).unwrap_or(path);
    let document = document(&request.vm, &app.eviction_policy, version);
    let Some(part) = walk(&document, path) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    match (part, request.query.get("format").map_or("json", String::as_str)) {
        (Value::String(text), "text") => text.clone().into_response(),
        (Value::Object(_) | Value::Array(_), "json") => Json(part).into_response(),
        (Value::String(_), _) => bad_format("a single value needs format=text"),
        _ => bad_format("this mock answers with format=json only, except for single values"),
    }
}

fn bad_format(why: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({ "error": format!("Bad request. {why}") }))).into_response()
}

/// The version that introduced each field of `compute`; fields not listed exist since the first
/// version.
const SINCE: [(&str, &str); 18] = [
    ("placementGroupId", "2017-08-01"),
    ("resourceGroupName", "2017-08-01"),
    ("subscriptionId", "2017-08-01"),
    ("tags", "2017-08-01"),
    ("vmScaleSetName", "2017-12-01"),
    ("zone", "2017-12-01"),
    ("azEnvironment", "2018-10-01"),
    ("provider", "2018-10-01"),
    ("resourceId", "2019-03-11"),
    ("tagsList", "2019-06-04"),
    ("osProfile", "2020-07-15"),
    ("evictionPolicy", "2020-12-01"),
    ("priority", "2020-12-01"),
    ("userData", "2021-01-01"),
    ("virtualMachineScaleSet", "2021-03-01"),
    ("platformSubFaultDomain", "2021-10-01"),
    ("additionalCapabilities", "2021-11-01"),
    ("physicalZone", "2023-11-15"),
];

/// Returns the document of `vm`, Spot if it has an eviction policy: a VM of a scale set, or of none if its name is not of the
/// form `SET_ID`.
///
/// As in Azure, all values are strings, and `""` means not applicable. The host name is not the
/// VM's name.
fn document(vm: &Vm, eviction_policy: &str, version: &str) -> Value {
    const GROUP: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/mock";
    const COMPUTE: &str = "providers/Microsoft.Compute";
    let (set, id) = vm.name.rsplit_once('_').unwrap_or(("", &vm.name));
    // The VMs of a flexible set have names of their own, those of a uniform set have numbers.
    let uniform = !set.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    let flexible = !set.is_empty() && !uniform;
    let resource_id = if uniform {
        format!("{GROUP}/{COMPUTE}/virtualMachineScaleSets/{set}/virtualMachines/{id}")
    } else {
        format!("{GROUP}/{COMPUTE}/virtualMachines/{}", vm.name)
    };
    let set_id =
        if flexible { format!("{GROUP}/{COMPUTE}/virtualMachineScaleSets/{set}") } else { String::new() };
    let all = json!({
        "additionalCapabilities": { "hibernationEnabled": "false" },
        "azEnvironment": "AzurePublicCloud",
        "evictionPolicy": eviction_policy,
        "location": "mock",
        "name": vm.name,
        "offer": "",
        "osProfile": { "adminUsername": "", "computerName": format!("host-of-{}", vm.name), "disablePasswordAuthentication": "true" },
        "osType": "Linux",
        "physicalZone": "",
        "placementGroupId": "",
        "platformFaultDomain": "0",
        "platformSubFaultDomain": "",
        "platformUpdateDomain": "0",
        "priority": if eviction_policy.is_empty() { "Regular" } else { "Spot" },
        "provider": "Microsoft.Compute",
        "publisher": "",
        "resourceGroupName": "mock",
        "resourceId": resource_id,
        "sku": "",
        "subscriptionId": "00000000-0000-0000-0000-000000000000",
        "tags": "mock:true",
        "tagsList": [{ "name": "mock", "value": "true" }],
        "userData": "",
        "version": "",
        "virtualMachineScaleSet": { "id": set_id },
        "vmId": vm.id.to_string(),
        "vmScaleSetName": set,
        "vmSize": "Standard_D2s_v5",
        "zone": "",
    });
    let is_known = |field: &str| {
        let since = SINCE.iter().find(|(name, _)| *name == field).map(|(_, since)| *since);
        // Versions are dates, so their string order is their date order.
        since.is_none_or(|since| since <= version)
    };
    let compute: Map<String, Value> = match all {
        Value::Object(fields) => fields.into_iter().filter(|(field, _)| is_known(field)).collect(),
        _ => Map::new(),
    };
    json!({
        "compute": compute,
        "network": {
            "interface": [{
                "ipv4": {
                    "ipAddress": [{ "privateIpAddress": "127.0.0.1", "publicIpAddress": "" }],
                    "subnet": [{ "address": "127.0.0.0", "prefix": "8" }],
                },
                "ipv6": { "ipAddress": [] },
                "macAddress": "000000000000",
            }],
        },
    })
}

/// Returns the part of `document` at `path`: keys, and indices of lists.
fn walk<'a>(document: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(document, |part, key| match part {
        Value::Object(fields) => fields.get(*key),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => None,
    })
}
