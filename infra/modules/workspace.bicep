metadata name = 'Workspace'
metadata description = 'Log Analytics, and the rule that says which lines of a VM go there.'

import { nameOf, tagsType } from 'shared.bicep'

@description('Name of the deployment.')
param name string

@description('Region of the workspace.')
param location string

@description('Tags of every resource.')
param tags tagsType

@description('How long logs are kept, in days.')
param retentionDays int

@description('Logs beyond this many gigabytes a day are dropped. -1: no limit.')
param quotaGb int

resource workspace 'Microsoft.OperationalInsights/workspaces@2026-03-01' = {
  name: nameOf('log', name)
  location: location
  tags: tags
  properties: {
    sku: { name: 'PerGB2018' }
    retentionInDays: retentionDays
    workspaceCapping: { dailyQuotaGb: quotaGb }
    features: {
      // Agents sign in with the VM's identity, not with the workspace's key.
      disableLocalAuth: true
      enableLogAccessUsingOnlyResourcePermissions: true
    }
  }
}

@description('The worker and the report log to journald as syslog facility local3; rsyslog passes it to the agent. The rest of the system\'s log stays on the VM.')
resource rule 'Microsoft.Insights/dataCollectionRules@2024-03-11' = {
  name: nameOf('dcr', name)
  location: location
  tags: tags
  kind: 'Linux'
  properties: {
    description: 'Lines of the worker: one JSON object each.'
    dataSources: {
      syslog: [
        {
          name: 'worker'
          streams: ['Microsoft-Syslog']
          facilityNames: ['local3']
          logLevels: ['Debug', 'Info', 'Notice', 'Warning', 'Error', 'Critical', 'Alert', 'Emergency']
        }
      ]
      performanceCounters: [
        {
          name: 'vm'
          streams: ['Microsoft-Perf']
          samplingFrequencyInSeconds: 60
          counterSpecifiers: [
            'Processor(*)\\% Processor Time'
            'Memory(*)\\% Used Memory'
            'Logical Disk(*)\\% Used Space'
          ]
        }
      ]
    }
    destinations: {
      logAnalytics: [{ name: 'workspace', workspaceResourceId: workspace.id }]
    }
    dataFlows: [
      { streams: ['Microsoft-Syslog', 'Microsoft-Perf'], destinations: ['workspace'] }
    ]
  }
}

@description('Workspace id for log queries, a GUID.')
output customerId string = workspace.properties.customerId
