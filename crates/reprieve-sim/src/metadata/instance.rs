//! The instance document of a VM of the mock, and the way requests walk down it.

use serde_json::{Value, json};

use super::world::Vm;

/// The api-versions of the instance document, newest first.
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#supported-api-versions>
pub(super) const VERSIONS: [&str; 35] = [
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

/// What the service says of `vm`, whatever the api-version: a Spot VM of a uniform scale set.
///
/// As in Azure, all values are strings, and `""` stands for what does not apply. The host name is not the VM's name.
pub(super) fn document(vm: &Vm) -> Value {
    const GROUP: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/mock";
    let (set, number) = vm.name.rsplit_once('_').unwrap_or(("", &vm.name));
    let resource_id = if set.is_empty() {
        format!("{GROUP}/providers/Microsoft.Compute/virtualMachines/{number}")
    } else {
        format!("{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/{set}/virtualMachines/{number}")
    };
    json!({
        "compute": {
            "azEnvironment": "AzurePublicCloud",
            "evictionPolicy": "Delete",
            "location": "mock",
            "name": vm.name,
            "osProfile": { "adminUsername": "", "computerName": format!("host-of-{}", vm.name), "disablePasswordAuthentication": "true" },
            "osType": "Linux",
            "placementGroupId": "",
            "platformFaultDomain": "0",
            "platformUpdateDomain": "0",
            "priority": "Spot",
            "provider": "Microsoft.Compute",
            "resourceGroupName": "mock",
            "resourceId": resource_id,
            "subscriptionId": "00000000-0000-0000-0000-000000000000",
            "tags": "",
            "tagsList": [],
            "userData": "",
            "vmId": vm.id.to_string(),
            "vmScaleSetName": set,
            "vmSize": "Standard_D2s_v5",
            "zone": "",
        },
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

/// The part of `document` that is found by walking down `path`: keys, and indices of lists.
pub(super) fn walk<'a>(document: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(document, |part, key| match part {
        Value::Object(fields) => fields.get(*key),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => None,
    })
}
