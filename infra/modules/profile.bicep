metadata name = 'Profile of a VM'
metadata description = 'What every worker VM is, in a scale set and in a Compute Fleet. Both take the same object.'

import { imageType } from 'shared.bicep'

@export()
@description('What differs between deployments.')
type profileType = {
  @description('Prefix of the VMs\' host names, up to 9 characters.')
  prefix: string

  @description('Resource id of the subnet.')
  subnetId: string

  @description('Image of the OS disk.')
  image: imageType

  @description('Kind of the OS disk.')
  osDiskSku: string

  @description('Size of the OS disk in GiB.')
  osDiskGb: int

  @description('Whether VMs start with secure boot and a virtual TPM.')
  trustedLaunch: bool

  @description('Whether the host encrypts disks and caches.')
  encryptionAtHost: bool

  @description('Name of the administrator.')
  adminUsername: string

  @description('Public SSH key of the administrator.')
  sshPublicKey: string

  @description('cloud-init, base64.')
  customData: string

  @description('Resource id of the version of the VM Application.')
  applicationVersionId: string

  @description('Resource id of the workers\' identity.')
  workerIdentityId: string

  @description('Whether the VM sends its logs to the workspace.')
  collectLogs: bool
}

@export()
@description('Says every few seconds whether the VM, not the process, should be replaced. Healthy never depends on storage, and a draining worker stays healthy.')
func healthExtension(port int, path string) object => {
  name: 'health'
  properties: {
    publisher: 'Microsoft.ManagedServices'
    type: 'ApplicationHealthLinux'
    // 2.0 asks for rich states: a body with ApplicationHealthState.
    typeHandlerVersion: '2.0'
    autoUpgradeMinorVersion: true
    enableAutomaticUpgrade: true
    settings: {
      protocol: 'http'
      port: port
      requestPath: path
      // interval times probes must not exceed 240 s.
      intervalInSeconds: 10
      numberOfProbes: 3
      // Time for the first boot and the installation of the package, in seconds.
      gracePeriod: 900
    }
  }
}

@export()
@description('The agent that sends syslog to the workspace.')
func monitorExtension(workerIdentityId string) object => {
  name: 'monitor'
  properties: {
    publisher: 'Microsoft.Azure.Monitor'
    type: 'AzureMonitorLinuxAgent'
    typeHandlerVersion: '1.0'
    autoUpgradeMinorVersion: true
    enableAutomaticUpgrade: true
    settings: {
      authentication: {
        managedIdentity: {
          'identifier-name': 'mi_res_id'
          'identifier-value': workerIdentityId
        }
      }
    }
  }
}

@export()
@description('Profile of a VM, without its priority. A Flexible set knows another version of the network\'s interface than a Compute Fleet.')
func vmProfile(of profileType, networkApiVersion string, port int, path string) object => {
  osProfile: {
    computerNamePrefix: of.prefix
    adminUsername: of.adminUsername
    customData: of.customData
    linuxConfiguration: {
      disablePasswordAuthentication: true
      provisionVMAgent: true
      ssh: {
        publicKeys: [{ path: '/home/${of.adminUsername}/.ssh/authorized_keys', keyData: of.sshPublicKey }]
      }
    }
  }
  storageProfile: {
    imageReference: of.image
    osDisk: {
      createOption: 'FromImage'
      caching: 'ReadWrite'
      deleteOption: 'Delete'
      diskSizeGB: of.osDiskGb
      managedDisk: { storageAccountType: of.osDiskSku }
    }
  }
  networkProfile: {
    // Both require it.
    networkApiVersion: networkApiVersion
    networkInterfaceConfigurations: [
      {
        name: 'nic'
        properties: {
          primary: true
          deleteOption: 'Delete'
          enableIPForwarding: false
          // No public address, and no rule that would let anyone in: the subnet has the security group.
          ipConfigurations: [
            {
              name: 'private'
              properties: { primary: true, privateIPAddressVersion: 'IPv4', subnet: { id: of.subnetId } }
            }
          ]
        }
      }
    ]
  }
  securityProfile: {
    encryptionAtHost: of.encryptionAtHost
    ...(of.trustedLaunch
      ? { securityType: 'TrustedLaunch', uefiSettings: { secureBootEnabled: true, vTpmEnabled: true } }
      : {})
  }
  diagnosticsProfile: {
    // Without a storage account of its own: Azure keeps the console's output.
    bootDiagnostics: { enabled: true }
  }
  extensionProfile: {
    extensions: of.collectLogs
      ? [healthExtension(port, path), monitorExtension(of.workerIdentityId)]
      : [healthExtension(port, path)]
  }
  applicationProfile: {
    galleryApplications: [
      {
        packageReferenceId: of.applicationVersionId
        order: 1
        // A failed install has no healthy endpoint, so repairs replace the VM. As a deployment failure they
        // would skip it.
        treatFailureAsDeploymentFailure: false
        enableAutomaticUpgrade: false
      }
    ]
  }
}
