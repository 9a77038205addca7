metadata name = 'Roles on the store'
metadata description = 'Least rights for workers, the gallery, who uploads packages, and who enqueues jobs. Stage 1 assigns them, so they exist before the first VM of stage 2.'

import {
  principalType
  packagesContainer
  queueDataContributor
  queueDataMessageSender
  queueDataReader
  blobDataContributor
  assignmentName
} from 'shared.bicep'

@description('Name of the storage account.')
param accountName string

@description('Queues of jobs, without their poison queues.')
param queues string[]

@description('Container of inputs, outputs, results and checkpoints.')
param container string

@description('Name of the workers\' identity.')
param workerIdentityName string

@description('Object id of the workers\' identity.')
param workerPrincipalId string

@description('Role of the workers on their queues.')
@allowed(['builtin', 'custom'])
param workerRole string

@description('Name of the gallery\'s identity.')
param galleryIdentityName string

@description('Object id of the gallery\'s identity.')
param galleryPrincipalId string

@description('Object id of who uploads packages. Empty: nobody.')
param uploaderPrincipalId string

@description('What the uploader\'s object id belongs to.')
@allowed(['User', 'Group', 'ServicePrincipal'])
param uploaderPrincipalType string

@description('Who enqueues jobs.')
param producers principalType[]

var allQueues = concat(queues, map(queues, queue => '${queue}-poison'))
// One sender's role for each pair of a producer and a queue.
var pairs = flatten(map(producers, producer => map(range(0, length(allQueues)), i => union(producer, { index: i }))))

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' existing = {
  name: accountName

  resource queueService 'queueServices' existing = {
    name: 'default'
  }

  resource blobService 'blobServices' existing = {
    name: 'default'
  }
}

resource queue 'Microsoft.Storage/storageAccounts/queueServices/queues@2025-06-01' existing = [
  for name in allQueues: {
    parent: account::queueService
    name: name
  }
]

resource jobs 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' existing = {
  parent: account::blobService
  name: container
}

resource packages 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' existing = {
  parent: account::blobService
  name: packagesContainer
}

@description('What a worker does with its queues, and no more: it does not create or delete queues.')
resource leastRole 'Microsoft.Authorization/roleDefinitions@2022-04-01' = if (workerRole == 'custom') {
  name: guid(resourceGroup().id, accountName, 'reprieve-worker')
  properties: {
    roleName: 'Reprieve worker (${accountName})'
    description: 'Counts, receives, renews, releases, deletes and sends messages of a queue.'
    type: 'CustomRole'
    assignableScopes: [resourceGroup().id]
    permissions: [
      {
        actions: ['Microsoft.Storage/storageAccounts/queueServices/queues/read']
        notActions: []
        dataActions: [
          'Microsoft.Storage/storageAccounts/queueServices/queues/messages/read'
          'Microsoft.Storage/storageAccounts/queueServices/queues/messages/write'
          'Microsoft.Storage/storageAccounts/queueServices/queues/messages/delete'
          'Microsoft.Storage/storageAccounts/queueServices/queues/messages/add/action'
          'Microsoft.Storage/storageAccounts/queueServices/queues/messages/process/action'
        ]
        notDataActions: []
      }
    ]
  }
}

// The principal's type is always given: without it an assignment fails while a new identity is not yet known
// everywhere.

resource workerOnQueues 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, i) in allQueues: {
    scope: queue[i]
    name: assignmentName(queue[i].id, workerIdentityName, 'worker')
    properties: {
      description: 'The worker receives, renews, releases, counts and sends messages.'
      principalId: workerPrincipalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: workerRole == 'custom'
        ? leastRole.id
        : subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataContributor)
    }
  }
]

resource workerOnContainer 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: jobs
  name: assignmentName(jobs.id, workerIdentityName, 'worker')
  properties: {
    description: 'The worker reads inputs and writes outputs, results and checkpoints.'
    principalId: workerPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobDataContributor)
  }
}

resource galleryOnPackages 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: packages
  name: assignmentName(packages.id, galleryIdentityName, 'gallery')
  properties: {
    // Microsoft's page on publishing with an identity names this role; a reader's is not documented to be enough.
    description: 'The gallery copies an uploaded package when a version is published.'
    principalId: galleryPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobDataContributor)
  }
}

resource uploaderOnPackages 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(uploaderPrincipalId)) {
  scope: packages
  name: assignmentName(packages.id, uploaderPrincipalId, 'uploader')
  properties: {
    description: 'Uploads packages.'
    principalId: uploaderPrincipalId
    principalType: uploaderPrincipalType
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobDataContributor)
  }
}

// Who deploys a fleet also asks how it goes: `reprieve status` counts the queues and peeks at them.
resource uploaderOnQueues 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for i in empty(uploaderPrincipalId) ? [] : range(0, length(allQueues)): {
    scope: queue[i]
    name: assignmentName(queue[i].id, uploaderPrincipalId, 'reader')
    properties: {
      description: 'Looks at the queues.'
      principalId: uploaderPrincipalId
      principalType: uploaderPrincipalType
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataReader)
    }
  }
]

resource producerOnQueues 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for pair in pairs: {
    scope: queue[pair.index]
    name: assignmentName(queue[pair.index].id, pair.principalId, 'producer')
    properties: {
      description: 'Sends jobs.'
      principalId: pair.principalId
      principalType: pair.principalType
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', queueDataMessageSender)
    }
  }
]

resource producerOnContainer 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for producer in producers: {
    scope: jobs
    name: assignmentName(jobs.id, producer.principalId, 'producer')
    properties: {
      description: 'Writes inputs and long arguments, reads results.'
      principalId: producer.principalId
      principalType: producer.principalType
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', blobDataContributor)
    }
  }
]
