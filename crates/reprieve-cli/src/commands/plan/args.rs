//! The flags of `reprieve plan`.

use std::path::PathBuf;
use std::time::Duration;

use reprieve_azure::spot::MANAGEMENT_URL;
use reprieve_plan::Price;
use reprieve_plan::fleet::Notice;
use reprieve_plan::money::Cost;

use super::values::{
    GivenRate, Speed, base_instances, boot, bytes, escalation_instances, max_price, money, notice, percent,
    percent_above, price, price_or_zero, rate, speed, vms,
};
use crate::commands::prices::{ServiceArgs, subscription};
use crate::values::{duration, nonzero_duration};

/// The most jobs of a batch that are simulated.
const JOBS_MAX: u64 = 1_000_000;

/// The runs of each strategy, unless they would take long.
pub(super) const RUNS_DEFAULT: u32 = 200;

/// The batch.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Batch")]
pub(super) struct BatchArgs {
    /// The number of jobs
    #[arg(
        long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX),
        allow_negative_numbers = true
    )]
    pub(super) jobs: Option<u64>,

    /// How long a job runs without interruption; with several sizes, on the first one
    #[arg(long, value_name = "DURATION", value_parser = nonzero_duration, allow_hyphen_values = true)]
    pub(super) job_time: Option<Duration>,

    /// How long a save takes [default: from --state, else 20ms]
    #[arg(long, value_name = "DURATION", value_parser = duration, allow_hyphen_values = true)]
    pub(super) save_cost: Option<Duration>,

    /// The size of a saved state, such as 200MB
    #[arg(long, value_name = "BYTES", value_parser = bytes, allow_hyphen_values = true)]
    pub(super) state: Option<u64>,

    /// Jobs save nothing: an interrupted one begins again
    #[arg(long, conflicts_with_all = ["save_cost", "state", "traffic_price"])]
    pub(super) no_save: bool,

    /// The time until all jobs have to be done
    #[arg(long, value_name = "DURATION", value_parser = nonzero_duration, allow_hyphen_values = true)]
    pub(super) deadline: Option<Duration>,

    /// The most that the batch may cost, in US dollars
    #[arg(long, value_name = "USD", value_parser = money, allow_negative_numbers = true)]
    pub(super) budget_usd: Option<Cost>,

    /// A batch like the one in the store: its number of jobs, their time, saves and evictions, as far as it kept them
    #[arg(long)]
    pub(super) like_batch: bool,

    /// How long ago that batch was done at most
    #[arg(
        long, value_name = "DURATION", default_value = "7d", value_parser = nonzero_duration, requires = "like_batch",
        allow_hyphen_values = true
    )]
    pub(super) since: Duration,
}

/// The machines.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "VMs")]
pub(super) struct FleetArgs {
    /// The most VMs [default: as many as need three quarters of the deadline, or 20]
    #[arg(long, value_name = "NUMBER", value_parser = vms, allow_negative_numbers = true)]
    pub(super) vms: Option<u32>,

    /// The jobs that a VM runs at a time
    #[arg(
        long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024),
        allow_negative_numbers = true
    )]
    pub(super) slots: u32,

    /// The time from the request for a VM until it takes jobs, from the shortest to the longest [default: 2m-5m]
    #[arg(long, value_name = "DURATIONS", value_parser = boot, allow_hyphen_values = true)]
    pub(super) boot: Option<(u64, u64)>,

    /// The notice of an eviction, and the share of evictions that have it, such as 30s:90%; or none [default: 30s]
    #[arg(long, value_name = "NOTICE", value_parser = GivenNotice::parse, allow_hyphen_values = true)]
    pub(super) notice: Option<GivenNotice>,

    /// The share of requests for a Spot VM that Azure refuses
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = percent, allow_hyphen_values = true)]
    pub(super) refused: f64,

    /// The regular VMs of the strategy `balanced`, fewer than all [default: 2]
    #[arg(long, value_name = "NUMBER", value_parser = base_instances, allow_negative_numbers = true)]
    pub(super) base_instances: Option<u32>,

    /// The share of regular VMs above them
    #[arg(long, value_name = "PERCENT", default_value = "25", value_parser = percent_above, allow_negative_numbers = true)]
    pub(super) regular_percent_above_base: u32,

    /// The most regular VMs of the strategy `swap` [default: 2]
    #[arg(long, value_name = "NUMBER", value_parser = escalation_instances, allow_negative_numbers = true)]
    pub(super) escalation_instances: Option<u32>,

    /// After how many interruptions without progress a job moves to them [default: 3]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000), allow_negative_numbers = true)]
    pub(super) escalate_after: Option<u32>,
}

/// A notice, or that there is none. Its own type, because clap takes an `Option` for a flag that may be missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct GivenNotice(pub(super) Option<Notice>);

impl GivenNotice {
    fn parse(text: &str) -> Result<Self, String> {
        notice(text).map(Self)
    }
}

/// What is known of prices and evictions without a request.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Prices and evictions")]
pub(super) struct KnownArgs {
    /// The price of a Spot VM for an hour, in US dollars
    #[arg(long, value_name = "USD", value_parser = price, allow_negative_numbers = true)]
    pub(super) spot_price: Option<Price>,

    /// Spot prices over time: the output of `reprieve prices --subscription ID --json` for one size in one region, or CSV
    /// below a line `since_utc,price_usd`. The batch begins with the first price
    #[arg(long, value_name = "FILE", conflicts_with_all = ["spot_price", "sizes"], requires = "regular_price")]
    pub(super) price_history: Option<PathBuf>,

    /// The most that a Spot VM may cost for an hour, in US dollars: above it VMs are evicted, and none are to be had
    #[arg(long, value_name = "USD", value_parser = max_price, allow_negative_numbers = true)]
    pub(super) max_price: Option<Price>,

    /// The price of a regular VM for an hour, in US dollars
    #[arg(long, value_name = "USD", value_parser = price, allow_negative_numbers = true)]
    pub(super) regular_price: Option<Price>,

    /// The price of a VM's disks for an hour, in US dollars
    #[arg(long, value_name = "USD", default_value = "0", value_parser = price_or_zero, allow_negative_numbers = true)]
    pub(super) disk_price: Price,

    /// What is paid for an hour while the deployment exists, in US dollars: gateways, addresses, private endpoints
    #[arg(long, value_name = "USD", default_value = "0", value_parser = price_or_zero, allow_negative_numbers = true)]
    pub(super) always_price: Price,

    /// The price of traffic for each GB, in US dollars, if the store is in another region
    #[arg(
        long, value_name = "USD", default_value = "0", value_parser = price_or_zero, allow_negative_numbers = true,
        requires = "state"
    )]
    pub(super) traffic_price: Price,

    /// The share of VMs that is evicted in an hour: 7.5%, 5-10%, 20+%, or unknown
    #[arg(long, value_name = "RATE", value_parser = rate, allow_hyphen_values = true)]
    pub(super) eviction_rate: Option<GivenRate>,

    /// Evictions as they were: lifetimes, fleet events, an availability series, or the output of `reprieve report`
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
}

/// Sizes and regions, and what Azure's services know of them.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sizes and regions")]
#[expect(clippy::doc_markdown, reason = "the fields' docs are --help, which is no Markdown")]
pub(super) struct MarketArgs {
    /// VM sizes, separated by commas, such as Standard_D4s_v5: their prices are asked for
    #[arg(
        long, value_name = "SIZES", value_delimiter = ',', requires = "regions",
        conflicts_with_all = ["spot_price", "regular_price"]
    )]
    pub(super) sizes: Vec<String>,

    /// Regions, separated by commas, such as westeurope
    #[arg(
        long, value_name = "REGIONS", value_delimiter = ',', requires = "sizes",
        conflicts_with_all = ["spot_price", "regular_price"]
    )]
    pub(super) regions: Vec<String>,

    /// How many times as fast as on the first size jobs run on another: Standard_D8s_v5=1.9
    #[arg(
        long = "speed", value_name = "SIZE=FACTOR", value_delimiter = ',', value_parser = speed, requires = "sizes",
        conflicts_with_all = ["spot_price", "regular_price"]
    )]
    pub(super) speeds: Vec<Speed>,

    /// Prices of Windows instead of Linux
    #[arg(long, requires = "sizes", conflicts_with_all = ["spot_price", "regular_price"])]
    pub(super) windows: bool,

    /// How old a price of the cache may be to be used without a request
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration, allow_hyphen_values = true)]
    pub(super) max_age: Duration,

    /// Sends no request, and uses prices of the cache however old they are
    #[arg(long, conflicts_with_all = ["max_age", "subscription"])]
    pub(super) offline: bool,

    /// Asks for eviction rates and placement scores, too, with this subscription and this machine's identity
    #[arg(
        long, value_name = "ID", requires = "sizes", value_parser = subscription,
        conflicts_with_all = ["spot_price", "regular_price"]
    )]
    pub(super) subscription: Option<String>,

    /// Azure Resource Manager, or a mock of it on this machine
    #[arg(long, value_name = "URL", default_value = MANAGEMENT_URL, env = "REPRIEVE_MANAGEMENT_URL")]
    pub(super) management_url: String,

    #[command(flatten)]
    pub(super) service: ServiceArgs,
}

/// The simulation and its output.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// The number of simulated runs of each strategy, however long they take [default: 200, or fewer for a large batch]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true)]
    pub(super) runs: Option<u32>,

    /// The seed of the first run: the same seed gives the same plan
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true)]
    pub(super) seed: u32,

    /// Prints JSON
    #[arg(long)]
    pub(super) json: bool,

    /// Writes the plan as one HTML page, with curves, into this file
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(super) html: Option<PathBuf>,
}
