metadata name = 'Reprieve, stage 1: what a fleet stands on'
metadata description = 'Identities, storage with queues and containers, roles, networks, the gallery and the workspace. The package is uploaded between this stage and fleet.bicep.'

targetScope = 'resourceGroup'

import {
  regionType
  principalType
  tagsType
  storageAccountName
  galleryName
  nameOf
  hasTwice
  inLowerCase
  isName
  isPrivate
  isPublic
  isQueue
  isRange
  queueNames
  escalationQueueName
  packagesContainer
  applicationName
} from 'modules/shared.bicep'

// ----------------------------------------------------------------- parameters

@description('Name of the deployment, 2 to 9 characters: lower-case letters, digits and hyphens. Part of all names; the same for both stages.')
@minLength(2)
@maxLength(9)
param name string

@description('Region of the storage account, the gallery and the workspace.')
param location string = resourceGroup().location

@description('Tags of every resource.')
param tags tagsType = {}

@description('The regions of the fleets.')
@minLength(1)
param regions regionType[]

@description('Name of the queue, 3 to 46 characters: lower-case letters, digits and single hyphens. Its poison queue is NAME-poison.')
@minLength(3)
@maxLength(46)
param queue string = 'work'

@description('Number of queues that share the jobs. One carries some 750 short jobs a second; more than 1 are named QUEUE-0, QUEUE-1 and so on.')
@minValue(1)
@maxValue(8)
param queueShards int = 1

@description('Whether there is a queue QUEUE-escalated, which the preset swap needs.')
param escalation bool = false

@description('Name of the container of inputs, outputs, results and checkpoints.')
@minLength(3)
@maxLength(63)
param container string = 'reprieve'

@description('Replication of the storage account: in one zone, or over the zones of its region.')
@allowed(['Standard_LRS', 'Standard_ZRS'])
param storageSku string = 'Standard_LRS'

@description('Public IPv4 addresses or ranges that may reach the storage account, such as 203.0.113.7 or 203.0.113.0/24: where the package is uploaded and jobs are enqueued from. Empty: none.')
param allowedIpRanges string[] = []

@description('Who uploads packages: object id in Microsoft Entra ID. Empty: nobody gets the role here.')
param uploaderPrincipalId string = ''

@description('What the uploader\'s object id belongs to.')
@allowed(['User', 'Group', 'ServicePrincipal'])
param uploaderPrincipalType string = 'User'

@description('Who enqueues jobs, with long arguments or inputs.')
param producers principalType[] = []

@description('Role of the workers on their queues. builtin: Storage Queue Data Contributor. custom: a role of this deployment with just what a worker does; creating it needs the right to define roles.')
@allowed(['builtin', 'custom'])
param workerRole string = 'builtin'

@description('Whether the VMs send their logs to the workspace.')
param collectLogs bool = true

@description('How long logs are kept, in days.')
@minValue(30)
@maxValue(730)
param logRetentionDays int = 30

@description('Logs beyond this many gigabytes a day are dropped. -1: no limit.')
@minValue(-1)
param logQuotaGb int = 5

@description('Private IPv4 range that may open SSH connections to the VMs, such as that of a Bastion\'s subnet in a peered network. Empty: nothing comes in.')
param sshSourcePrefix string = ''

// ----------------------------------------------------------------- checks

var resolved = map(regions, region => union(region, { location: inLowerCase(region.location, location) }))
var locations = map(resolved, region => region.location)
var prefixes = map(regions, region => region.addressPrefix)
var privateRegions = filter(resolved, region => region.network == 'privateEndpoints')

var problems = concat(
  isName(name)
    ? []
    : ['name: use lower-case letters, digits and single hyphens inside, because it is part of names that allow nothing else.'],
  isName(queue) ? [] : ['queue: use lower-case letters, digits and single hyphens inside; Azure takes no other names of queues.'],
  !isName(queue) || isQueue(queue) ? [] : ['queue: a name that ends with -poison is that of the queue of failed jobs.'],
  isName(container)
    ? []
    : ['container: use lower-case letters, digits and single hyphens inside; Azure takes no other names of containers.'],
  container == packagesContainer ? ['container: packages is the container of the packages; use another name.'] : [],
  length(union(locations, [])) == length(locations)
    ? []
    : ['regions: a region is listed twice; give its fleet more sizes instead.'],
  hasTwice(prefixes) ? ['regions: two regions have the same addressPrefix; they could never be peered.'] : [],
  length(filter(prefixes, prefix => !endsWith(prefix, '.0.0/16') || !isRange(prefix) || !isPrivate(prefix))) == 0
    ? []
    : ['regions: addressPrefix must be a /16 of private addresses, such as 10.64.0.0/16, of which the workers get one half.'],
  length(privateRegions) <= 1
    ? []
    : ['regions: privateEndpoints in two regions would share one private DNS zone, and each would be sent to the other\'s addresses. Use it in one region, and natGateway or serviceEndpoints in the others.'],
  collectLogs && length(filter(resolved, region => region.network == 'serviceEndpoints')) > 0
    ? ['regions: with serviceEndpoints the VMs reach storage only, so no log would reach the workspace. Use natGateway or privateEndpoints, or set collectLogs to false.']
    : [],
  length(filter(allowedIpRanges, address => endsWith(address, '/31') || endsWith(address, '/32'))) == 0
    ? []
    : ['allowedIpRanges: the storage firewall refuses /31 and /32; write the address alone.'],
  length(filter(allowedIpRanges, address => !isPublic(address))) == 0
    ? []
    : ['allowedIpRanges: each is a public IPv4 address or range, such as 203.0.113.7 or 203.0.113.0/24; the storage firewall takes no others.'],
  hasTwice(map(producers, producer => producer.principalId))
    ? ['producers: an object id is listed twice; Azure refuses a second assignment of a role.']
    : [],
  empty(sshSourcePrefix) || (isRange(sshSourcePrefix) && isPrivate(sshSourcePrefix))
    ? []
    : ['sshSourcePrefix: a private IPv4 range, such as that of a Bastion\'s subnet; nothing comes in from the internet.'],
  logQuotaGb == 0 ? ['logQuotaGb: 0 would drop all logs; set collectLogs to false, or use -1 for no limit.'] : [],
  length(tags) > 40 ? ['tags: at most 40, because a resource has at most 50 with those that are added here.'] : []
)
var checkedRegions = empty(problems) ? resolved : fail(join(problems, ' '))

// ----------------------------------------------------------------- resources

var allTags = union(tags, { application: 'reprieve', deployment: name })
var queues = concat(queueNames(queue, queueShards), escalation ? [escalationQueueName(queue)] : [])

@description('The identity of the workers. User-assigned, because the roles of a system-assigned one would race the first requests of each new VM.')
resource workerIdentity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: nameOf('id-worker', name)
  location: location
  tags: allTags
}

@description('The identity with which the gallery reads an uploaded package.')
resource galleryIdentity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' = {
  name: nameOf('id-gallery', name)
  location: location
  tags: allTags
}

module network 'modules/network.bicep' = [
  for region in checkedRegions: {
    params: {
      name: name
      location: region.location
      tags: allTags
      addressPrefix: region.addressPrefix
      network: region.network
      sshSourcePrefix: sshSourcePrefix
    }
  }
]

module storage 'modules/storage.bicep' = {
  params: {
    accountName: storageAccountName(resourceGroup().id, name)
    location: location
    tags: allTags
    sku: storageSku
    queues: queues
    container: container
    // A subnet with private endpoints needs no rule: its requests do not come by the public endpoint.
    subnetIds: [for (region, i) in checkedRegions: network[i].outputs.storageSubnetId]
    allowedIpRanges: allowedIpRanges
  }
}

module roles 'modules/roles.bicep' = {
  params: {
    accountName: storageAccountName(resourceGroup().id, name)
    queues: queues
    container: container
    workerIdentityName: workerIdentity.name
    workerPrincipalId: workerIdentity.properties.principalId
    workerRole: workerRole
    galleryIdentityName: galleryIdentity.name
    galleryPrincipalId: galleryIdentity.properties.principalId
    uploaderPrincipalId: uploaderPrincipalId
    uploaderPrincipalType: uploaderPrincipalType
    producers: producers
  }
  dependsOn: [storage]
}

module gallery 'modules/gallery.bicep' = {
  params: {
    galleryName: galleryName(resourceGroup().id, name)
    location: location
    tags: allTags
    identityId: galleryIdentity.id
  }
  // The gallery's identity can read a package before a version names one.
  dependsOn: [roles]
}

module workspace 'modules/workspace.bicep' = {
  params: {
    name: name
    location: location
    tags: allTags
    retentionDays: logRetentionDays
    quotaGb: logQuotaGb
  }
}

module endpoints 'modules/private-endpoints.bicep' = [
  for region in privateRegions: {
    params: {
      name: name
      location: region.location
      tags: allTags
      accountName: storageAccountName(resourceGroup().id, name)
      collectLogs: collectLogs
    }
    dependsOn: [network, storage, workspace]
  }
]

// ----------------------------------------------------------------- outputs

@description('Name of the storage account: what REPRIEVE_STORE=azure:NAME names.')
output AZURE_STORAGE_ACCOUNT string = storageAccountName(resourceGroup().id, name)

@description('Container to upload packages to.')
output REPRIEVE_PACKAGES_CONTAINER string = packagesContainer

@description('The queues of the jobs, without their poison queues.')
output REPRIEVE_QUEUES string[] = queues

@description('Container of inputs, outputs and results.')
output REPRIEVE_CONTAINER string = container

@description('Name of the gallery.')
output AZURE_GALLERY_NAME string = gallery.outputs.name

@description('Name of the VM Application in the gallery.')
output REPRIEVE_APPLICATION string = applicationName

@description('Client id of the workers\' identity: AZURE_CLIENT_ID on the VMs.')
output REPRIEVE_WORKER_CLIENT_ID string = workerIdentity.properties.clientId

@description('Workspace id for log queries, a GUID.')
output AZURE_LOG_ANALYTICS_WORKSPACE_ID string = workspace.outputs.customerId

@description('The resource group of all.')
output AZURE_RESOURCE_GROUP string = resourceGroup().name

@description('Region of the storage account, the gallery and the workspace.')
output AZURE_LOCATION string = location
