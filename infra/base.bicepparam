using 'base.bicep'

// fleets.json names the regions of both stages. infra/deploy and azd set the environment variables.
var fleets = loadJsonContent('fleets.json')

param name = readEnvironmentVariable('REPRIEVE_NAME', 'demo')
param tags = { 'azd-env-name': readEnvironmentVariable('AZURE_ENV_NAME', 'demo') }
param regions = map(fleets, fleet => {
  location: fleet.location
  addressPrefix: fleet.addressPrefix
  network: fleet.network
})
// Service endpoints reach storage only, so with them there is nowhere to send logs.
param collectLogs = empty(filter(fleets, fleet => fleet.network == 'serviceEndpoints'))
// Costs nothing while it is empty, so that every preset can be deployed on this stage.
param escalation = true
param uploaderPrincipalId = readEnvironmentVariable('AZURE_PRINCIPAL_ID', '')
param uploaderPrincipalType = readEnvironmentVariable('AZURE_PRINCIPAL_TYPE', 'User')
// Who deploys a fleet may also send jobs to it.
param producers = empty(readEnvironmentVariable('AZURE_PRINCIPAL_ID', ''))
  ? []
  : [
      {
        principalId: readEnvironmentVariable('AZURE_PRINCIPAL_ID', '')
        principalType: readEnvironmentVariable('AZURE_PRINCIPAL_TYPE', 'User')
      }
    ]
// Where the package is uploaded from: an address, or several with commas.
param allowedIpRanges = filter(split(readEnvironmentVariable('REPRIEVE_ALLOWED_IPS', ''), ','), address => !empty(address))
