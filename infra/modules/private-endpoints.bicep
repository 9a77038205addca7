metadata name = 'Private endpoints of one region'
metadata description = 'Private addresses for the storage account and, where logs are collected, for the workspace, with the DNS zones that name them.'

import { nameIn, nameOf, tagsType } from 'shared.bicep'

@description('Name of the deployment.')
param name string

@description('The region.')
param location string

@description('Tags of every resource.')
param tags tagsType

@description('Name of the storage account.')
param accountName string

@description('Whether the VMs send their logs to the workspace.')
param collectLogs bool

var storageServices = ['blob', 'queue']
var storageZones = map(storageServices, service => 'privatelink.${service}.${environment().suffixes.storage}')
// The names that Azure Monitor's private link needs besides that of blobs. They are those of the public cloud.
var monitorZones = collectLogs
  ? [
      'privatelink.monitor.azure.com'
      'privatelink.oms.opinsights.azure.com'
      'privatelink.ods.opinsights.azure.com'
      'privatelink.agentsvc.azure-automation.net'
    ]
  : []
var zoneNames = concat(storageZones, monitorZones)

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' existing = {
  name: accountName
}

resource workspace 'Microsoft.OperationalInsights/workspaces@2026-03-01' existing = {
  name: nameOf('log', name)
}

resource virtualNetwork 'Microsoft.Network/virtualNetworks@2025-05-01' existing = {
  name: nameIn('vnet', name, location)
}

resource subnet 'Microsoft.Network/virtualNetworks/subnets@2025-05-01' existing = {
  parent: virtualNetwork
  name: 'endpoints'
}

resource zone 'Microsoft.Network/privateDnsZones@2024-06-01' = [
  for zoneName in zoneNames: {
    name: zoneName
    location: 'global'
    tags: tags
  }
]

resource link 'Microsoft.Network/privateDnsZones/virtualNetworkLinks@2024-06-01' = [
  for (zoneName, i) in zoneNames: {
    parent: zone[i]
    name: virtualNetwork.name
    location: 'global'
    tags: tags
    properties: {
      registrationEnabled: false
      virtualNetwork: { id: virtualNetwork.id }
    }
  }
]

resource storageEndpoint 'Microsoft.Network/privateEndpoints@2025-05-01' = [
  for service in storageServices: {
    name: nameIn('pe-${service}', name, location)
    location: location
    tags: tags
    properties: {
      subnet: { id: subnet.id }
      privateLinkServiceConnections: [
        {
          name: service
          properties: { privateLinkServiceId: account.id, groupIds: [service] }
        }
      ]
    }
  }
]

resource storageNames 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2025-09-01' = [
  for (service, i) in storageServices: {
    parent: storageEndpoint[i]
    name: 'default'
    properties: {
      privateDnsZoneConfigs: [{ name: service, properties: { privateDnsZoneId: zone[i].id } }]
    }
  }
]

@description('Where the agent fetches its configuration and sends logs, by private addresses.')
resource dataEndpoint 'Microsoft.Insights/dataCollectionEndpoints@2024-03-11' = if (collectLogs) {
  name: nameIn('dce', name, location)
  location: location
  tags: tags
  kind: 'Linux'
  properties: {
    networkAcls: { publicNetworkAccess: 'Disabled' }
  }
}

@description('Open, so that VMs of other regions still reach the workspace by its public address.')
// The type has no stable version.
#disable-next-line use-recent-api-versions
resource linkScope 'Microsoft.Insights/privateLinkScopes@2021-07-01-preview' = if (collectLogs) {
  name: nameOf('ampls', name)
  location: 'global'
  tags: tags
  properties: {
    accessModeSettings: { ingestionAccessMode: 'Open', queryAccessMode: 'Open' }
  }

  resource scopedWorkspace 'scopedResources' = {
    name: 'workspace'
    properties: { linkedResourceId: workspace.id }
  }

  resource scopedEndpoint 'scopedResources' = {
    name: 'endpoint'
    properties: { linkedResourceId: dataEndpoint.id }
  }
}

resource monitorEndpoint 'Microsoft.Network/privateEndpoints@2025-05-01' = if (collectLogs) {
  name: nameIn('pe-monitor', name, location)
  location: location
  tags: tags
  properties: {
    subnet: { id: subnet.id }
    privateLinkServiceConnections: [
      {
        name: 'azuremonitor'
        properties: { privateLinkServiceId: linkScope.id, groupIds: ['azuremonitor'] }
      }
    ]
  }
  dependsOn: [linkScope::scopedWorkspace, linkScope::scopedEndpoint]
}

resource monitorNames 'Microsoft.Network/privateEndpoints/privateDnsZoneGroups@2025-09-01' = if (collectLogs) {
  parent: monitorEndpoint
  name: 'default'
  properties: {
    // Azure Monitor also keeps the agent's solution packs in blobs, so its addresses stand in that zone too.
    privateDnsZoneConfigs: map(concat(monitorZones, [storageZones[0]]), zoneName => {
      name: replace(zoneName, '.', '-')
      properties: { privateDnsZoneId: resourceId('Microsoft.Network/privateDnsZones', zoneName) }
    })
  }
  dependsOn: [zone]
}
