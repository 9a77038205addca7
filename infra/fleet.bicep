metadata name = 'Reprieve, stage 2: the fleet'
metadata description = 'The version of the package, the scale sets or Compute Fleets, autoscale, alerts, workbook and budget. Runs after base.bicep and the upload of the package.'

targetScope = 'resourceGroup'

import {
  capacitiesType
  fleetType
  imageType
  tagsType
  assignmentName
  canMix
  escalationQueueName
  galleryName
  hasTwice
  haveOneProcessor
  inLowerCase
  isName
  isEmail
  isFirstOfMonth
  isLongBudget
  isOf
  isPrice
  isQueue
  isSetting
  isSize
  isSshKey
  isVersion
  nameIn
  nameOf
  packagesContainer
  partOf
  queueNames
  queueSetting
  shareOf
  storageAccountName
  workersSubnet
} from 'modules/shared.bicep'

// ----------------------------------------------------------------- parameters

@description('Name of the deployment; the same as in base.bicep.')
@minLength(2)
@maxLength(9)
param name string

@description('Region of the storage account, the gallery and the workspace; the same as in base.bicep.')
param location string = resourceGroup().location

@description('Tags of every resource.')
param tags tagsType = {}

@description('What happens on an eviction and who brings capacity back. steady: a fixed number; Azure restarts what it evicted. steady-fleet: a fixed number; a Compute Fleet replaces it. elastic: as many as there are messages, down to none. balanced: elastic above a base of regular VMs. swap: elastic, and jobs that Spot can\'t finish go to regular VMs.')
@allowed(['steady', 'steady-fleet', 'elastic', 'balanced', 'swap'])
param preset string

@description('Where Spot capacity is looked for. Workers pull, so work moves to wherever there is some.')
param fleets fleetType[]

@description('Instances of all fleets: the fixed number of steady and steady-fleet, the most of the other presets.')
@minValue(1)
@maxValue(1000)
param instances int

@description('Messages that make one more VM useful: the jobs that one VM has at a time, which are as many as its cores for each worker process.')
@minValue(1)
@maxValue(100000)
param jobsPerInstance int = 2

@description('preset: what the preset needs. Delete or Deallocate are only accepted where the preset works with them.')
@allowed(['preset', 'Delete', 'Deallocate'])
param evictionPolicy string = 'preset'

@description('steady: for how long Azure tries to restart an evicted VM, as an ISO 8601 duration. When it ends, an alert is raised.')
@allowed(['PT15M', 'PT30M', 'PT1H', 'PT2H'])
param restoreTimeout string = 'PT1H'

@description('balanced: regular VMs that are always there, of all fleets together.')
@minValue(0)
param baseInstances int = 0

@description('balanced: how many of the VMs above the base are regular, in percent. With all of them, no VM above the base would be Spot.')
@minValue(0)
@maxValue(99)
param regularPercentAboveBase int = 0

@description('swap: most regular VMs for escalated jobs.')
@minValue(1)
@maxValue(100)
param escalationInstances int = 2

@description('swap: size of the regular VMs. Empty: the first size of the first fleet.')
param escalationSize string = ''

@description('swap: after how many interruptions without progress a job moves to the regular VMs.')
@minValue(1)
param escalateAfter int = 3

@description('swap: how long ahead a regular VM is told that it will be deleted, as an ISO 8601 duration.')
@allowed(['PT5M', 'PT10M', 'PT15M'])
param terminateNotice string = 'PT10M'

@description('How one of several sizes is chosen: where capacity is likely to last, or the cheapest.')
@allowed(['CapacityOptimized', 'LowestPrice'])
param allocationStrategy string = 'CapacityOptimized'

@description('Instances that each autoscaled set has now, by its name. A deployment sets the number, and without it a set falls back to its minimum: infra/deploy reads and passes them.')
param currentCapacities capacitiesType = {}

@description('Version of the package, Major.Minor.Patch. A published version never changes.')
param applicationVersion string

@description('Name of the uploaded package in the container of packages.')
param packageBlob string = 'reprieve-worker/${applicationVersion}/worker.tgz'

@description('How running VMs get a new version: batch by batch, watching their health, or by hand.')
@allowed(['Rolling', 'Manual'])
param upgradeMode string = 'Rolling'

@description('How long a VM may be unhealthy before it is replaced, as an ISO 8601 duration.')
@allowed(['PT10M', 'PT20M', 'PT30M', 'PT60M', 'PT90M'])
param repairGracePeriod string = 'PT10M'

@description('Name of the queue; the same as in base.bicep.')
@minLength(3)
@maxLength(46)
param queue string = 'work'

@description('Number of queues that share the jobs; the same as in base.bicep.')
@minValue(1)
@maxValue(8)
param queueShards int = 1

@description('Container of inputs, outputs, results and checkpoints; the same as in base.bicep.')
param container string = 'reprieve'

@description('Worker processes of each VM. One with all cores is right for most jobs; several for jobs that use one core and can\'t share a process, and then the workspace gets the metrics of one of them.')
@minValue(1)
@maxValue(64)
param workersPerVm int = 1

@description('Further lines of /etc/reprieve/worker.env, each NAME=VALUE, such as REPRIEVE_LEASE=2m.')
param workerSettings string[] = []

@description('Name of the administrator of the VMs.')
@minLength(1)
@maxLength(32)
param adminUsername string = 'azureuser'

@description('Public SSH key of the administrator. Nothing comes in from outside, so it serves a Bastion only.')
param sshPublicKey string

@description('Image of the OS disk.')
param image imageType = {
  publisher: 'Canonical'
  offer: 'ubuntu-24_04-lts'
  sku: 'server'
  version: 'latest'
}

@description('Kind of the OS disk.')
@allowed(['StandardSSD_LRS', 'Premium_LRS', 'Standard_LRS'])
param osDiskSku string = 'StandardSSD_LRS'

@description('Size of the OS disk in GiB.')
@minValue(30)
@maxValue(2048)
param osDiskGb int = 30

@description('Whether VMs start with secure boot and a virtual TPM; all sizes must support it.')
param trustedLaunch bool = true

@description('Whether the host encrypts disks and caches. The subscription needs the feature Microsoft.Compute/EncryptionAtHost.')
param encryptionAtHost bool = false

@description('Whether the VMs send their logs to the workspace; the same as in base.bicep.')
param collectLogs bool = true

@description('Whether an Azure Policy associates each VM with the collection rule. An association of a Flexible set may not reach its VMs, and a Compute Fleet has none; the policy needs the right to assign policies and roles.')
param associateByPolicy bool = false

@description('Regions whose network is privateEndpoints in base.bicep. An empty text is the location of the deployment.')
param privateRegions string[] = []

@description('Who gets the alerts and the budget\'s warnings. Empty: alerts are raised in the portal only, and there is no budget.')
param contactEmails string[] = []

@description('Budget of the resource group, a month, in the currency of the bill.')
@minValue(1)
param monthlyBudget int = 100

@description('First day of the budget\'s first month, yyyy-MM-01. Azure refuses another one later: infra/deploy reads and passes it. Empty: this month.')
param budgetStart string = ''

@description('First day of this month. Leave it out.')
param thisMonth string = utcNow('yyyy-MM-01')

@description('Alert when a message has waited for longer, in minutes.')
@minValue(5)
param oldestMessageMinutes int = 120

@description('Alert on more evictions an hour.')
@minValue(1)
param evictionsPerHour int = 10

// ----------------------------------------------------------------- checks

// Whether VMs come and go with the messages, and what that means for evictions.
var autoscaled = contains(['elastic', 'balanced', 'swap'], preset)
var whyDeallocate = 'Azure restarts a deallocated VM; a deleted one lowers the number of VMs for good.'
var whyDelete = 'A deallocated VM still counts as an instance, so autoscale would not replace it, and its disk is billed.'
var policies = {
  steady: { default: 'Deallocate', works: ['Deallocate'], why: whyDeallocate }
  'steady-fleet': { default: 'Delete', works: ['Delete', 'Deallocate'], why: '' }
  elastic: { default: 'Delete', works: ['Delete'], why: whyDelete }
  balanced: { default: 'Delete', works: ['Delete'], why: whyDelete }
  swap: { default: 'Delete', works: ['Delete'], why: whyDelete }
}
var policy = evictionPolicy == 'preset' ? policies[preset].default : evictionPolicy

var resolved = map(fleets, fleet => union(fleet, { location: inLowerCase(fleet.location, location) }))
var locations = map(resolved, fleet => fleet.location)
var privateLocations = map(privateRegions, region => inLowerCase(region, location))
var shares = shareOf(fleets, length(fleets))
var fleetIndexes = range(0, length(fleets))
var spotParts = map(fleetIndexes, i => partOf(instances, fleets, i) - partOf(baseInstances, fleets, i))

// https://learn.microsoft.com/azure/virtual-machines/linux/faq lists the names that Azure refuses.
var takenNames = split(
  'root admin administrator operator reprieve user user1 user2 user3 user4 user5 test test1 test2 test3 admin1 admin2 a actuser adm aspnet backup console david guest john owner server sql support support_388945a0 sys',
  ' '
)
var fixedSettings = [
  'REPRIEVE_STORE'
  'REPRIEVE_QUEUE'
  'REPRIEVE_CONTAINER'
  'REPRIEVE_LISTEN'
  'REPRIEVE_STATE_DIR'
  'REPRIEVE_INSTANCES'
  'REPRIEVE_LOG_FORMAT'
  'REPRIEVE_ESCALATE_TO'
  'REPRIEVE_ESCALATE_AFTER'
]

var problems = concat(
  empty(fleets) ? ['fleets: the list is empty; name at least one region with sizes.'] : [],
  empty(fleets) || shares == 100 ? [] : ['fleets: the shares add up to ${shares} percent, not to 100.'],
  length(union(locations, [])) == length(locations)
    ? []
    : ['fleets: a region is listed twice; give its fleet more sizes instead.'],
  length(filter(fleets, fleet => !isPrice(fleet.maxPrice))) == 0
    ? []
    : ['fleets: maxPrice is "-1", or US dollars an hour with at most five decimals, such as "0.05".'],
  preset == 'steady' && length(filter(fleets, fleet => fleet.maxPrice != '-1')) > 0
    ? ['fleets: with steady, maxPrice must be "-1": Azure restarts only what was evicted for capacity, so a VM evicted for its price would be lost.']
    : [],
  length(filter(map(fleetIndexes, i => partOf(instances, fleets, i)), part => part < 1)) == 0
    ? []
    : ['instances: too few for the shares; each fleet needs at least one.'],
  contains(policies[preset].works, policy)
    ? []
    : ['evictionPolicy: ${preset} does not work with ${policy}. ${policies[preset].why}'],
  preset == 'balanced' || (baseInstances == 0 && regularPercentAboveBase == 0)
    ? []
    : ['baseInstances and regularPercentAboveBase: only the preset balanced has regular VMs among the Spot VMs.'],
  preset == 'steady' || restoreTimeout == 'PT1H' ? [] : ['restoreTimeout: only the preset steady restarts evicted VMs.'],
  preset == 'swap' || (escalationInstances == 2 && empty(escalationSize) && escalateAfter == 3 && terminateNotice == 'PT10M')
    ? []
    : ['escalationInstances, escalationSize, escalateAfter, terminateNotice: only the preset swap has regular VMs of its own.'],
  preset == 'balanced' && baseInstances < 1
    ? ['baseInstances: balanced needs a base of at least one regular VM; without one it is elastic.']
    : [],
  baseInstances < instances ? [] : ['baseInstances: must be smaller than instances; else no VM is Spot.'],
  preset == 'balanced' && length(filter(spotParts, part => part < 1)) > 0
    ? ['baseInstances: in one fleet the base leaves no room for a Spot VM; lower it or raise instances.']
    : [],
  autoscaled && queueShards > 4
    ? ['queueShards: autoscale has ten rules at most, which is enough for four queues. Use steady, or fewer queues.']
    : [],
  length(filter(fleets, fleet => hasTwice(fleet.sizes) || hasTwice(fleet.zones))) == 0
    ? []
    : ['fleets: a size or a zone is listed twice.'],
  length(filter(fleets, fleet => length(filter(fleet.zones, zone => !contains(['1', '2', '3'], zone))) > 0)) == 0
    ? []
    : ['fleets: zones are "1", "2" and "3".'],
  length(filter(fleets, fleet => length(filter(fleet.sizes, size => !isSize(size))) > 0)) == 0 && (empty(escalationSize) || isSize(escalationSize))
    ? []
    : ['fleets, escalationSize: a size is written as Azure does, such as Standard_D2as_v5.'],
  length(filter(fleets, fleet => !canMix(fleet.sizes))) == 0
    ? []
    : ['fleets: several sizes must be of the families A, B, D, E and F; an instance mix takes no others.'],
  haveOneProcessor(concat(flatten(map(fleets, fleet => fleet.sizes)), empty(escalationSize) ? [] : [escalationSize]))
    ? []
    : ['fleets, escalationSize: some sizes have ARM processors, and the package is for one kind.'],
  isVersion(applicationVersion)
    ? []
    : ['applicationVersion: use Major.Minor.Patch, such as 1.4.0, of numbers with at most nine digits.'],
  isSshKey(sshPublicKey)
    ? []
    : ['sshPublicKey: not a public SSH key that VMs take; it is one line, and begins with ssh-ed25519 or ssh-rsa.'],
  contains(takenNames, toLower(adminUsername))
    ? ['adminUsername: the name is taken on the image, by the worker, or by Azure; use another, such as azureuser.']
    : [],
  isOf(adminUsername, 'abcdefghijklmnopqrstuvwxyz0123456789_-') && !isOf(take(adminUsername, 1), '0123456789_-')
    ? []
    : ['adminUsername: use lower-case letters, digits, hyphens and underscores, and begin with a letter.'],
  contains(toLower('${image.publisher} ${image.offer}'), 'windows')
    ? ['image: the package and the scripts are for Linux; a Windows image can\'t run them.']
    : [],
  container == packagesContainer ? ['container: packages is the container of the packages; use another name.'] : [],
  isName(container) && isName(queue)
    ? []
    : ['queue, container: use lower-case letters, digits and single hyphens inside; Azure takes no other names.'],
  !isName(queue) || isQueue(queue) ? [] : ['queue: a name that ends with -poison is that of the queue of failed jobs.'],
  length(filter(workerSettings, line => !isSetting(line))) == 0
    ? []
    : ['workerSettings: each is one line NAME=VALUE, without a backslash at its end and without an open quote.'],
  length(filter(workerSettings, line => contains(fixedSettings, first(split(line, '='))))) == 0
    ? []
    : ['workerSettings: ${join(fixedSettings, ', ')} follow from other parameters, or the VM\'s health depends on them.'],
  length(filter(workerSettings, line => isLongBudget(line))) == 0
    ? []
    : ['workerSettings: REPRIEVE_BUDGET is whole seconds up to 20s, because the unit stops a worker after 25 seconds.'],
  !associateByPolicy || collectLogs
    ? []
    : ['associateByPolicy: there is no collection rule without collectLogs; set both, or neither.'],
  length(filter(privateLocations, region => !contains(locations, region))) == 0
    ? []
    : ['privateRegions: each is the region of a fleet.'],
  length(filter(contactEmails, email => !isEmail(email))) == 0
    ? []
    : ['contactEmails: each is one address, such as ops@example.com.'],
  empty(budgetStart) || isFirstOfMonth(budgetStart)
    ? []
    : ['budgetStart: the first day of a month, yyyy-MM-01.'],
  length(tags) > 40 ? ['tags: at most 40, because a resource has at most 50 with those that are added here.'] : [],
  isName(name)
    ? []
    : ['name: use lower-case letters, digits and single hyphens inside, because it is part of names that allow nothing else.']
)
// All problems at once. Whatever depends on the fleets does not exist while there is one.
var checkedFleets = empty(problems) ? resolved : fail(join(problems, ' '))

// ----------------------------------------------------------------- what stage 1 made

resource workerIdentity 'Microsoft.ManagedIdentity/userAssignedIdentities@2024-11-30' existing = {
  name: nameOf('id-worker', name)
}

resource account 'Microsoft.Storage/storageAccounts@2025-06-01' existing = {
  name: storageAccountName(resourceGroup().id, name)

  resource queueService 'queueServices' existing = {
    name: 'default'

    resource jobQueue 'queues' existing = {
      name: queueNames(queue, queueShards)[0]
    }
  }

  resource blobService 'blobServices' existing = {
    name: 'default'

    resource jobs 'containers' existing = {
      name: container
    }
  }
}

@description('Read into a tag of every set, so that no VM can start before the worker may renew leases: without this role the deployment fails.')
resource queueRole 'Microsoft.Authorization/roleAssignments@2022-04-01' existing = {
  scope: account::queueService::jobQueue
  name: assignmentName(account::queueService::jobQueue.id, workerIdentity.name, 'worker')
}

resource containerRole 'Microsoft.Authorization/roleAssignments@2022-04-01' existing = {
  scope: account::blobService::jobs
  name: assignmentName(account::blobService::jobs.id, workerIdentity.name, 'worker')
}

resource virtualNetwork 'Microsoft.Network/virtualNetworks@2025-05-01' existing = [
  for fleet in checkedFleets: {
    name: nameIn('vnet', name, fleet.location)
  }
]

resource workspace 'Microsoft.OperationalInsights/workspaces@2026-03-01' existing = {
  name: nameOf('log', name)
}

resource collectionRule 'Microsoft.Insights/dataCollectionRules@2024-03-11' existing = {
  name: nameOf('dcr', name)
}

// ----------------------------------------------------------------- settings of the workers

var allTags = union(tags, { application: 'reprieve', deployment: name, preset: preset })
var setTags = union(allTags, {
  'queue-role-of': queueRole.properties.principalId
  'container-role-of': containerRole.properties.principalId
  'application-version': applicationVersion
})
var queues = queueNames(queue, queueShards)
var escalationQueue = escalationQueueName(queue)

// Which cloud, where it is not the public one.
var cloud = environment().name == 'AzureCloud' ? '' : '?endpoint_suffix=${environment().suffixes.storage}'

// The first reader of these lines is systemd, so values are not quoted and nothing is expanded.
var commonSettings = concat(
  [
    'REPRIEVE_STORE=azure:${account.name}${cloud}'
    'REPRIEVE_CONTAINER=${container}'
    'AZURE_CLIENT_ID=${workerIdentity.properties.clientId}'
    'REPRIEVE_LISTEN=127.0.0.1:9090'
    'REPRIEVE_STATE_DIR=/run/reprieve'
    'REPRIEVE_CONCURRENCY=auto'
    'REPRIEVE_LOG_FORMAT=json'
    'REPRIEVE_INSTANCES=${workersPerVm}'
    // Large buffers go back to the system when they are freed.
    'MALLOC_MMAP_THRESHOLD_=1048576'
    'MALLOC_TRIM_THRESHOLD_=1048576'
  ],
  workerSettings
)
var spotSettings = concat(
  commonSettings,
  ['REPRIEVE_QUEUE=${queueSetting(queue, queueShards)}'],
  preset == 'swap' ? ['REPRIEVE_ESCALATE_TO=${escalationQueue}', 'REPRIEVE_ESCALATE_AFTER=${escalateAfter}'] : []
)
var regularSettings = concat(commonSettings, ['REPRIEVE_QUEUE=${escalationQueue}'])

var cloudInit = replace(loadTextContent('cloud-init.yaml'), 'REPORT_BASE64', loadFileAsBase64('vm/report.py'))
var spotData = base64(replace(cloudInit, 'WORKER_ENV_BASE64', base64('${join(spotSettings, '\n')}\n')))
var regularData = base64(replace(cloudInit, 'WORKER_ENV_BASE64', base64('${join(regularSettings, '\n')}\n')))

// ----------------------------------------------------------------- the package

module version 'modules/application-version.bicep' = {
  params: {
    galleryName: galleryName(resourceGroup().id, name)
    location: inLowerCase(location, '')
    tags: allTags
    version: applicationVersion
    packageUrl: '${account.properties.primaryEndpoints.blob}${packagesContainer}/${packageBlob}'
    regions: map(checkedFleets, fleet => fleet.location)
  }
}

// ----------------------------------------------------------------- the fleets

var setNames = map(resolved, fleet => nameIn('vmss', name, fleet.location))
var maxima = map(fleetIndexes, i => partOf(instances, resolved, i))
var minima = map(fleetIndexes, i => preset == 'balanced' ? partOf(baseInstances, resolved, i) : 0)

module spotSet 'modules/scale-set.bicep' = [
  for (fleet, i) in checkedFleets: if (preset != 'steady-fleet') {
    params: {
      name: setNames[i]
      location: fleet.location
      tags: setTags
      sizes: fleet.sizes
      allocationStrategy: allocationStrategy
      zones: fleet.zones
      capacity: autoscaled ? max(currentCapacities[?setNames[i]] ?? 0, minima[i]) : maxima[i]
      priority: 'Spot'
      evictionPolicy: policy
      maxPrice: fleet.maxPrice
      // Autoscale would switch it off, so only a set with a fixed number has it.
      restoreTimeout: preset == 'steady' ? restoreTimeout : ''
      baseRegularInstances: preset == 'balanced' ? minima[i] : -1
      regularPercentAboveBase: regularPercentAboveBase
      terminateNotice: ''
      repairGracePeriod: repairGracePeriod
      upgradeMode: upgradeMode
      profile: {
        prefix: name
        subnetId: '${virtualNetwork[i].id}/subnets/${workersSubnet}'
        image: image
        osDiskSku: osDiskSku
        osDiskGb: osDiskGb
        trustedLaunch: trustedLaunch
        encryptionAtHost: encryptionAtHost
        adminUsername: adminUsername
        sshPublicKey: sshPublicKey
        customData: spotData
        applicationVersionId: version.outputs.id
        workerIdentityId: workerIdentity.id
        collectLogs: collectLogs
      }
      workerIdentityId: workerIdentity.id
      collectionRuleId: collectLogs ? collectionRule.id : ''
      collectionEndpointId: collectLogs && contains(privateLocations, fleet.location)
        ? resourceId('Microsoft.Insights/dataCollectionEndpoints', nameIn('dce', name, fleet.location))
        : ''
    }
  }
]

module computeFleet 'modules/compute-fleet.bicep' = [
  for (fleet, i) in checkedFleets: if (preset == 'steady-fleet') {
    params: {
      name: nameIn('fleet', name, fleet.location)
      location: fleet.location
      tags: setTags
      sizes: fleet.sizes
      zones: fleet.zones
      capacity: maxima[i]
      evictionPolicy: policy
      maxPrice: fleet.maxPrice
      profile: {
        prefix: name
        subnetId: '${virtualNetwork[i].id}/subnets/${workersSubnet}'
        image: image
        osDiskSku: osDiskSku
        osDiskGb: osDiskGb
        trustedLaunch: trustedLaunch
        encryptionAtHost: encryptionAtHost
        adminUsername: adminUsername
        sshPublicKey: sshPublicKey
        customData: spotData
        applicationVersionId: version.outputs.id
        workerIdentityId: workerIdentity.id
        collectLogs: collectLogs
      }
      workerIdentityId: workerIdentity.id
    }
  }
]

module spotScale 'modules/autoscale.bicep' = [
  for (fleet, i) in checkedFleets: if (autoscaled) {
    params: {
      name: nameIn('autoscale', name, fleet.location)
      location: fleet.location
      tags: allTags
      scaleSetId: spotSet[i]!.outputs.id
      storageAccountId: account.id
      storageLocation: location
      queues: queues
      minimum: minima[i]
      maximum: maxima[i]
      jobsPerInstance: jobsPerInstance
      sharePercent: fleet.sharePercent
      workspaceId: workspace.id
    }
  }
]

// ----------------------------------------------------------------- swap: regular VMs for what Spot does not finish

var regularSetName = nameOf('vmss-regular', name)

module regularSet 'modules/scale-set.bicep' = if (preset == 'swap') {
  params: {
    name: regularSetName
    location: checkedFleets[0].location
    tags: setTags
    sizes: [empty(escalationSize) ? checkedFleets[0].sizes[0] : escalationSize]
    allocationStrategy: allocationStrategy
    zones: checkedFleets[0].zones
    capacity: currentCapacities[?regularSetName] ?? 0
    priority: 'Regular'
    evictionPolicy: 'Delete'
    maxPrice: '-1'
    restoreTimeout: ''
    baseRegularInstances: -1
    regularPercentAboveBase: 0
    terminateNotice: terminateNotice
    repairGracePeriod: repairGracePeriod
    upgradeMode: upgradeMode
    profile: {
      prefix: name
      subnetId: '${virtualNetwork[0].id}/subnets/${workersSubnet}'
      image: image
      osDiskSku: osDiskSku
      osDiskGb: osDiskGb
      trustedLaunch: trustedLaunch
      encryptionAtHost: encryptionAtHost
      adminUsername: adminUsername
      sshPublicKey: sshPublicKey
      customData: regularData
      applicationVersionId: version.outputs.id
      workerIdentityId: workerIdentity.id
      collectLogs: collectLogs
    }
    workerIdentityId: workerIdentity.id
    collectionRuleId: collectLogs ? collectionRule.id : ''
    collectionEndpointId: collectLogs && contains(privateLocations, checkedFleets[0].location)
      ? resourceId('Microsoft.Insights/dataCollectionEndpoints', nameIn('dce', name, checkedFleets[0].location))
      : ''
  }
}

module regularScale 'modules/autoscale.bicep' = if (preset == 'swap') {
  params: {
    name: nameOf('autoscale-regular', name)
    location: checkedFleets[0].location
    tags: allTags
    scaleSetId: regularSet!.outputs.id
    storageAccountId: account.id
    storageLocation: location
    queues: [escalationQueue]
    minimum: 0
    maximum: escalationInstances
    jobsPerInstance: jobsPerInstance
    sharePercent: 100
    workspaceId: workspace.id
  }
}

// ----------------------------------------------------------------- monitoring

module association 'modules/log-policy.bicep' = if (collectLogs && associateByPolicy) {
  params: {
    name: name
    location: location
    tags: allTags
    collectionRuleId: collectionRule.id
    // A fleet in one region at most has private endpoints.
    collectionEndpointId: empty(privateLocations)
      ? ''
      : resourceId('Microsoft.Insights/dataCollectionEndpoints', nameIn('dce', name, privateLocations[0]))
  }
}

module monitoring 'modules/monitoring.bicep' = {
  params: {
    name: name
    location: location
    tags: allTags
    workspaceId: workspace.id
    collectLogs: collectLogs
    autoscaled: autoscaled
    // A fixed number of VMs must be there; the others may all be gone.
    expectedVms: autoscaled ? 0 : instances
    restoreTimeout: restoreTimeout
    contactEmails: contactEmails
    monthlyBudget: monthlyBudget
    budgetStart: empty(budgetStart) ? thisMonth : budgetStart
    oldestMessageMinutes: oldestMessageMinutes
    evictionsPerHour: evictionsPerHour
  }
  dependsOn: [spotScale, regularScale]
}

// ----------------------------------------------------------------- outputs

@description('Name of the storage account: what REPRIEVE_STORE=azure:NAME names.')
output AZURE_STORAGE_ACCOUNT string = account.name

@description('The queue as --queue takes it.')
output REPRIEVE_QUEUE string = queueSetting(queue, queueShards)

@description('Version of the package that new VMs get.')
output REPRIEVE_APPLICATION_VERSION string = applicationVersion

@description('The scale sets, for az vmss. With steady-fleet the fleets make and name them.')
output REPRIEVE_SCALE_SETS string[] = preset == 'steady-fleet'
  ? []
  : concat(setNames, preset == 'swap' ? [regularSetName] : [])

@description('The Compute Fleets.')
output REPRIEVE_COMPUTE_FLEETS string[] = preset == 'steady-fleet'
  ? map(resolved, fleet => nameIn('fleet', name, fleet.location))
  : []

@description('The resource group of all.')
output AZURE_RESOURCE_GROUP string = resourceGroup().name
