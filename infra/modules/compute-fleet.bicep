metadata name = 'Compute Fleet'
metadata description = 'A Compute Fleet of Spot workers. It replaces what was evicted, from whichever of its sizes has capacity.'

import { profileType, vmProfile } from 'profile.bicep'
import { healthPath, healthPort, tagsType } from 'shared.bicep'

@description('Name of the fleet.')
param name string

@description('Region of the fleet.')
param location string

@description('Tags of the fleet.')
param tags tagsType

@description('VM sizes.')
@minLength(1)
param sizes string[]

@description('Availability zones. Empty: none.')
param zones string[]

@description('Spot VMs that the fleet keeps running.')
@minValue(1)
param capacity int

@description('What happens to an evicted VM.')
@allowed(['Delete', 'Deallocate'])
param evictionPolicy string

@description('Highest price of a VM in US dollars an hour, as a string; -1: up to the regular price.')
param maxPrice string

@description('What the VMs are.')
param profile profileType

@description('Resource id of the workers\' identity.')
param workerIdentityId string

resource fleet 'Microsoft.AzureFleet/fleets@2024-11-01' = {
  name: name
  location: location
  tags: tags
  zones: empty(zones) ? null : zones
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${workerIdentityId}': {}
    }
  }
  properties: {
    spotPriorityProfile: {
      capacity: capacity
      // Keeps looking for capacity; without it the fleet fills once.
      maintain: true
      evictionPolicy: evictionPolicy
      allocationStrategy: 'PriceCapacityOptimized'
      ...(maxPrice == '-1' ? {} : { maxPricePerVM: json(maxPrice) })
    }
    vmSizesProfile: map(sizes, size => { name: size })
    computeProfile: {
      computeApiVersion: '2024-07-01'
      platformFaultDomainCount: 1
      baseVirtualMachineProfile: vmProfile(profile, '2020-11-01', healthPort, healthPath)
    }
  }
}

@description('Resource id of the fleet.')
output id string = fleet.id
