//! `reprieve report`: the ledger of a store.

use std::time::Duration;

use reprieve::ports::WorkerReport;
use reprieve::worker::{Settings, Stopper, Worker, stopping};
use reprieve::{NewJob, WorkerId, clock};
use reprieve_core::ledger::{Boot, Entry, Ledger, Machine};
use reprieve_sim::management::{self, ManagementServer};
use reprieve_sim::prices::{Config, PricesServer};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::support::{LONG, Place, Ran, Stay, Working, until};

#[tokio::test]
async fn a_report_has_the_boots_and_interruptions_of_the_store() {
    let place = Place::new();
    let client = place.client().await;
    let empty = place.succeeds(&["report"]);
    assert!(empty.contains("the ledger has nothing of this time"), "{empty}");
    for _ in 0..2 {
        Working::on(&client).stop().await;
    }
    let figures: Value = serde_json::from_str(&place.succeeds(&["report", "--json"])).unwrap();
    assert_eq!((&figures["machines"], &figures["evictions"]), (&2.into(), &0.into()), "{figures}");
    assert_eq!(
        (&figures["interruptions"][0]["kind"], &figures["interruptions"][0]["count"]),
        (&"Signal".into(), &2.into())
    );
    let page = place.succeeds(&["report", "--since", "1h"]);
    assert!(page.contains("2 machines") && page.lines().any(|line| line.starts_with("Signal")), "{page}");
    // Two machines, their boots and their drains, below the header.
    assert_eq!(place.succeeds(&["report", "--csv"]).lines().count(), 7);
    assert_eq!(figures["lives"].as_array().map(Vec::len), Some(2), "{figures}");
    place.succeeds(&["report", "--html", "report.html"]);
    let html = std::fs::read_to_string(place.path("report.html")).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("0 evictions of 2 machines"), "{html}");
    let failed = place.run(&["report", "--html", "no/such/directory.html"]);
    assert!(failed.code == Some(2) && failed.err.contains("name another file"), "{failed:?}");
}

const HOUR: i64 = 3_600_000;

/// A machine that booted six minutes before its worker started and was seen for ten hours since then, ending an hour ago.
async fn boot(ledger: &Ledger, name: &str, [size, region, priority]: [&str; 3]) {
    let now = clock::unix_millis() - HOUR;
    let machine = Machine {
        vm: name.to_owned(),
        size: size.to_owned(),
        region: region.to_owned(),
        priority: priority.to_owned(),
        booted_unix_ms: Some(now - 10 * HOUR),
        ..Machine::default()
    };
    let entry = Entry::Boot(Boot {
        boot: format!("boot-{name}"),
        worker: WorkerId::new(format!("worker-{name}")),
        at_unix_ms: now - 10 * HOUR + HOUR / 10,
        machine,
        seen_unix_ms: Some(now),
        worked_on_unix_ms: None,
    });
    assert!(ledger.write(entry).await.expect("written"));
}

const SPOT: [&str; 3] = ["Standard_D4s_v5", "westeurope", "Spot"];

/// A store whose ledger has these machines, and a mock of the prices.
async fn machines(machines: &[[&str; 3]]) -> (Place, PricesServer) {
    let place = Place::new();
    let client = place.client().await;
    let ledger = Ledger::new(client.store().records.clone());
    for (number, machine) in machines.iter().enumerate() {
        boot(&ledger, &number.to_string(), *machine).await;
    }
    (place, PricesServer::start(Config::default()).await.expect("a mock"))
}

/// Runs `reprieve report …` while the mocks run.
async fn report(place: &Place, url: &str, args: &[&str]) -> Ran {
    let cache = place.path("cache").display().to_string();
    let at = ["--prices-url", url, "--cache-dir", &cache];
    let mut command = place.command(&[&["report"], args, &at].concat());
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs").into()
}

async fn money(place: &Place, url: &str, args: &[&str]) -> Value {
    let ran = report(place, url, &[args, &["--json"]].concat()).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str::<Value>(&ran.out).expect("JSON")["money"].clone()
}

#[tokio::test]
async fn without_prices_a_report_asks_nobody_and_says_how_to_get_money() {
    let (place, mock) = machines(&[SPOT]).await;
    let ran = report(&place, &mock.url(), &[]).await;
    assert!(ran.code == Some(0) && ran.out.contains("--prices ask"), "{ran:?}");
    assert_eq!(money(&place, &mock.url(), &[]).await, Value::Null);
    let cached = report(&place, &mock.url(), &["--prices", "cache"]).await;
    assert!(cached.code == Some(0) && cached.err.contains("`reprieve prices` puts it there"), "{cached:?}");
    assert!(
        cached.out.contains(
            "In no sum: 1 machine (Spot, Standard_D4s_v5, westeurope), 10h in all, because there is no price"
        ),
        "{cached:?}"
    );
    assert!(mock.requests().is_empty(), "{:?}", mock.requests());
}

#[tokio::test]
async fn money_is_counted_at_given_prices_of_one_size() {
    let (place, mock) = machines(&[SPOT, ["Standard_D4s_v5", "westeurope", "Regular"], ["", "", ""]]).await;
    let given = ["--spot-price", "0.05", "--regular-price", "0.2"];
    let figures = money(&place, &mock.url(), &given).await;
    let total = &figures["total"];
    // Ten hours each: Spot 0.50, regular 2.00.
    assert_eq!([&total["cost"], &total["regular"], &total["saved"]], [&2.5, &4.0, &1.5], "{figures}");
    assert_eq!((&total["machines"], &total["billed_ms"]), (&2.into(), &(20 * HOUR).into()));
    assert_eq!(figures["unpriced"][0]["why"], "whether it is Spot is unknown");
    let text = report(&place, &mock.url(), &given).await;
    let verdict =
        "It cost 2.5000 USD. Regular machines would have cost 4.0000 USD, so Spot saved 1.5000 USD (37.5 %).";
    assert!(text.out.contains(verdict), "{text:?}");
    let csv = report(&place, &mock.url(), &[&given[..], &["--csv"]].concat()).await;
    let costs = |cost: &str| csv.out.lines().filter(|line| line.ends_with(cost)).count();
    assert_eq!([costs("0.500000,2.000000"), costs("2.000000,2.000000")], [1, 1], "{csv:?}");
    report(&place, &mock.url(), &[&given[..], &["--html", "money.html"]].concat()).await;
    let html = std::fs::read_to_string(place.path("money.html")).unwrap();
    assert!(html.contains("What it cost") && html.contains("Standard_D4s_v5"), "{html}");
    assert!(mock.requests().is_empty());
}

#[tokio::test]
async fn one_price_is_not_that_of_several_sizes() {
    let (place, mock) = machines(&[SPOT, ["Standard_D2s_v5", "westeurope", "Spot"]]).await;
    let ran = report(&place, &mock.url(), &["--spot-price", "0.05", "--regular-price", "0.2"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("one price can't be that of all") && ran.err.lines().count() == 1, "{ran:?}");
    for (args, why) in [
        (&["--spot-price", "0.05"][..], "--regular-price"),
        (&["--spot-price", "0", "--regular-price", "1"], "above 0"),
        (&["--prices", "no/such/file"], "can't be read"),
        (&["--price-history"], "--prices"),
    ] {
        let ran = report(&place, &mock.url(), args).await;
        assert!(ran.code == Some(2) && ran.err.contains(why), "{ran:?}");
    }
    std::fs::write(place.path("odd.json"), "[1]").unwrap();
    let odd = report(&place, &mock.url(), &["--prices", "odd.json"]).await;
    assert!(odd.code == Some(2) && odd.err.contains("`reprieve prices --json`"), "{odd:?}");
}

#[tokio::test]
async fn prices_are_asked_for_by_size_and_region_and_kept() {
    let (place, mock) = machines(&[
        SPOT,
        ["Standard_D2s_v5", "westeurope", "Spot"],
        ["Standard_B2ms", "westeurope", "Regular"],
    ])
    .await;
    let figures = money(&place, &mock.url(), &["--prices", "ask"]).await;
    let costs: Vec<_> =
        figures["machines"].as_array().unwrap().iter().map(|row| row["cost"].clone()).collect();
    // Ten hours at 0.096, 0.023 and 0.046.
    assert_eq!(costs, [0.96, 0.23, 0.46], "{figures}");
    let asked = mock.requests().len();
    let cached = money(&place, &mock.url(), &["--prices", "cache"]).await;
    assert_eq!((&cached["total"], mock.requests().len()), (&figures["total"], asked));
    let text = report(&place, &mock.url(), &["--prices", "cache"]).await;
    assert!(text.out.contains("The Spot price of one moment counts for all of the time"), "{text:?}");
}

#[tokio::test]
async fn each_hour_counts_at_the_price_of_that_time_where_azure_or_a_file_has_it() {
    let (place, mock) = machines(&[SPOT]).await;
    // The price doubled in the middle of the ten hours, which ended an hour ago.
    let half = jiff::Timestamp::from_millisecond(clock::unix_millis() - 6 * HOUR).unwrap().to_string();
    let past = serde_json::json!([
        { "effectiveDate": half, "priceUSD": 0.08 },
        { "effectiveDate": "2026-01-01T00:00:00Z", "priceUSD": 0.04 },
    ]);
    let azure =
        |reader| management::Config { past_prices: past.clone(), reader, ..management::Config::default() };
    let server = ManagementServer::start(azure(true)).await.expect("a mock");
    let at = server.url();
    let history = ["--prices", "ask", "--price-history", "--management-url", &at];
    let rounded = |figures: &Value| format!("{:.3}", figures["total"]["cost"].as_f64().unwrap());
    let figures = money(&place, &mock.url(), &history).await;
    // Five hours at 0.04 and five at 0.08.
    assert_eq!(
        (rounded(&figures), &figures["machines"][0]["basis"]),
        ("0.600".to_owned(), &"history".into()),
        "{figures}"
    );

    // The same from the file that `reprieve prices` prints.
    let cache = place.path("cache").display().to_string();
    let id = "00000000-0000-0000-0000-000000000001";
    let args =
        ["prices", "--size", SPOT[0], "--region", SPOT[1], "--subscription", id, "--management-url", &at];
    let with = ["--json", "--prices-url", &mock.url(), "--cache-dir", &cache];
    let mut command = place.command(&[&args[..], &with[..]].concat());
    let printed = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    std::fs::write(place.path("prices.json"), printed.stdout).unwrap();
    let requests = mock.requests().len();
    let from_file = money(&place, &mock.url(), &["--prices", "prices.json"]).await;
    assert_eq!((rounded(&from_file), mock.requests().len()), ("0.600".to_owned(), requests), "{from_file}");

    // Without the role the present price counts, and that is said.
    let denied = ManagementServer::start(azure(false)).await.expect("a mock");
    let ran = report(
        &place,
        &mock.url(),
        &["--prices", "ask", "--price-history", "--management-url", &denied.url(), "--json"],
    )
    .await;
    assert!(ran.err.contains("past prices are unknown") && ran.err.contains("\"Reader\""), "{ran:?}");
    assert_eq!(rounded(&serde_json::from_str::<Value>(&ran.out).unwrap()["money"]), "0.460");
}

/// A worker of a machine, on a runtime of its own, which ends at once when the machine is killed.
fn machine(place: &Place, boot: &'static str, priority: &str) -> (Runtime, Stopper) {
    let machine = Machine {
        vm: boot.to_owned(),
        size: SPOT[0].to_owned(),
        region: SPOT[1].to_owned(),
        priority: priority.to_owned(),
        booted_unix_ms: Some(clock::unix_millis() - 10 * HOUR),
        ..Machine::default()
    };
    // The least, so that another machine has the job soon.
    let settings =
        Settings { lease: Duration::from_secs(2), budget: Duration::from_secs(1), ..Settings::default() };
    let runtime = Runtime::new().expect("a runtime");
    let (stopper, stopping) = stopping();
    let place = place.store();
    runtime.spawn(async move {
        let client = Place::client_of(&place).await;
        let worker = Worker::builder(client.store().clone()).boot(boot).job(Stay).settings(settings);
        let worker = worker.machine(std::future::ready(machine)).build().expect("a worker");
        worker.run(stopping).await
    });
    (runtime, stopper)
}

#[tokio::test]
async fn money_of_a_machine_that_was_killed_is_what_arithmetic_says() {
    let place = Place::new();
    let client = place.client().await;
    let job = NewJob::of::<Stay>(&Value::Null).expect("a job");
    let job = client.producer().enqueue(vec![job]).await.expect("enqueued").remove(0);
    let (killed, _stopper) = machine(&place, "boot-killed", "Spot");
    let began = clock::unix_millis();
    let holds = async |boot: &str| {
        let reports = client.store().roster.reports(LONG).await.expect("reports");
        let held =
            |report: &WorkerReport| report.boot == boot && report.in_flight.iter().any(|it| it.job == job);
        reports.iter().any(held).then_some(())
    };
    until("the machine reports its job", async || holds("boot-killed").await).await;
    let killed_at = clock::unix_millis();
    killed.shutdown_background();
    let (living, stopper) = machine(&place, "boot-living", "Regular");
    until("the other machine has the job", async || holds("boot-living").await).await;
    let prices = ["report", "--json", "--spot-price", "0.05", "--regular-price", "0.2"];
    let evicted = async || {
        let figures: Value = serde_json::from_str(&place.succeeds(&prices)).expect("JSON");
        (figures["evictions"] == 1).then_some(())
    };
    until("the death is in the ledger", evicted).await;
    stopper.stop();
    let gone = async || client.store().roster.members(LONG).await.expect("members").is_empty().then_some(());
    until("the other machine has stopped", gone).await;
    living.shutdown_background();

    let figures: Value = serde_json::from_str(&place.succeeds(&prices)).expect("JSON");
    let number = |value: &Value| value.as_i64().expect("a number");
    let billed = |boot: &str| {
        let lives = figures["lives"].as_array().expect("lives");
        let life = lives.iter().find(|life| life["vm"] == boot).expect("a life");
        number(&life["until_unix_ms"]) - number(&life["booted_unix_ms"])
    };
    let (spot, regular) = (billed("boot-killed"), billed("boot-living"));
    // Ten hours, and until its last report, which is at most a second and some delay before it was killed.
    let end = killed_at - began + 10 * HOUR;
    assert!((10 * HOUR - 1_000..=end + 1_000).contains(&spot), "{spot} for {end}: {figures}");
    let total = &figures["money"]["total"];
    let lost = number(&total["lost_ms"]);
    assert!((0..=killed_at - began).contains(&lost), "{lost}: {figures}");
    assert_eq!(number(&total["billed_ms"]), spot + regular);
    // By hand: 5 cents and 20 cents an hour. Regular machines would not have done twice what was lost.
    let usd = |cents: i64, ms: i64| (i128::from(cents) * 10_000 * i128::from(ms) * 2 + 3_600_000) / 7_200_000;
    let micros = |figure: &str| {
        let text = total[figure].to_string();
        let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
        format!("{whole}{part:0<6}").parse::<i128>().expect("money")
    };
    assert!((micros("cost") - usd(5, spot) - usd(20, regular)).abs() <= 1, "{figures}");
    assert!((micros("regular") - usd(20, spot + regular - lost)).abs() <= 1, "{figures}");
    assert!((micros("lost") - usd(5, lost)).abs() <= 1, "{figures}");
    assert!((micros("saved") - micros("regular") + micros("cost")).abs() <= 1, "{figures}");
}
