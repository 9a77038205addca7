metadata name = 'Network of one region'
metadata description = 'A virtual network whose VMs have no public address, accept no connection, and reach what their path allows.'

import { pathType, tagsType, nameIn, workersSubnet } from 'shared.bicep'

@description('Name of the deployment.')
param name string

@description('The region.')
param location string

@description('Tags of every resource.')
param tags tagsType

@description('IPv4 range of the virtual network, a /16.')
param addressPrefix string

@description('How the VMs reach storage and the workspace.')
param network pathType

@description('Private IPv4 range that may open SSH connections. Empty: none.')
param sshSourcePrefix string

var usesNat = network == 'natGateway'

resource securityGroup 'Microsoft.Network/networkSecurityGroups@2025-05-01' = {
  name: nameIn('nsg', name, location)
  location: location
  tags: tags
  properties: {
    securityRules: concat(
      empty(sshSourcePrefix)
        ? []
        : [
            {
              name: 'ssh-from-private-range'
              properties: {
                description: 'SSH from a private range that the operator named.'
                priority: 1000
                direction: 'Inbound'
                access: 'Allow'
                protocol: 'Tcp'
                sourceAddressPrefix: sshSourcePrefix
                sourcePortRange: '*'
                destinationAddressPrefix: '*'
                destinationPortRange: '22'
              }
            }
          ],
      [
        {
          name: 'nothing-else-comes-in'
          properties: {
            // The default rules would let VMs of the network connect to each other. Workers never do.
            description: 'Workers pull their jobs; nobody connects to them.'
            priority: 4096
            direction: 'Inbound'
            access: 'Deny'
            protocol: '*'
            sourceAddressPrefix: '*'
            sourcePortRange: '*'
            destinationAddressPrefix: '*'
            destinationPortRange: '*'
          }
        }
      ]
    )
  }
}

@description('The address that the VMs share for outbound connections. It belongs to the NAT gateway, which accepts no inbound connection.')
resource natAddress 'Microsoft.Network/publicIPAddresses@2025-05-01' = if (usesNat) {
  name: nameIn('pip-nat', name, location)
  location: location
  tags: tags
  sku: { name: 'Standard', tier: 'Regional' }
  properties: {
    publicIPAllocationMethod: 'Static'
    publicIPAddressVersion: 'IPv4'
  }
}

resource natGateway 'Microsoft.Network/natGateways@2025-05-01' = if (usesNat) {
  name: nameIn('nat', name, location)
  location: location
  tags: tags
  sku: { name: 'Standard' }
  properties: {
    idleTimeoutInMinutes: 4
    publicIpAddresses: [{ id: natAddress.id }]
  }
}

resource virtualNetwork 'Microsoft.Network/virtualNetworks@2025-05-01' = {
  name: nameIn('vnet', name, location)
  location: location
  tags: tags
  properties: {
    addressSpace: { addressPrefixes: [addressPrefix] }
    // Subnets are part of the network, not resources of their own: a second deployment would delete those
    // that it does not name.
    subnets: [
      {
        name: workersSubnet
        properties: {
          addressPrefix: cidrSubnet(addressPrefix, 17, 0)
          networkSecurityGroup: { id: securityGroup.id }
          // Flexible sets have no outbound access by default; said here so that it is the same in every
          // region and year.
          defaultOutboundAccess: false
          natGateway: usesNat ? { id: natGateway.id } : null
          // The global endpoint also reaches an account in another region. Storage does not go by the NAT
          // gateway, which would bill each byte.
          serviceEndpoints: network == 'privateEndpoints' ? [] : [{ service: 'Microsoft.Storage.Global' }]
        }
      }
      {
        name: 'endpoints'
        properties: {
          addressPrefix: cidrSubnet(addressPrefix, 24, 128)
          networkSecurityGroup: { id: securityGroup.id }
          defaultOutboundAccess: false
          // Else the security group would also keep the workers from the private endpoints.
          privateEndpointNetworkPolicies: 'Disabled'
        }
      }
    ]
  }
}

@description('Subnet that the storage firewall has to let in; empty where the path is private.')
output storageSubnetId string = network == 'privateEndpoints' ? '' : '${virtualNetwork.id}/subnets/${workersSubnet}'
