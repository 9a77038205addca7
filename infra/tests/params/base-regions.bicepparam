using '../../base.bicep'

// Two regions, one of them private, two queues, a custom role, producers and SSH: what no preset uses.
param name = 'two'
param regions = [
  { location: 'westeurope', addressPrefix: '10.64.0.0/16', network: 'natGateway' }
  { location: 'northeurope', addressPrefix: '10.65.0.0/16', network: 'privateEndpoints' }
]
param queue = 'frames'
param queueShards = 2
param workerRole = 'custom'
param storageSku = 'Standard_ZRS'
param producers = [{ principalId: '00000000-0000-0000-0000-0000000000bb', principalType: 'Group' }]
param sshSourcePrefix = '10.0.0.0/26'
