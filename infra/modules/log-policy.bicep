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

@description('Resource id of the collection endpoint: an agent in a network with a private link to Azure Monitor fetches its configuration there. Empty: none.')
param collectionEndpointId string

// "Configure Linux Virtual Machines to be associated with a Data Collection Rule or a Data Collection
// Endpoint", built in.
var definition = '58e891b9-ce13-4ac3-86e4-ac3e1f20cb07'
// The roles that the definition asks for: Monitoring Contributor and Log Analytics Contributor.
var roles = ['749f88d5-cbae-40b8-bcfc-e573ddc772fa', '92aaf0da-9dab-42b6-94a3-d43ce8d16293']

// One assignment is for one of the two; both name it by the same parameter.
var associated = concat(
  [{ name: 'logs', id: collectionRuleId, type: 'Microsoft.Insights/dataCollectionRules' }],
  empty(collectionEndpointId)
    ? []
    : [{ name: 'endpoint', id: collectionEndpointId, type: 'Microsoft.Insights/dataCollectionEndpoints' }]
)

resource assignments 'Microsoft.Authorization/policyAssignments@2024-04-01' = [
  for one in associated: {
    name: nameOf(one.name, name)
    location: location
    identity: { type: 'SystemAssigned' }
    properties: {
      displayName: 'Reprieve: ${one.name} of the workers (${name})'
      policyDefinitionId: tenantResourceId('Microsoft.Authorization/policyDefinitions', definition)
      metadata: tags
      parameters: {
        dcrResourceId: { value: one.id }
        resourceType: { value: one.type }
        // The definition's list of images lags behind; all VMs of this group are ours.
        scopeToSupportedImages: { value: false }
      }
    }
  }
]

resource grants 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for i in range(0, length(associated) * length(roles)): {
    name: guid(resourceGroup().id, nameOf(associated[i / length(roles)].name, name), roles[i % length(roles)])
    properties: {
      description: 'The policy associates VMs with where their logs go.'
      principalId: assignments[i / length(roles)].identity.principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles[i % length(roles)])
    }
  }
]
