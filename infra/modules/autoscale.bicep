metadata name = 'Autoscale on the queues'
metadata description = 'First VM at one message, further ones as messages wait, and back only when there is none at all.'

import { tagsType } from 'shared.bicep'

@description('Name of the setting.')
param name string

@description('Region of the scale set.')
param location string

@description('Tags of the setting.')
param tags tagsType

@description('Resource id of the scale set.')
param scaleSetId string

@description('Resource id of the storage account.')
param storageAccountId string

@description('Region of the storage account.')
param storageLocation string

@description('Queues that the scale set serves, filled in turn.')
@minLength(1)
@maxLength(4)
param queues string[]

@description('Instances when there is no message.')
@minValue(0)
param minimum int

@description('Most instances.')
@minValue(1)
param maximum int

@description('Messages of all queues that make one more instance of all fleets useful: the jobs that one VM has at a time.')
@minValue(1)
param jobsPerInstance int

@description('Share of this set in all fleets, in percent.')
@minValue(1)
@maxValue(100)
param sharePercent int

@description('Resource id of the workspace that gets the metrics of autoscale.')
param workspaceId string

// A profile has at most ten rules. Each queue takes one for the first VM and one for none; the rest are steps between,
// of one ratio, so that the messages never need many times the VMs that there are.
var steps = 11 - 2 * length(queues)

@description('The number of VMs after some steps of a ratio in percent, each of one VM or more.')
func climb(start int, percent int, count int, most int) int =>
  reduce(range(0, count), start, (vms, i) => min(most, vms * percent / 100 + 1))

// The smallest ratio that leads from the first VM to the maximum, by bisection. 1,000 VMs in two steps need 3,200.
var ratio = reduce(
  range(0, 13),
  { low: 99, high: 6400 },
  (bounds, i) =>
    climb(minimum + 1, (bounds.low + bounds.high) / 2, steps - 1, maximum) >= maximum
      ? { low: bounds.low, high: (bounds.low + bounds.high) / 2 }
      : { low: (bounds.low + bounds.high) / 2, high: bounds.high }
).high
var targets = union(map(range(0, steps), i => climb(minimum + 1, ratio, i, maximum)), [])
var uris = map(queues, queue => '${storageAccountId}/services/queue/queues/${queue}')

// Messages of one queue above which a VM is useful, after so many VMs of this set.
func due(vms int, jobs int, share int, queueCount int) int => vms * jobs * 100 / share / queueCount

func metric(uri string, region string, window string, operator string, threshold int) object => {
  metricName: 'ApproximateMessageCount'
  metricNamespace: ''
  metricResourceUri: uri
  metricResourceLocation: region
  timeGrain: 'PT1M'
  statistic: 'Max'
  timeWindow: window
  // The highest count of the window: a message that came starts a VM, and none may have come for the whole window
  // before VMs go.
  timeAggregation: 'Maximum'
  operator: operator
  threshold: threshold
  // Else the threshold would be messages per instance, and could not say "one message, no instance".
  dividePerInstance: false
}

// The count has leased, delayed and waiting messages in it, so a VM with a job is never scaled in.
var firstRules = map(uris, uri => {
  metricTrigger: metric(
    uri,
    storageLocation,
    'PT5M',
    'GreaterThan',
    due(minimum, jobsPerInstance, sharePercent, length(uris))
  )
  scaleAction: { direction: 'Increase', type: 'ExactCount', value: string(targets[0]), cooldown: 'PT1M' }
})
// Jobs are spread evenly, so the first queue stands for all.
var stepRules = map(skip(targets, 1), target => {
  metricTrigger: metric(
    uris[0],
    storageLocation,
    'PT5M',
    'GreaterThan',
    due(target - 1, jobsPerInstance, sharePercent, length(uris))
  )
  scaleAction: { direction: 'Increase', type: 'ExactCount', value: string(target), cooldown: 'PT1M' }
})
// Autoscale scales in only when all rules that scale in agree. It stops at the minimum, so the most that the set can
// have above it leads there from anywhere. "Decrease count to 0" would say it, but a value must be 1 or more.
var noneRules = map(uris, uri => {
  metricTrigger: metric(uri, storageLocation, 'PT10M', 'LessThan', 1)
  scaleAction: { direction: 'Decrease', type: 'ChangeCount', value: string(maximum - minimum), cooldown: 'PT5M' }
})

resource setting 'Microsoft.Insights/autoscalesettings@2022-10-01' = {
  name: name
  location: location
  tags: tags
  properties: {
    name: name
    enabled: true
    targetResourceUri: scaleSetId
    targetResourceLocation: location
    profiles: [
      {
        name: 'messages'
        capacity: { minimum: string(minimum), maximum: string(maximum), default: string(minimum) }
        rules: concat(firstRules, stepRules, noneRules)
      }
    ]
  }
}

@description('What autoscale sees goes to the workspace, minute by minute: at zero workers nobody else reports.')
// No stable version of the type has these properties.
#disable-next-line use-recent-api-versions
resource measured 'Microsoft.Insights/diagnosticSettings@2021-05-01-preview' = {
  scope: setting
  name: 'workspace'
  properties: {
    workspaceId: workspaceId
    metrics: [{ category: 'AllMetrics', enabled: true }]
  }
}

@description('Resource id of the setting.')
output id string = setting.id
