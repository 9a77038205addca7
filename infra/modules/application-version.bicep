metadata name = 'Version of the package'
metadata description = 'A version of the VM Application, copied to every region that has a fleet.'

import { applicationName, packageFileName, tagsType } from 'shared.bicep'

@description('Name of the gallery.')
param galleryName string

@description('Region of the gallery.')
param location string

@description('Tags of the version.')
param tags tagsType

@description('Version, Major.Minor.Patch.')
param version string

@description('URL of the uploaded package, without a SAS: the gallery signs in with its own identity.')
param packageUrl string

@description('Regions that get a copy.')
param regions string[]

resource gallery 'Microsoft.Compute/galleries@2025-03-03' existing = {
  name: galleryName

  resource application 'applications' existing = {
    name: applicationName
  }
}

resource applicationVersion 'Microsoft.Compute/galleries/applications/versions@2025-03-03' = {
  parent: gallery::application
  name: version
  location: location
  tags: tags
  properties: {
    publishingProfile: {
      source: { mediaLink: packageUrl }
      manageActions: {
        install: loadTextContent('../package/commands/install.sh')
        update: loadTextContent('../package/commands/update.sh')
        remove: loadTextContent('../package/commands/remove.sh')
      }
      settings: {
        // Without it the file is named after the application, without an extension.
        packageFileName: packageFileName
        scriptBehaviorAfterReboot: 'Rerun'
      }
      replicaCount: 1
      storageAccountType: 'Standard_LRS'
      // Sets name their version; "latest" is never asked for.
      excludeFromLatest: false
      // The version's own region must be among them.
      targetRegions: map(union([location], regions), region => {
        name: region
        regionalReplicaCount: 1
        storageAccountType: 'Standard_LRS'
      })
    }
    safetyProfile: { allowDeletionOfReplicatedLocations: true }
  }
}

@description('Resource id of the version.')
output id string = applicationVersion.id
