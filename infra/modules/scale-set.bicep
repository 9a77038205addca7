metadata name = 'Scale set'
metadata description = 'A Flexible scale set of workers: Spot, Spot over a regular base, or regular.'

import { profileType, vmProfile } from 'profile.bicep'
import { healthPath, healthPort, tagsType } from 'shared.bicep'

@description('Name of the scale set.')
param name string

@description('Region of the scale set.')
param location string

@description('Tags of the scale set.')
param tags tagsType

@description('VM sizes, one to five.')
@minLength(1)
@maxLength(5)
param sizes string[]

@description('How one of several sizes is chosen.')
@allowed(['CapacityOptimized', 'LowestPrice'])
param allocationStrategy string

@description('Availability zones. Empty: none.')
param zones string[]

@description('Instances of the set now. A deployment sets them, so an autoscaled set needs the number that it has.')
@minValue(0)
param capacity int

@description('Spot VMs, or regular ones.')
@allowed(['Spot', 'Regular'])
param priority string

@description('What happens to an evicted VM.')
@allowed(['Delete', 'Deallocate'])
param evictionPolicy string

@description('Highest price of a VM in US dollars an hour, as a string; -1: up to the regular price.')
param maxPrice string

@description('For how long Azure tries to restart an evicted VM, as an ISO 8601 duration. Empty: never.')
param restoreTimeout string

@description('Regular VMs that the set always has. -1: all are Spot, or all are regular.')
@minValue(-1)
param baseRegularInstances int

@description('How many of the VMs above the base are regular, in percent.')
@minValue(0)
@maxValue(100)
param regularPercentAboveBase int

@description('How long ahead a VM is told that it will be deleted, as an ISO 8601 duration, PT5M to PT15M. Empty: not at all. Spot VMs can\'t have it.')
param terminateNotice string

@description('How long a VM may be unhealthy before it is replaced, as an ISO 8601 duration, PT10M to PT90M.')
param repairGracePeriod string

@description('How running VMs get a new version: batch by batch, or by hand.')
@allowed(['Rolling', 'Manual'])
param upgradeMode string

@description('What the VMs are.')
param profile profileType

@description('Resource id of the workers\' identity.')
param workerIdentityId string

@description('Resource id of the rule that sends the VMs\' logs to the workspace. Empty: none.')
param collectionRuleId string

@description('Resource id of the private endpoint of the agent. Empty: it uses the public one.')
param collectionEndpointId string

var problems = concat(
  priority == 'Spot' && !empty(terminateNotice)
    ? ['terminateNotice: a terminate notification can\'t be enabled on Spot VMs.']
    : [],
  priority == 'Regular' && (!empty(restoreTimeout) || baseRegularInstances >= 0)
    ? ['restoreTimeout and baseRegularInstances are for Spot sets.']
    : []
)
var checkedSizes = empty(problems) ? sizes : fail(join(problems, ' '))
var mixed = length(sizes) > 1

resource set 'Microsoft.Compute/virtualMachineScaleSets@2025-04-01' = {
  name: name
  location: location
  tags: tags
  zones: empty(zones) ? null : zones
  sku: mixed ? { name: 'Mix', capacity: capacity } : { name: checkedSizes[0], tier: 'Standard', capacity: capacity }
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${workerIdentityId}': {}
    }
  }
  properties: {
    orchestrationMode: 'Flexible'
    singlePlacementGroup: false
    // Spreads VMs over as many fault domains as Azure has; a fixed number would refuse VMs where capacity is scarce.
    platformFaultDomainCount: 1
    // There is nothing to balance in one zone, and Azure refuses the property where there is none.
    zoneBalance: length(zones) > 1 ? false : null
    skuProfile: mixed
      ? { allocationStrategy: allocationStrategy, vmSizes: map(checkedSizes, size => { name: size }) }
      : null
    // A sibling of virtualMachineProfile. One page of the documentation shows it inside, where the schema
    // does not have it.
    spotRestorePolicy: empty(restoreTimeout) ? null : { enabled: true, restoreTimeout: restoreTimeout }
    priorityMixPolicy: baseRegularInstances >= 0
      ? {
          baseRegularPriorityCount: baseRegularInstances
          regularPriorityPercentageAboveBase: regularPercentAboveBase
        }
      : null
    automaticRepairsPolicy: { enabled: true, gracePeriod: repairGracePeriod, repairAction: 'Replace' }
    upgradePolicy: upgradeMode == 'Rolling'
      ? {
          mode: 'Rolling'
          rollingUpgradePolicy: {
            maxBatchInstancePercent: 20
            // Evicted VMs must not stop an upgrade of the others.
            maxUnhealthyInstancePercent: 100
            // New versions that are unhealthy must.
            maxUnhealthyUpgradedInstancePercent: 20
            pauseTimeBetweenBatches: 'PT1M'
            prioritizeUnhealthyInstances: true
          }
        }
      : { mode: 'Manual' }
    virtualMachineProfile: {
      ...vmProfile(profile, '2022-11-01', healthPort, healthPath)
      priority: priority
      ...(priority == 'Spot' ? { evictionPolicy: evictionPolicy, billingProfile: { maxPrice: json(maxPrice) } } : {})
      ...(empty(terminateNotice)
        ? {}
        : {
            scheduledEventsProfile: {
              terminateNotificationProfile: { enable: true, notBeforeTimeout: terminateNotice }
            }
          })
    }
  }
}

resource ruleAssociation 'Microsoft.Insights/dataCollectionRuleAssociations@2024-03-11' = if (!empty(collectionRuleId)) {
  scope: set
  name: 'worker-logs'
  properties: {
    description: 'Sends the worker\'s lines to the workspace.'
    dataCollectionRuleId: collectionRuleId
  }
}

resource endpointAssociation 'Microsoft.Insights/dataCollectionRuleAssociations@2024-03-11' = if (!empty(collectionEndpointId)) {
  scope: set
  // The agent looks for this name.
  name: 'configurationAccessEndpoint'
  properties: {
    description: 'Where the agent fetches its rules by a private address.'
    dataCollectionEndpointId: collectionEndpointId
  }
}

@description('Resource id of the scale set.')
output id string = set.id

@description('Where the health extension asks.')
output healthUrl string = 'http://localhost:${healthPort}${healthPath}'
