//! `reprieve metadata serve`.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use reprieve::Result;
use reprieve_sim::DEFAULT_PORT;
use reprieve_sim::metadata::{Config, MetadataServer};
use serde::Serialize;

use crate::out::Out;

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// The address, such as 169.254.169.254:80 in a network namespace; every client that reaches it
    /// controls the mock
    #[arg(long, value_name = "IP:PORT", conflicts_with = "port", default_value_t = address(DEFAULT_PORT))]
    listen: SocketAddr,

    /// The port on 127.0.0.1; 0 takes a free one
    #[arg(long)]
    port: Option<u16>,

    /// Gives each VM its own port, this one and the following, where requests need no prefix
    #[arg(long)]
    port_each: bool,

    /// The names of the VMs
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "workers_0,workers_1")]
    vms: Vec<String>,

    /// The number of VMs, named `workers_0`, `workers_1` and so on
    #[arg(long, value_name = "COUNT", conflicts_with = "vms", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    size: Option<u16>,

    /// The factor by which notices and scenarios run faster than real time
    #[arg(long, value_name = "TIMES", default_value = "1", value_parser = crate::values::speed)]
    speed: NonZeroU32,

    /// The delay of the first answer about events; in Azure up to 2m
    #[arg(long, value_name = "DURATION", value_parser = crate::values::duration, default_value = "0s")]
    first_answer_after: Duration,

    /// The number of requests of a VM that are answered in any second, besides those for tokens; more
    /// get 429. In Azure in general 5 [default: any number]
    #[arg(long, value_name = "COUNT")]
    requests_per_second: Option<NonZeroU32>,

    /// How long an event stays in the document after its start, unless it has its own time; in
    /// Azure about 10m
    #[arg(long, value_name = "DURATION", value_parser = crate::values::duration, default_value = "10s")]
    started_for: Duration,

    /// Answers requests of the preview api-version, 2024-07-09, with 404
    #[arg(long)]
    no_preview: bool,

    /// A file with another scenario; may be given more than once
    #[arg(long, value_name = "FILE")]
    scenario: Vec<PathBuf>,

    /// Prints an array of {"vm", "url"} instead of a line for each VM
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Vm {
    vm: String,
    url: String,
}

const fn address(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

pub(super) async fn run(args: ServeArgs) -> Result<()> {
    // Installed before the address is printed, so that a caller may send the signal from then on.
    let stopped = reprieve::stop_signal()?;
    let json = args.json;
    let server = MetadataServer::start(config(args)?).await?;
    let vms = server.state().vms.into_iter().map(|vm| Vm { vm: vm.name, url: vm.url });
    let vms: Vec<_> = vms.collect();
    let mut out = Out::new();
    if json {
        out.pretty_json(&vms)?;
        out.text("\n")?;
    } else {
        for Vm { vm, url } in &vms {
            out.text(&format!("{vm}  {url}\n"))?;
        }
    }
    out.flush()?;
    let at =
        if server.url() == super::default_url() { String::new() } else { format!(" --url {}", server.url()) };
    crate::out::print_stderr(&format!(
        "give each worker the URL of its own VM with --metadata-url; evict with `reprieve metadata evict{at} --vm NAME`"
    ));
    stopped.await;
    server.stop().await;
    Ok(())
}

fn config(args: ServeArgs) -> Result<Config> {
    let scenarios = args
        .scenario
        .iter()
        .map(|file| super::scenario::read(file).and_then(|text| super::scenario::parse(file, &text)));
    Ok(Config {
        addr: args.port.map_or(args.listen, address),
        one_port_each: args.port_each,
        vms: match args.size {
            Some(size) => (0..size).map(|number| format!("workers_{number}")).collect(),
            None => args.vms,
        },
        started_for: args.started_for,
        first_answer_after: args.first_answer_after,
        requests_per_second: args.requests_per_second,
        speed: args.speed,
        preview: !args.no_preview,
        scenarios: scenarios.collect::<Result<_>>()?,
        ..Config::default()
    })
}
