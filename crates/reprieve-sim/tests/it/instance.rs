//! The instance document: the fields of each version, and requests for its parts.

use reprieve_sim::metadata::{Config, MetadataServer};
use serde_json::{Value, json};

const FLEXIBLE: &str = "workers_0a1b2c3d";

async fn server() -> MetadataServer {
    MetadataServer::start(Config::with_vms(["workers_0", FLEXIBLE, "alone"])).await.expect("a mock")
}

async fn get(server: &MetadataServer, vm: &str, path: &str, version: &str, format: &str) -> (u16, String) {
    let url = format!("{}/metadata/instance/{path}?api-version={version}&format={format}", server.vm_url(vm));
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let answer = http.get(url).header("Metadata", "true").send().await.expect("an answer");
    (answer.status().as_u16(), answer.text().await.expect("a body"))
}

async fn compute(server: &MetadataServer, vm: &str, version: &str) -> Value {
    let (status, body) = get(server, vm, "compute", version, "json").await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

#[tokio::test]
async fn each_version_has_the_fields_it_has_in_azure() {
    let server = server().await;
    for (field, before, since) in [
        ("tags", "2017-04-02", "2017-08-01"),
        ("vmScaleSetName", "2017-10-01", "2017-12-01"),
        ("provider", "2018-04-02", "2018-10-01"),
        ("azEnvironment", "2018-04-02", "2018-10-01"),
        ("resourceId", "2019-02-01", "2019-03-11"),
        ("tagsList", "2019-06-01", "2019-06-04"),
        ("osProfile", "2020-06-01", "2020-07-15"),
        ("priority", "2020-10-01", "2020-12-01"),
        ("evictionPolicy", "2020-10-01", "2020-12-01"),
        ("userData", "2020-12-01", "2021-01-01"),
        ("virtualMachineScaleSet", "2021-02-01", "2021-03-01"),
        ("additionalCapabilities", "2021-10-01", "2021-11-01"),
        ("physicalZone", "2023-07-01", "2023-11-15"),
    ] {
        assert_eq!(compute(&server, "workers_0", before).await.get(field), None, "{field} in {before}");
        assert!(compute(&server, "workers_0", since).await.get(field).is_some(), "{field} in {since}");
    }
    let oldest = compute(&server, "workers_0", "2017-04-02").await;
    for field in ["location", "name", "osType", "vmId", "vmSize"] {
        assert!(oldest[field].is_string(), "{field}");
    }
}

#[tokio::test]
async fn parts_are_asked_for_by_name_and_number() {
    let server = server().await;
    let version = "2021-02-01";
    for (path, text) in [
        ("compute/tagsList/0/name", "mock"),
        ("compute/tags", "mock:true"),
        ("compute/osProfile/computerName", "host-of-workers_0"),
        ("network/interface/0/ipv4/ipAddress/0/privateIpAddress", "127.0.0.1"),
        ("compute/zone", ""),
    ] {
        assert_eq!(get(&server, "workers_0", path, version, "text").await, (200, text.to_owned()), "{path}");
        assert_eq!(get(&server, "workers_0", path, version, "json").await.0, 400, "{path}");
    }
    assert_eq!(get(&server, "workers_0", "compute/", version, "json").await.0, 200, "a slash at its end");
    assert_eq!(get(&server, "workers_0", "compute", version, "text").await.0, 400);
    assert_eq!(get(&server, "workers_0", "network/interface/1", version, "json").await.0, 404);
}

#[tokio::test]
async fn a_vms_name_tells_its_set() {
    let server = server().await;
    let newest = "2025-04-07";
    for (vm, set, resource, set_id) in [
        ("workers_0", "workers", "/virtualMachineScaleSets/workers/virtualMachines/0", ""),
        (FLEXIBLE, "workers", "/virtualMachines/workers_0a1b2c3d", "/virtualMachineScaleSets/workers"),
        ("alone", "", "/virtualMachines/alone", ""),
    ] {
        let compute = compute(&server, vm, newest).await;
        assert_eq!((&compute["name"], &compute["vmScaleSetName"]), (&json!(vm), &json!(set)));
        let ends = |field: &Value, with: &str| field.as_str().is_some_and(|text| text.ends_with(with));
        assert!(ends(&compute["resourceId"], resource), "{compute}");
        let id = &compute["virtualMachineScaleSet"]["id"];
        assert!(ends(id, set_id) && (id == "") == set_id.is_empty(), "{compute}");
    }
}
