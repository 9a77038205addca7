metadata name = 'Names, types and checks of both stages'
metadata description = 'base.bicep and fleet.bicep derive the same names from here, so that nothing has to be passed from one to the other.'

// ----------------------------------------------------------------- types

@export()
@description('How the VMs of a region reach storage and the workspace.')
type pathType = 'natGateway' | 'serviceEndpoints' | 'privateEndpoints'

@export()
@description('A region with a virtual network for workers.')
type regionType = {
  @description('Name of the region, such as westeurope. Empty: the location of the deployment.')
  location: string

  @description('IPv4 range of the virtual network, a /16. Regions must not share one, so that they can be peered.')
  addressPrefix: string

  @description('natGateway: storage by a service endpoint, all else by a NAT gateway. serviceEndpoints: storage only; free, but logs can\'t leave. privateEndpoints: storage and workspace by private addresses, nothing else.')
  network: pathType
}

@export()
@description('Spot capacity in a region: one scale set, or one Compute Fleet.')
type fleetType = {
  @description('Name of the region, such as westeurope. Empty: the location of the deployment.')
  location: string

  @description('VM sizes, one to five. Several sizes need the families A, B, D, E and F, one architecture, and the same local disk, disk interface and security; an OS disk on the VM\'s own disk can\'t be had with them.')
  @minLength(1)
  @maxLength(5)
  sizes: string[]

  @description('Availability zones, such as ["1", "2", "3"]. Empty: none, for regions or sizes without zones.')
  zones: string[]

  @description('Share of the instances, in percent. The shares of all fleets add up to 100.')
  @minValue(1)
  @maxValue(100)
  sharePercent: int

  @description('Highest price of a VM, in US dollars an hour with at most five decimals, as a string because Bicep has no decimals: "0.05". "-1": up to the regular price, and no eviction for the price.')
  maxPrice: string
}

@export()
@description('Someone who gets a role.')
type principalType = {
  @description('Object id in Microsoft Entra ID, a GUID.')
  principalId: string

  @description('What the object id belongs to.')
  principalType: 'User' | 'Group' | 'ServicePrincipal'
}

@export()
@description('Image of the OS disk, with systemd 249 or later, glibc 2.35 or later, Python 3 and rsyslog.')
type imageType = {
  @description('Publisher, such as Canonical.')
  publisher: string

  @description('Offer, such as ubuntu-24_04-lts.')
  offer: string

  @description('SKU, such as server.')
  sku: string

  @description('Version, or latest.')
  version: string
}

@export()
@description('Tags: names and values.')
type tagsType = {
  @description('Value of a tag.')
  *: string
}

@export()
@description('Instances by name of a scale set.')
type capacitiesType = {
  @description('Instances that the scale set has now.')
  *: int
}

// ----------------------------------------------------------------- roles

@export()
@description('Storage Queue Data Contributor. A lease is renewed by an update of its message, which the role Message Processor does not allow.')
var queueDataContributor = '974c5e8b-45b9-4653-ba55-5f855dd0fb88'

@export()
@description('Storage Queue Data Message Sender: may send, and nothing else.')
var queueDataMessageSender = 'c6a89b2d-59bc-44d0-9896-0f6e12d7b80a'

@export()
@description('Storage Queue Data Reader: may peek and count.')
var queueDataReader = '19e7f393-937e-4f77-808e-94535e297925'

@export()
@description('Storage Blob Data Contributor.')
var blobDataContributor = 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'

// ----------------------------------------------------------------- names

@export()
@description('Name of the VM Application.')
var applicationName = 'reprieve-worker'

@export()
@description('File name of the package on the VM; the commands of the application look for it.')
var packageFileName = 'worker.tgz'

@export()
@description('Container of the uploaded packages.')
var packagesContainer = 'packages'

@export()
@description('Name of the subnet of the workers.')
var workersSubnet = 'workers'

@export()
@description('Where the worker answers; the Application Health extension asks localhost.')
var healthPort = 9090

@export()
@description('Path of the rich health states.')
var healthPath = '/healthz'

@export()
@description('Name of the storage account.')
func storageAccountName(groupId string, name string) string =>
  take('st${replace(name, '-', '')}${uniqueString(groupId, name)}', 24)

@export()
@description('Name of the gallery, which may have no hyphens.')
func galleryName(groupId string, name string) string =>
  'gal_${replace(name, '-', '_')}_${take(uniqueString(groupId, name), 8)}'

@export()
@description('Name of a resource of the resource group: what it is, and the name of the deployment.')
func nameOf(kind string, name string) string => '${kind}-${name}'

@export()
@description('Name of a resource that exists once in each region.')
func nameIn(kind string, name string, location string) string => '${kind}-${name}-${location}'

@export()
@description('Name of a region as Azure writes it, such as westeurope for West Europe; an empty one is another one.')
func inLowerCase(location string, otherwise string) string =>
  toLower(replace(empty(location) ? otherwise : location, ' ', ''))

@export()
@description('Names of the queues: the queue itself, or its shards.')
func queueNames(queue string, shards int) string[] =>
  shards == 1 ? [queue] : map(range(0, shards), i => '${queue}-${i}')

@export()
@description('The queues as the worker\'s REPRIEVE_QUEUE names them.')
func queueSetting(queue string, shards int) string => shards == 1 ? queue : '${queue}-{0..${shards - 1}}'

@export()
@description('Name of the queue of the jobs that Spot VMs did not finish; regular VMs serve it.')
func escalationQueueName(queue string) string => '${queue}-escalated'

@export()
@description('Name of a role assignment. It has no principal in it, which is not known before the deployment.')
func assignmentName(scopeId string, who string, what string) string => guid(scopeId, who, what)

// ----------------------------------------------------------------- checks

@export()
@description('The characters of a text.')
func characters(text string) string[] => map(range(0, length(text)), i => substring(text, i, 1))

@export()
@description('Whether a text has digits only.')
func isDigits(text string) bool => length(filter(characters(text), c => !contains('0123456789', c))) == 0

@export()
@description('Whether a text is a whole number without a needless zero in front, which JSON would refuse.')
func isWhole(text string) bool => !empty(text) && isDigits(text) && (text == '0' || !startsWith(text, '0'))

@export()
@description('Whether a text has characters of an alphabet only.')
func isOf(text string, alphabet string) bool =>
  length(filter(characters(text), c => !contains(alphabet, c))) == 0

@export()
@description('Whether a text has lower-case letters, digits and single hyphens inside: the names of queues and containers.')
func isName(text string) bool =>
  isOf(text, 'abcdefghijklmnopqrstuvwxyz0123456789-') && !startsWith(text, '-') && !endsWith(text, '-') && !contains(text, '--')

@export()
@description('Whether a text is a name of a queue of jobs: none that ends like the queues of failed ones, whose jobs a worker would run.')
func isQueue(text string) bool => isName(text) && !endsWith(text, '-poison')

@export()
@description('Whether a text is an e-mail address, as far as a person would see.')
func isEmail(text string) bool =>
  length(split(text, '@')) == 2 && !empty(first(split(text, '@'))) && contains(last(split(text, '@')), '.') && isOf(
    toLower(text),
    'abcdefghijklmnopqrstuvwxyz0123456789.!#$%&\'*+/=?^_`{|}~-@'
  ) && !startsWith(last(split(text, '@')), '.') && !endsWith(text, '.')

@export()
@description('Whether a text is the first day of a month, yyyy-MM-01.')
func isFirstOfMonth(text string) bool =>
  length(text) == 10 && endsWith(text, '-01') && isDigits(take(text, 4)) && contains(
    split('-01- -02- -03- -04- -05- -06- -07- -08- -09- -10- -11- -12-', ' '),
    take(skip(text, 4), 4)
  )

@export()
@description('Whether a list has a text twice, in any spelling.')
func hasTwice(list string[]) bool => length(union(map(list, text => toLower(text)), [])) != length(list)

@export()
@description('Whether a text is a whole number up to a limit.')
func isUpTo(text string, limit int) bool => isWhole(text) && length(text) <= 3 && int(isWhole(text) ? take(text, 3) : '0') <= limit

@export()
@description('Whether a text is an IPv4 address.')
func isAddress(text string) bool =>
  length(split(text, '.')) == 4 && length(filter(split(text, '.'), part => !isUpTo(part, 255))) == 0

@export()
@description('Whether a text is an IPv4 address, or a range ADDRESS/BITS.')
func isRange(text string) bool =>
  isAddress(first(split(text, '/'))) && length(split(text, '/')) <= 2 && (!contains(text, '/') || isUpTo(last(split(text, '/')), 32))

@export()
@description('Whether an IPv4 address or range is a private one, which no other network can have in public.')
func isPrivate(text string) bool =>
  startsWith(text, '10.') || startsWith(text, '192.168.') || (startsWith(text, '172.') && contains(
    map(range(16, 16), second => '172.${second}'),
    join(take(split(text, '.'), 2), '.')
  ))

@export()
@description('Whether an IPv4 address or range is one that a network can have in public: no private one, none of a host or link itself, of a provider\'s inside, of groups, and no range of over 16 million.')
func isPublic(text string) bool =>
  isRange(text) && !isPrivate(text) && isUpTo(first(split(text, '.')), 223) && !contains(
    ['0', '127'],
    first(split(text, '.'))
  ) && !startsWith(text, '169.254.') && !contains(
    map(range(64, 64), second => '100.${second}'),
    join(take(split(text, '.'), 2), '.')
  ) && (!contains(text, '/') || !isUpTo(last(split(text, '/')), 7))

@export()
@description('Whether a text is one line with a public SSH key of a kind that VMs take. The kind is repeated in the key.')
func isSshKey(text string) bool =>
  !contains(text, '\n') && !contains(text, '\r') && (startsWith(text, 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI') || startsWith(
    text,
    'ssh-rsa AAAAB3NzaC1yc2EAAAA'
  )) && isOf(
    // Two spaces more, so that there is a second part of any text: both sides of && may be evaluated.
    split('${text}  ', ' ')[1],
    'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/='
  )

@export()
@description('Whether a text is one line NAME=VALUE of an environment file of systemd, which ends where it ends: a backslash or an open quote would swallow the next line.')
func isSetting(line string) bool =>
  contains(line, '=') && !contains(line, '\n') && !contains(line, '\r') && !endsWith(line, '\\') && !startsWith(line, '=') && isOf(
    toLower(first(split(line, '='))),
    'abcdefghijklmnopqrstuvwxyz0123456789_'
  ) && length(split(line, '"')) % 2 == 1 && length(split(line, '\'')) % 2 == 1

@export()
@description('Whether a line NAME=VALUE of the workers sets a budget that the unit cuts: it stops a worker after 25 s. Else whole seconds, up to 20.')
func isLongBudget(line string) bool =>
  startsWith(line, 'REPRIEVE_BUDGET=') && !contains(
    map(range(1, 20), seconds => 'REPRIEVE_BUDGET=${seconds}s'),
    line
  )

@export()
@description('Whether a text is a name of a VM size.')
func isSize(size string) bool => startsWith(size, 'Standard_') && length(size) > 10 && !contains(size, ' ')

@export()
@description('Whether several sizes can be in one instance mix: it takes the families A, B, D, E and F only, and DC and EC are others.')
func canMix(sizes string[]) bool =>
  length(sizes) < 2 || length(filter(
    sizes,
    size => isSize(size) && (!contains('ABDEF', take(skip(size, 9), 1)) || contains(['DC', 'EC'], take(skip(size, 9), 2)))
  )) == 0

@export()
@description('Whether sizes have one kind of processor: the letter p after the number is for ARM, as in Standard_D2ps_v5.')
func haveOneProcessor(sizes string[]) bool =>
  length(union(map(sizes, size => string(contains(skip(split('${size}_', '_')[1], 1), 'p'))), [])) < 2

@export()
@description('Whether the two parts of a text are a whole number and at most five decimals.')
func isDecimal(parts string[]) bool =>
  length(parts) == 2 && isWhole(first(parts)) && isDigits(last(parts)) && !empty(last(parts)) && length(last(parts)) <= 5

@export()
@description('Whether a text is zero, however it is written.')
func isZero(text string) bool => empty(replace(replace(text, '0', ''), '.', ''))

@export()
@description('Whether a maximum price is -1, or a positive number with at most five decimals.')
func isPrice(price string) bool =>
  price == '-1' || (!isZero(price) && length(first(split(price, '.'))) <= 4 && (isWhole(price) || isDecimal(split(price, '.'))))

@export()
@description('Whether a version is Major.Minor.Patch, of numbers with at most nine digits.')
func isVersion(version string) bool =>
  length(split(version, '.')) == 3 && length(filter(split(version, '.'), part => !isWhole(part) || length(part) > 9)) == 0

@export()
@description('The share of the first fleets of a list together, in percent.')
func shareOf(fleets fleetType[], count int) int =>
  reduce(map(take(fleets, count), fleet => fleet.sharePercent), 0, (sum, share) => sum + share)

@export()
@description('The part of a total that the fleets before this one have. Rounded to the nearest where two fleets meet, so the parts add up to the total.')
func partBefore(total int, fleets fleetType[], index int) int =>
  (2 * total * shareOf(fleets, index) + 100) / 200

@export()
@description('The part of a total that belongs to a fleet.')
func partOf(total int, fleets fleetType[], index int) int =>
  partBefore(total, fleets, index + 1) - partBefore(total, fleets, index)
