metadata name = 'Alerts, workbook and budget'
metadata description = 'What wakes somebody, what to look at then, and what warns of the bill.'

import { nameOf, tagsType } from 'shared.bicep'

@description('Name of the deployment.')
param name string

@description('Region of the alert rules and the workbook: the workspace\'s.')
param location string

@description('Tags of every resource.')
param tags tagsType

@description('Resource id of the workspace.')
param workspaceId string

@description('Whether the VMs send their logs to the workspace; without logs only autoscale can be watched.')
param collectLogs bool

@description('Whether autoscale changes the number of VMs; its metrics are in the workspace then.')
param autoscaled bool

@description('VMs that should be there all the time. 0: none.')
@minValue(0)
param expectedVms int

@description('For how long Azure tries to restart an evicted VM, as an ISO 8601 duration.')
@allowed(['PT15M', 'PT30M', 'PT1H', 'PT2H'])
param restoreTimeout string

@description('Who gets the alerts and the budget\'s warnings.')
param contactEmails string[]

@description('Budget of the resource group, a month, in the currency of the bill.')
param monthlyBudget int

@description('First day of the budget\'s first month.')
param budgetStart string

@description('Alert when a message has waited for longer, in minutes.')
param oldestMessageMinutes int

@description('Alert on more evictions an hour.')
param evictionsPerHour int

type logAlertType = {
  @description('Name of the rule.')
  name: string

  @description('What it means and what to do.')
  description: string

  @description('0, critical, to 4, verbose.')
  severity: int

  @description('The query.')
  query: string

  @description('Column that is compared.')
  column: string

  @description('How the column is compared with the threshold.')
  operator: 'GreaterThan' | 'LessThan'

  @description('The threshold.')
  threshold: int

  @description('What the query looks at, as an ISO 8601 duration.')
  window: string

  @description('Column by which alerts are told apart. Empty: none.')
  dimension: string
}

var alwaysThere logAlertType[] = [
  {
    name: 'oldest-message'
    description: 'A message has waited for longer than expected: too little capacity, jobs that stand still, or jobs that no worker takes. reprieve status --queue QUEUE shows which.'
    severity: 2
    query: loadTextContent('../monitoring/queries/oldest-message.kql')
    column: 'oldest_minutes'
    operator: 'GreaterThan'
    threshold: oldestMessageMinutes
    window: 'PT15M'
    dimension: 'queue'
  }
  {
    name: 'poison'
    description: 'Jobs are in the poison queue. reprieve status --queue QUEUE shows the reasons; mend the cause, then reprieve redrive, which needs Storage Queue Data Contributor.'
    severity: 2
    query: loadTextContent('../monitoring/queries/poison.kql')
    column: 'poisoned'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT15M'
    dimension: 'queue'
  }
  {
    name: 'silent-workers'
    description: 'VMs are up, but no worker there could be asked for its metrics. reprieve status shows which are silent; journalctl -u "reprieve-worker*", by az vm run-command invoke, shows why. Repairs replace VMs that are unhealthy.'
    severity: 1
    query: loadTextContent('../monitoring/queries/silent-workers.kql')
    column: 'silent'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT15M'
    dimension: ''
  }
  {
    name: 'evictions'
    description: 'More evictions than usual: add sizes or a region to the fleets. reprieve status shows the last drains.'
    severity: 3
    query: loadTextContent('../monitoring/queries/evictions.kql')
    column: 'evictions'
    operator: 'GreaterThan'
    threshold: evictionsPerHour
    window: 'PT1H'
    dimension: ''
  }
  {
    name: 'abandoned-drains'
    description: 'A drain ended with messages that were not released: steps too long, or storage too slow. Their jobs wait until their leases end. reprieve status shows what the last drains left.'
    severity: 2
    query: loadTextContent('../monitoring/queries/abandoned-drains.kql')
    column: 'drains'
    operator: 'GreaterThan'
    threshold: 0
    window: 'PT15M'
    dimension: ''
  }
]
var onlyFixed logAlertType[] = [
  {
    name: 'missing-vms'
    description: 'For as long as Azure tries to restart evicted VMs, fewer were there than should be. Azure no longer tries, or a Compute Fleet finds none: start them (az vmss start), or choose other sizes or regions.'
    severity: 2
    query: loadTextContent('../monitoring/queries/missing-vms.kql')
    column: 'vms'
    operator: 'LessThan'
    threshold: expectedVms
    window: restoreTimeout
    dimension: ''
  }
]
// At zero workers nobody reports, so this one watches what autoscale sees.
var onlyAutoscaled logAlertType[] = [
  {
    name: 'unserved'
    description: 'Messages have waited for half an hour in which a scale set had no VM: no capacity, no quota, or autoscale fails. az monitor activity-log list -g GROUP --offset 1h shows why.'
    severity: 1
    query: loadTextContent('../monitoring/queries/unserved.kql')
    column: 'minutes'
    operator: 'GreaterThan'
    // Of 30. The last ones may not be in the workspace yet.
    threshold: 20
    window: 'PT30M'
    dimension: 'setting'
  }
]
var logAlerts = concat(
  collectLogs ? concat(alwaysThere, expectedVms > 0 ? onlyFixed : []) : [],
  autoscaled ? onlyAutoscaled : []
)

resource actions 'Microsoft.Insights/actionGroups@2023-01-01' = if (!empty(contactEmails)) {
  name: nameOf('ag', name)
  location: 'global'
  tags: tags
  properties: {
    groupShortName: take('rp-${name}', 12)
    enabled: true
    emailReceivers: map(contactEmails, (email, i) => {
      name: 'email-${i}'
      emailAddress: email
      useCommonAlertSchema: true
    })
  }
}

resource logAlert 'Microsoft.Insights/scheduledQueryRules@2026-03-01' = [
  for alert in logAlerts: {
    name: nameOf(alert.name, name)
    location: location
    tags: tags
    kind: 'LogAlert'
    properties: {
      displayName: 'Reprieve ${name}: ${alert.name}'
      description: alert.description
      severity: alert.severity
      enabled: true
      scopes: [workspaceId]
      evaluationFrequency: 'PT5M'
      windowSize: alert.window
      // A table is only known to the workspace once a VM has sent to it.
      skipQueryValidation: true
      autoMitigate: true
      criteria: {
        allOf: [
          {
            query: alert.query
            timeAggregation: 'Maximum'
            metricMeasureColumn: alert.column
            operator: alert.operator
            threshold: alert.threshold
            dimensions: empty(alert.dimension) ? [] : [{ name: alert.dimension, operator: 'Include', values: ['*'] }]
            failingPeriods: { numberOfEvaluationPeriods: 1, minFailingPeriodsToAlert: 1 }
          }
        ]
      }
      actions: {
        actionGroups: empty(contactEmails) ? [] : [actions.id]
      }
    }
  }
]

resource workbook 'Microsoft.Insights/workbooks@2023-06-01' = if (collectLogs) {
  name: guid(resourceGroup().id, name, 'workbook')
  location: location
  tags: tags
  kind: 'shared'
  properties: {
    displayName: 'Reprieve ${name}'
    description: 'Drains, evictions, queues and workers.'
    category: 'workbook'
    version: 'Notebook/1.0'
    sourceId: workspaceId
    serializedData: loadTextContent('../monitoring/workbook.json')
  }
}

resource budget 'Microsoft.Consumption/budgets@2024-08-01' = if (!empty(contactEmails)) {
  name: nameOf('budget', name)
  properties: {
    category: 'Cost'
    amount: monthlyBudget
    timeGrain: 'Monthly'
    timePeriod: { startDate: budgetStart }
    notifications: {
      actualAt80Percent: {
        enabled: true
        operator: 'GreaterThan'
        threshold: 80
        thresholdType: 'Actual'
        contactEmails: contactEmails
      }
      forecastAt100Percent: {
        enabled: true
        operator: 'GreaterThan'
        threshold: 100
        thresholdType: 'Forecasted'
        contactEmails: contactEmails
      }
    }
  }
}
