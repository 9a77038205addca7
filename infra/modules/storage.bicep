metadata name = 'The store'
metadata description = 'A storage account for one deployment and nothing else: queues, poison queues, the container of the jobs, and the container of the packages.'

import { packagesContainer, tagsType } from 'shared.bicep'

@description('Name of the storage account.')
param accountName string

@description('Region of the storage account.')
param location string

@description('Tags of the storage account.')
param tags tagsType

@description('Replication of the storage account.')
@allowed(['Standard_LRS', 'Standard_ZRS'])
param sku string

@description('Queues of jobs. Each gets a poison queue.')
param queues string[]

@description('Container of inputs, outputs, results and checkpoints.')
param container string

@description('Subnets whose VMs reach the account by a service endpoint. Empty texts are left out.')
param subnetIds string[]

@description('Public IPv4 addresses or ranges that may reach the account.')
param allowedIpRanges string[]

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' = {
  name: accountName
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: { name: sku }
  properties: {
    accessTier: 'Hot'
    // Everyone signs in with Microsoft Entra ID. That also refuses SAS made from a key, so none can leak.
    allowSharedKeyAccess: false
    defaultToOAuthAuthentication: true
    allowBlobPublicAccess: false
    isLocalUserEnabled: false
    allowCrossTenantReplication: false
    allowedCopyScope: 'AAD'
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
    // A directory would be a blob: with a hierarchical namespace, empty directories of finished jobs may stay.
    isHnsEnabled: false
    isSftpEnabled: false
    // "Enabled" with "Deny" is closed but for the rules below. "Disabled" would also shut out the service endpoints.
    publicNetworkAccess: 'Enabled'
    networkAcls: {
      defaultAction: 'Deny'
      // Trusted services: the gallery reads packages with its own identity.
      bypass: 'AzureServices'
      virtualNetworkRules: map(filter(subnetIds, id => !empty(id)), id => { id: id, action: 'Allow' })
      ipRules: map(allowedIpRanges, address => { value: address, action: 'Allow' })
    }
    encryption: {
      keySource: 'Microsoft.Storage'
      requireInfrastructureEncryption: false
      services: {
        blob: { enabled: true, keyType: 'Account' }
        // An account-wide key for queues can only be chosen when the account is created.
        queue: { enabled: true, keyType: 'Account' }
      }
    }
  }
}

resource blobService 'Microsoft.Storage/storageAccounts/blobServices@2025-06-01' = {
  parent: account
  name: 'default'
  properties: {
    // A checkpoint is overwritten every few seconds. With versioning or soft delete, each of them would be
    // kept and billed:
    // a slot that saves 100 MB every 38 s leaves 1.6 TB a week. The account holds nothing else that they
    // could protect.
    isVersioningEnabled: false
    deleteRetentionPolicy: { enabled: false }
    changeFeed: { enabled: false }
    // Costs nothing while no container is deleted.
    containerDeleteRetentionPolicy: { enabled: true, days: 7 }
  }
}

resource jobsContainer 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobService
  name: container
  properties: { publicAccess: 'None' }
}

resource packages 'Microsoft.Storage/storageAccounts/blobServices/containers@2025-06-01' = {
  parent: blobService
  name: packagesContainer
  properties: { publicAccess: 'None' }
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2025-06-01' = {
  parent: account
  name: 'default'
  properties: {}
}

resource jobQueues 'Microsoft.Storage/storageAccounts/queueServices/queues@2025-06-01' = [
  for queue in queues: {
    parent: queueService
    name: queue
    properties: {}
  }
]

resource poisonQueues 'Microsoft.Storage/storageAccounts/queueServices/queues@2025-06-01' = [
  for queue in queues: {
    parent: queueService
    name: '${queue}-poison'
    properties: {}
  }
]

@description('Resource id of the storage account.')
output id string = account.id
