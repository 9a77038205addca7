metadata name = 'Association by policy'
metadata description = 'Associates each new VM of the resource group with the collection rule, also those of a Compute Fleet.'

import { nameOf, tagsType } from 'shared.bicep'

@description('Name of the deployment.')
param name string

@description('Region of the policy\'s identity.')
param location string

@description('Tags, kept as metadata: an assignment has none.')
param tags tagsType

@description('Resource id of the collection rule.')
param collectionRuleId string

// "Configure Linux Virtual Machines to be associated with a Data Collection Rule or a Data Collection
// Endpoint", built in.
var definition = '58e891b9-ce13-4ac3-86e4-ac3e1f20cb07'
// The roles that the definition asks for: Monitoring Contributor and Log Analytics Contributor.
var roles = ['749f88d5-cbae-40b8-bcfc-e573ddc772fa', '92aaf0da-9dab-42b6-94a3-d43ce8d16293']

resource assignment 'Microsoft.Authorization/policyAssignments@2024-04-01' = {
  name: nameOf('logs', name)
  location: location
  identity: { type: 'SystemAssigned' }
  properties: {
    displayName: 'Reprieve: logs of the workers (${name})'
    policyDefinitionId: tenantResourceId('Microsoft.Authorization/policyDefinitions', definition)
    metadata: tags
    parameters: {
      dcrResourceId: { value: collectionRuleId }
      // The definition's list of images lags behind; all VMs of this group are ours.
      scopeToSupportedImages: { value: false }
    }
  }
}

resource grants 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in roles: {
    name: guid(resourceGroup().id, assignment.name, role)
    properties: {
      description: 'The policy associates VMs with the collection rule.'
      principalId: assignment.identity.principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', role)
    }
  }
]
