using '../../fleet.bicep'

// On base-regions.bicepparam: a size of its own in each region, one with a maximum price, and two queues.
param preset = 'elastic'
param name = 'two'
param fleets = [
  { location: 'westeurope', sizes: ['Standard_D4as_v5'], zones: [], sharePercent: 70, maxPrice: '0.05125' }
  { location: 'northeurope', sizes: ['Standard_F4s_v2', 'Standard_D4s_v5'], zones: ['1', '2'], sharePercent: 30, maxPrice: '-1' }
]
param privateRegions = ['northeurope']
param instances = 25
param queue = 'frames'
param queueShards = 2
param currentCapacities = { 'vmss-two-westeurope': 7 }
param workersPerVm = 4
param workerSettings = ['REPRIEVE_LEASE=2m']
param applicationVersion = '2.0.10'
param sshPublicKey = readEnvironmentVariable('REPRIEVE_SSH_PUBLIC_KEY', '')
param contactEmails = []
