using '../../base.bicep'

// Service endpoints only: nothing leaves the network but requests to storage, so no logs either.
param name = 'closed'
param regions = [{ location: '', addressPrefix: '10.64.0.0/16', network: 'serviceEndpoints' }]
param collectLogs = false
