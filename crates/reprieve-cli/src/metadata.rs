//! `reprieve metadata`: Azure's metadata service on this machine, which evicts on demand.

use std::time::Duration;

use clap::Subcommand;
use reprieve::Result;
use reprieve_sim::control::{self, Evicted, Which};
use serde::Serialize;

use crate::out::Out;

/// The notice that Azure documents for an eviction.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#event-properties>
const NOTICE: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serves until it is stopped (Ctrl-C)
    #[command(after_help = crate::EXIT_CODES)]
    Serve(ServeArgs),
    /// Announces that a VM will be taken back, or withdraws that
    #[command(after_help = crate::EXIT_CODES)]
    Evict(EvictArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// The port on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = reprieve_sim::DEFAULT_PORT)]
    port: u16,

    /// The VMs there are
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "workers_0,workers_1")]
    vms: Vec<String>,

    /// Prints an array of {"vm", "url"} instead of a line for each VM
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EvictArgs {
    /// The VM
    #[arg(long, value_name = "NAME")]
    vm: String,

    /// How long before it is taken back, such as 5s [default: 30s, what Azure says it gives]
    #[arg(long, value_name = "DURATION", value_parser = reprieve::parse_duration, conflicts_with = "withdraw")]
    notice: Option<Duration>,

    /// Withdraws what was announced for the VM and has not begun
    #[arg(long)]
    withdraw: bool,

    /// Where the mock is
    #[arg(long, value_name = "URL", default_value_t = format!("http://127.0.0.1:{}", reprieve_sim::DEFAULT_PORT))]
    url: String,

    /// Prints JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Vm<'a> {
    vm: &'a str,
    url: String,
}

#[derive(Debug, Serialize)]
struct Withdrawn {
    withdrawn: Vec<String>,
}

pub(crate) async fn run(command: Command) -> Result<()> {
    match command {
        Command::Serve(args) => serve(args).await,
        Command::Evict(args) => evict(args).await,
    }
}

async fn serve(args: ServeArgs) -> Result<()> {
    // Listened for before anybody is told that there is something to stop.
    let stopped = reprieve::stop_signal()?;
    let server = reprieve_sim::serve(args.port, args.vms.clone()).await?;
    let vms: Vec<_> = args.vms.iter().map(|vm| Vm { vm, url: server.vm_url(vm) }).collect();
    let mut out = Out::new();
    if args.json {
        out.pretty_json(&vms)?;
        out.text("\n")?;
    } else {
        for Vm { vm, url } in &vms {
            out.text(&format!("{vm}  {url}\n"))?;
        }
    }
    out.flush()?;
    crate::out::say(
        "give each worker the URL of its own VM with --metadata-url; evict with `reprieve metadata evict`",
    );
    stopped.await;
    server.stop().await;
    Ok(())
}

async fn evict(args: EvictArgs) -> Result<()> {
    let url = args.url;
    let mut out = Out::new();
    if args.withdraw {
        let withdrawn = control::withdraw(&url, &Which::Vm(args.vm)).await?;
        if args.json {
            out.json(&Withdrawn { withdrawn })?;
        } else {
            out.text(&withdrawn.join("\n"))?;
        }
    } else {
        let evicted: Evicted = control::evict(&url, &args.vm, args.notice.unwrap_or(NOTICE)).await?;
        if args.json {
            out.json(&evicted)?;
        } else {
            out.text(&format!("{}  {}  {}", evicted.event_id, evicted.vm, evicted.not_before))?;
        }
    }
    out.text("\n")?;
    out.flush()
}
