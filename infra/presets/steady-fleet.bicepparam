using '../fleet.bicep'

// A fixed number of Spot VMs, kept by an Azure Compute Fleet that replaces what was evicted from several sizes.
param preset = 'steady-fleet'
param instances = 4
// A Compute Fleet has no association of its own: a policy makes one for each VM, and needs the right to assign policies.
param associateByPolicy = true

// What all presets share. infra/deploy and azd set the environment variables.
var regions = loadJsonContent('../fleets.json')

param name = readEnvironmentVariable('REPRIEVE_NAME', 'demo')
param tags = { 'azd-env-name': readEnvironmentVariable('AZURE_ENV_NAME', 'demo') }
param fleets = map(regions, region => {
  location: region.location
  sizes: region.sizes
  zones: region.zones
  sharePercent: region.sharePercent
  maxPrice: region.maxPrice
})
param privateRegions = map(filter(regions, region => region.network == 'privateEndpoints'), region => region.location)
// Service endpoints reach storage only, so with them there is nowhere to send logs; base.bicepparam says the same.
param collectLogs = empty(filter(regions, region => region.network == 'serviceEndpoints'))
param applicationVersion = readEnvironmentVariable('REPRIEVE_APPLICATION_VERSION', '')
param sshPublicKey = readEnvironmentVariable('REPRIEVE_SSH_PUBLIC_KEY', '')
param contactEmails = filter(split(readEnvironmentVariable('REPRIEVE_CONTACT_EMAILS', ''), ','), email => !empty(email))
param budgetStart = readEnvironmentVariable('REPRIEVE_BUDGET_START', '')
param currentCapacities = json(readEnvironmentVariable('REPRIEVE_CURRENT_CAPACITIES', '{}'))
