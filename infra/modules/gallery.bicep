metadata name = 'Gallery'
metadata description = 'Holds the VM Application. It reads uploaded packages with an identity of its own, so no SAS stands in a resource and the account needs no shared key.'

import { applicationName, tagsType } from 'shared.bicep'

@description('Name of the gallery.')
param galleryName string

@description('Region of the gallery.')
param location string

@description('Tags of every resource.')
param tags tagsType

@description('Resource id of the identity that reads uploaded packages.')
param identityId string

resource gallery 'Microsoft.Compute/galleries@2025-03-03' = {
  name: galleryName
  location: location
  tags: tags
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    description: 'VM Applications of Reprieve.'
  }
}

resource application 'Microsoft.Compute/galleries/applications@2025-03-03' = {
  parent: gallery
  name: applicationName
  location: location
  tags: tags
  properties: {
    description: 'A worker that survives evictions, with its systemd units.'
    supportedOSType: 'Linux'
  }
}

@description('Name of the gallery.')
output name string = gallery.name
