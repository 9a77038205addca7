//! The commands that change one thing: events, VMs, and how time goes.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use reprieve::Result;
use reprieve_azure::scheduled_events::document::EventType;
use reprieve_sim::control::{self, Which};
use reprieve_sim::metadata::{EventPlan, OtherTenants, Span, TenantDelay, event_type};
use serde::Serialize;

use super::{At, EXIT_CODES, print};

/// The notice that Azure documents for an eviction.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#event-properties>
const NOTICE: Duration = Duration::from_secs(30);

#[derive(Debug, clap::Args)]
pub(crate) struct EvictArgs {
    /// The VM
    #[arg(long, value_name = "NAME")]
    vm: String,

    /// The time until the eviction, such as 5s [default: 30s, which Azure documents]
    #[arg(long, value_name = "DURATION", value_parser = crate::values::duration, conflicts_with = "withdraw")]
    notice: Option<Duration>,

    /// Withdraws the VM's announced events that have not started
    #[arg(long)]
    withdraw: bool,

    #[command(flatten)]
    at: At,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Withdrawn {
    withdrawn: Vec<String>,
}

pub(super) async fn evict(args: EvictArgs) -> Result<()> {
    let EvictArgs { vm, notice, withdraw, at: At { url }, json } = args;
    if withdraw {
        let withdrawn = control::withdraw(&url, &Which::Vm(vm)).await?;
        let line = withdrawn.join("\n");
        return print(json, &Withdrawn { withdrawn }, &line);
    }
    let evicted = control::evict(&url, &vm, notice.unwrap_or(NOTICE)).await?;
    print(json, &evicted, &format!("{}  {}  {}", evicted.event_id, evicted.vm, evicted.not_before))
}

#[derive(Debug, clap::Args)]
pub(crate) struct AnnounceArgs {
    /// `Freeze`, `Reboot`, `Redeploy`, `Preempt`, `Terminate` or `SpotRebalanceRecommendation`
    #[arg(long = "type", value_name = "TYPE", value_parser = event_type)]
    event_type: EventType,

    /// The VMs that the event names; @first is the first of the set, @all is every VM
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    vms: Vec<String>,

    /// The time until it starts [default: the minimum that Azure documents for its type]
    #[arg(long, value_name = "DURATION", value_parser = crate::values::duration, conflicts_with = "started")]
    notice: Option<Duration>,

    /// Announces it as Started, without notice
    #[arg(long)]
    started: bool,

    /// The announced length of the interruption [default: unknown]
    #[arg(long, value_name = "DURATION", value_parser = crate::values::duration)]
    duration: Option<Duration>,

    /// Platform or User
    #[arg(long, default_value = "Platform")]
    source: String,

    /// The event's description
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    description: String,

    /// How long it stays in the document after its start [default: --started-for of the mock]
    #[arg(long, value_name = "DURATION", value_parser = crate::values::duration)]
    started_for: Option<Duration>,

    /// Other tenants of the host delay an approved event: until its time, or for this long
    #[arg(long, value_name = "DURATION", value_parser = crate::values::duration, num_args = 0..=1, require_equals = true)]
    #[expect(clippy::option_option, reason = "clap's way to say that an option may have no value")]
    other_tenants: Option<Option<Duration>>,

    /// Removes the VMs when it starts
    #[arg(long)]
    gone: bool,

    #[command(flatten)]
    at: At,

    /// Prints the event as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn announce(args: AnnounceArgs) -> Result<()> {
    let plan = EventPlan {
        notice: args.notice.map(Span),
        started: args.started,
        duration: args.duration.map(Span),
        source: Some(args.source),
        description: args.description,
        started_for: args.started_for.map(Span),
        other_tenants: TenantDelay(match args.other_tenants {
            None => OtherTenants::None,
            Some(None) => OtherTenants::Silent,
            Some(Some(after)) => OtherTenants::ApproveAfter(after),
        }),
        gone: args.gone,
        ..EventPlan::new(args.event_type, args.vms)
    };
    let event = control::announce(&args.at.url, &plan).await?;
    let line = [&event.event_id, event.event_type.as_str(), &event.resources.join(","), &event.not_before];
    print(args.json, &event, line.join("  ").trim_end())
}

/// A change of an event.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Change {
    /// Starts a scheduled event before its time
    Start,
    /// Ends a started event before its time
    Complete,
    /// Withdraws an event that has not started
    Withdraw,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EventArgs {
    /// The change
    #[arg(value_enum)]
    change: Change,

    /// The event's id
    #[arg(value_name = "ID", required_unless_present = "vm", conflicts_with = "vm")]
    event_id: Option<String>,

    /// Changes all events of this VM that allow it
    #[arg(long, value_name = "NAME")]
    vm: Option<String>,

    #[command(flatten)]
    at: At,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Changed {
    event_ids: Vec<String>,
}

pub(super) async fn event(args: EventArgs) -> Result<()> {
    let EventArgs { change, event_id, vm, at: At { url }, json } = args;
    let which = match (event_id, vm) {
        (Some(id), _) => Which::EventId(id),
        (None, vm) => Which::Vm(vm.unwrap_or_default()),
    };
    let event_ids = match change {
        Change::Start => control::start(&url, &which).await,
        Change::Complete => control::complete(&url, &which).await,
        Change::Withdraw => control::withdraw(&url, &which).await,
    }?;
    let line = event_ids.join("\n");
    print(json, &Changed { event_ids }, &line)
}

#[derive(Debug, clap::Args)]
pub(crate) struct VmArgs {
    #[command(subcommand)]
    what: VmCommand,
}

#[derive(Debug, Subcommand)]
enum VmCommand {
    /// Adds a VM to the set
    #[command(after_help = EXIT_CODES)]
    Add(VmName),
    /// Removes a VM; its requests are answered with 404 from then on
    #[command(after_help = EXIT_CODES)]
    Remove(VmName),
}

#[derive(Debug, clap::Args)]
struct VmName {
    /// Its name
    name: String,

    #[command(flatten)]
    at: At,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Named<'a> {
    vm: &'a str,
}

pub(super) async fn vm(args: VmArgs) -> Result<()> {
    let vm = match args.what {
        VmCommand::Add(vm) => {
            control::add_vm(&vm.at.url, &vm.name).await?;
            vm
        }
        VmCommand::Remove(vm) => {
            control::remove_vm(&vm.at.url, &vm.name).await?;
            vm
        }
    };
    print(vm.json, &Named { vm: &vm.name }, &vm.name)
}

#[derive(Debug, clap::Args)]
pub(crate) struct SpeedArgs {
    /// The factor, such as 60
    #[arg(value_parser = crate::values::speed)]
    times: NonZeroU32,

    #[command(flatten)]
    at: At,
}

pub(super) async fn speed(args: SpeedArgs) -> Result<()> {
    control::set_speed(&args.at.url, args.times).await
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    at: At,
}

pub(super) async fn restart(args: RestartArgs) -> Result<()> {
    control::restart(&args.at.url).await
}
