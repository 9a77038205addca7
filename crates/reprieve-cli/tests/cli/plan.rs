//! `reprieve plan`: with given prices, with traces, and on mocks of Azure's services.

use std::time::Duration;

use reprieve::worker::{Worker, stopping};
use reprieve::{Job, JobContext, JobError, NewJob, Step, async_trait};
use reprieve_sim::management::{self, ManagementServer};
use reprieve_sim::prices::{Config, PricesServer};
use serde_json::Value;

use crate::support::{Place, Ran, until};

const FLEET: &str = include_str!("../../../reprieve-plan/traces/aws-p3-fleet.csv");
const LIVES: &str = include_str!("../../../reprieve-plan/traces/gcp-lifetimes.csv");
const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000001";

/// A batch that is done in seconds, and a few runs of it.
const BATCH: [&str; 9] = ["plan", "--jobs", "60", "--job-time", "40m", "--vms", "10", "--runs", "12"];
const PRICES: [&str; 4] = ["--spot-price", "0.046", "--regular-price", "0.23"];

/// Plans the batch with the given prices.
fn plan(place: &Place, more: &[&str]) -> Ran {
    place.run(&[&BATCH[..], &PRICES[..], more].concat())
}

#[track_caller]
fn json(ran: &Ran) -> Value {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.out).expect("JSON")
}

/// The strategy of a table by its name.
#[track_caller]
fn row<'a>(table: &'a Value, name: &str) -> &'a Value {
    let rows = table["strategies"].as_array().expect("rows");
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no row {name} in {table}"))
}

#[test]
fn help_explains_plans() {
    insta::assert_snapshot!("plan", Place::new().succeeds(&["plan", "--help"]));
}

#[test]
fn a_plan_has_its_assumptions_strategies_advice_quota_and_parameters() {
    let place = Place::new();
    let ran = plan(&place, &["--save-cost", "2s", "--deadline", "6h", "--eviction-rate", "5-10%"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "no progress on a pipe");
    insta::assert_snapshot!("text", ran.out);
}

#[test]
fn json_has_every_strategy_in_every_world_and_the_same_seed_gives_the_same() {
    let place = Place::new();
    let ask = |seed: &str| {
        let mut found = json(&plan(&place, &["--json", "--eviction-rate", "5-10%", "--seed", seed]));
        found["at_unix_ms"] = 0.into();
        found
    };
    let first = ask("3");
    assert_eq!(first, ask("3"));
    assert_ne!(first, ask("4"));
    let table = &first["tables"][0];
    let names: Vec<_> = table["worlds"].as_array().unwrap().iter().map(|it| it["name"].as_str()).collect();
    assert_eq!(names, [Some("5 % evicted an hour"), Some("10 % evicted an hour")]);
    assert_eq!(table["strategies"].as_array().map(Vec::len), Some(7));
    let regular = &row(table, "all regular")["worlds"][0];
    // Six waves of 40 min after a boot of up to 5 min, on ten machines at 0.23.
    let cost = regular["cost_usd"]["mean"].as_f64().unwrap();
    assert!((9.2..9.6).contains(&cost), "{cost}");
    assert_eq!((&regular["evictions"], &regular["chance"]), (&0.0.into(), &1.0.into()));
    assert_eq!(row(table, "steady")["quota"]["held_when_evicted"], true);
    assert_eq!(row(table, "elastic")["bicepparam"][0], "param preset = 'elastic'");
    let mut shape = first;
    // One strategy shows the shape of all.
    shape["tables"][0]["strategies"].as_array_mut().unwrap().truncate(1);
    insta::assert_snapshot!("json", serde_json::to_string_pretty(&shape).unwrap());
}

#[test]
fn an_open_end_is_said_and_an_unknown_rate_is_not_zero() {
    let place = Place::new();
    let open = plan(&place, &["--eviction-rate", "20+%"]);
    assert!(open.out.contains("an hour or more: there is no upper end"), "{open:?}");
    assert!(open.out.contains("the eviction rate has no upper end"), "{open:?}");
    for unknown in [&["--eviction-rate", "unknown"][..], &[]] {
        let table = &json(&plan(&place, &[&["--json"], unknown].concat()))["tables"][0];
        assert_eq!(table["worlds"][1]["name"], "20 % evicted an hour");
        assert!(row(table, "elastic")["worlds"][1]["evictions"].as_f64().unwrap() > 0.0);
        assert!(table["advice"]["reason"].as_str().unwrap().contains("is unknown"), "{table}");
    }
}

#[test]
fn spot_is_not_advised_where_it_is_not_worth_it() {
    let place = Place::new();
    let args =
        [&BATCH[..], &["--spot-price", "0.22", "--regular-price", "0.23", "--eviction-rate", "5%"]].concat();
    let ran = place.run(&args);
    assert_eq!(ran.code, Some(0));
    assert!(ran.out.contains("advice  don't use Spot for this: "), "{ran:?}");
    let much = plan(&place, &["--budget-usd", "0.5", "--eviction-rate", "5%"]);
    assert!(much.out.contains("no strategy stays within the budget"), "{much:?}");
    assert!(!much.out.contains("deploy"), "{much:?}");
}

#[test]
fn without_vms_there_are_as_many_as_the_deadline_needs() {
    let place = Place::new();
    let vms = |more: &[&str]| {
        let args =
            ["plan", "--jobs", "60", "--job-time", "40m", "--runs", "1", "--eviction-rate", "1%", "--json"];
        json(&place.run(&[&args[..], &PRICES[..], more].concat()))["tables"][0]["vms"].clone()
    };
    // Three quarters of 3 h without a boot are three waves; of three slots each.
    assert_eq!([vms(&["--deadline", "3h"]), vms(&["--deadline", "3h", "--slots", "3"])], [20, 7]);
    assert_eq!([vms(&[]), vms(&["--slots", "10"])], [20, 6]);
}

#[test]
fn traces_of_every_form_are_told_by_their_content() {
    let place = Place::new();
    place.write("fleet.csv", FLEET);
    place.write("lives.csv", LIVES);
    place.write(
        "series.json",
        r#"{"metadata":{"gap_seconds":600},"data":[1,1,1,1,1,0,0,1,1,1,0,1,1,1,1,1,1,1,1,1]}"#,
    );
    for (file, world, policies) in [
        ("fleet.csv", "losses of the trace", 3),
        ("lives.csv", "lives of the trace", 0),
        ("series.json", "availability of the trace", 3),
    ] {
        let found = json(&plan(&place, &["--json", "--trace", file, "--deadline", "10h"]));
        let table = &found["tables"][0];
        assert_eq!(table["worlds"][0]["name"], world);
        assert_eq!(table["policies"].as_array().map(Vec::len), Some(policies), "{file}");
        let evictions = &found["assumptions"][0];
        assert_eq!((&evictions["subject"], &evictions["kind"]), (&"evictions".into(), &"measured".into()));
        assert!(evictions["source"].as_str().unwrap().starts_with(file), "{evictions}");
    }
    let text = plan(&place, &["--trace", "series.json", "--deadline", "10h"]);
    assert!(text.out.contains("  POLICY") && text.out.contains("  programme"), "{text:?}");
    let pattern = json(&plan(&place, &["--json", "--trace", "fleet.csv", "--eviction-rate", "5-10%"]));
    assert_eq!(pattern["tables"][0]["worlds"][1]["name"], "10 % evicted an hour");
    assert!(pattern["assumptions"].to_string().contains("in the pattern of"), "{pattern}");
}

#[test]
fn bad_input_is_one_sentence() {
    let place = Place::new();
    place.write("adds.csv", "0,add,a\n5,add,b\n");
    place.write("lives.csv", "start_utc,lifetime_s\n2019-02-18T16:57:39Z,4000\n");
    place.write("binary", [0xff, 0xfe, 0x00]);
    for (more, why) in [
        (&["--eviction-rate", "100%"][..], "at 100 % no machine is there to plan with"),
        (&["--eviction-rate", "10-5%"], "backwards"),
        (&["--eviction-rate", "-5%"], "such as 7.5%, 5-10% or 20+%, or unknown"),
        (&["--deadline", "3h"], "the deadline of 180 min can't be met"),
        (&["--trace", "adds.csv"], "adds.csv: no machine left the fleet"),
        (&["--trace", "none.csv"], "none.csv can't be read"),
        (&["--trace", "binary"], "binary is no text"),
        (&["--trace", "."], ". is a directory"),
        (&["--trace", "lives.csv", "--eviction-rate", "5%"], "leave one out"),
        (&["--no-save", "--state", "1MB"], "cannot be used with"),
        (&["--sizes", "Standard_D4s_v5", "--regions", "westeurope"], "cannot be used with"),
    ] {
        let ran = plan(&place, more);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.err.starts_with("error: ") && ran.err.contains(why), "{why}: {ran:?}");
    }
    for (args, why) in [
        (&["--jobs", "0"][..], "0 is not in 1..=1000000"),
        (&["--jobs", "-5"], "-5"),
        (&["--vms", "0"], "0 is not in 1..=10000"),
        (&["--boot", "40d"], "a day at most"),
        (&["--jobs", "5", "--job-time", "0s"], "longer than 0s"),
        (&["--jobs", "5"], "give --jobs and --job-time"),
        (
            &["--jobs", "5", "--job-time", "1h"],
            "give --sizes and --regions, or --spot-price and --regular-price",
        ),
        (&["--spot-price", "-1"], "above 0 and up to 1000"),
        (&["--regular-price", "1001"], "above 0 and up to 1000"),
        (&["--jobs", "5", "--job-time", "1h", "--spot-price", "2", "--regular-price", "1"], "exchange them"),
        (&["--sizes", "Standard_D4s_v5"], "--regions"),
    ] {
        let ran = place.run(&[&["plan"], args].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.err.contains(why), "{why}: {ran:?}");
    }
}

/// Plans sizes and regions on the mocks.
async fn online(place: &Place, azure: management::Config, args: &[&str]) -> Ran {
    let prices = PricesServer::start(Config::default()).await.expect("a mock");
    let azure = ManagementServer::start(azure).await.expect("a mock");
    let (prices, azure, cache) = (prices.url(), azure.url(), place.path("cache").display().to_string());
    let at = ["--prices-url", &prices, "--management-url", &azure, "--cache-dir", &cache];
    let mut command = place.command(&[&BATCH[..], args, &at].concat());
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs").into()
}

#[tokio::test]
async fn sizes_and_regions_have_a_table_each_the_best_first() {
    let place = Place::new();
    let args = [
        "--sizes",
        "Standard_D2s_v5,Standard_D4s_v5",
        "--regions",
        "westeurope,northeurope",
        "--speed",
        "standard_d4s_v5=2.1",
        "--subscription",
        SUBSCRIPTION,
        "--deadline",
        "12h",
    ];
    let ran = online(&place, management::Config::default(), &[&args[..], &["--json"]].concat()).await;
    let found: Value = serde_json::from_str(&ran.out).expect("JSON");
    let of = |table: &Value| {
        (table["size"].as_str().unwrap().to_owned(), table["region"].as_str().unwrap().to_owned())
    };
    let order: Vec<_> = found["tables"].as_array().unwrap().iter().map(of).collect();
    let names = |size: &str, region: &str| (size.to_owned(), region.to_owned());
    assert_eq!(
        order,
        [
            names("Standard_D4s_v5", "northeurope"),
            names("Standard_D4s_v5", "westeurope"),
            names("Standard_D2s_v5", "westeurope"),
        ]
    );
    let table = &found["tables"][1];
    assert_eq!(table["azure"]["eviction_rate"], serde_json::json!({ "low_percent": 0, "high_percent": 5 }));
    assert_eq!(table["azure"]["placement_score"], "high");
    assert_eq!(table["job_ms"], 1_142_858, "40 min at 2.1 times the speed");
    assert_eq!(table["worlds"][1]["name"], "5 % evicted an hour");
    assert_eq!(found["tables"][0]["worlds"].as_array().map(Vec::len), Some(1), "20+ has no upper end");
    assert_eq!(found["tables"][2]["worlds"][1]["name"], "20 % evicted an hour", "no rate is unknown, not 0");
    assert_eq!(found["problems"][0]["region"], "northeurope");
    assert_eq!(ran.code, Some(2), "a size is unknown in a region: {}", ran.err);
    let text = online(&place, management::Config::default(), &args).await;
    insta::assert_snapshot!(
        "online",
        format!("{}{}", text.out, text.err).replace("asked now", "kept for 0s")
    );
}

#[tokio::test]
async fn a_missing_role_is_said_and_the_plan_goes_on() {
    let place = Place::new();
    let denied =
        management::Config { reader: false, recommendations: false, ..management::Config::default() };
    let args = ["--sizes", "Standard_D4s_v5", "--regions", "westeurope", "--subscription", SUBSCRIPTION];
    let ran = online(&place, denied, &args).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for role in ["eviction rates are unknown", "\"Reader\"", "\"Compute Recommendations Role\""] {
        assert!(ran.err.contains(role), "{role} in {}", ran.err);
    }
    assert!(ran.out.contains("unknown: none, and 20 % of the machines an hour"), "{}", ran.out);
    let unasked = online(&place, management::Config::default(), &args[..4]).await;
    assert!(unasked.err.contains("give --subscription"), "{unasked:?}");
    let words: Vec<_> = unasked.out.split_whitespace().collect();
    assert!(words.join(" ").contains("(measured: the Retail Prices API, asked now)"), "{unasked:?}");
}

#[tokio::test]
async fn sizes_without_spot_or_speed_have_a_sentence() {
    let place = Place::new();
    for (sizes, region, code, why) in [
        ("Standard_X1", "westeurope", 2, "there is no price of size \"Standard_X1\""),
        ("Standard_B2ms", "westeurope", 2, "Standard_B2ms is of the B series"),
        ("Standard_D4s_v5", "chinaeast2", 2, "21Vianet"),
        ("Standard_D4s_v5", "mars", 2, "no VM has a price in region \"mars\""),
        ("Standard_D4s_v5,Standard_F16s", "westeurope", 2, "how fast jobs run on Standard_F16s is not known"),
    ] {
        let ran = online(
            &place,
            management::Config::default(),
            &["--sizes", sizes, "--regions", region, "--eviction-rate", "5%"],
        )
        .await;
        assert_eq!((ran.code, ran.out.as_str()), (Some(code), ""), "{ran:?}");
        assert!(ran.err.contains(why) && ran.err.lines().count() == 1, "{why}: {ran:?}");
    }
    let offline =
        ["--sizes", "Standard_D4s_v5", "--regions", "westeurope", "--eviction-rate", "5%", "--offline"];
    let fresh = Place::new();
    let none = online(&fresh, management::Config::default(), &offline).await;
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.err.contains("the cache has no price of Standard_D4s_v5"), "{none:?}");
}

#[test]
fn a_page_has_the_tables_and_curves_and_loads_nothing() {
    let place = Place::new();
    let args = ["--eviction-rate", "5-10%", "--deadline", "8h", "--html", "plan.html"];
    let ran = plan(&place, &args);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "see plan.html\n"));
    let page = std::fs::read_to_string(place.path("plan.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Take steady-fleet"), "{page}");
    // Cost and finish at both ends.
    assert_eq!(page.matches("class=\"curve\"").count(), 4);
    assert_eq!(page.matches("<tbody").count(), 1 + 7);
    for outside in ["<script", "<link", "src=\"http", "@import", "url(", "src=\"/"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let failed = plan(&place, &["--eviction-rate", "5%", "--html", "no/such/directory.html"]);
    assert!(failed.code == Some(2) && failed.err.contains("name another file"), "{failed:?}");
}

#[test]
fn names_of_files_cannot_become_markup_or_drive_the_terminal() {
    let place = Place::new();
    place.write("<script>\u{1b}[31m", FLEET);
    let trace = ["--trace", "<script>\u{1b}[31m"];
    let text = plan(&place, &trace);
    assert!(text.code == Some(0) && !text.out.contains('\u{1b}'), "{text:?}");
    assert_eq!(plan(&place, &[&trace[..], &["--html", "plan.html"]].concat()).code, Some(0));
    let page = std::fs::read_to_string(place.path("plan.html")).unwrap();
    assert!(
        !page.contains("<script") && !page.contains('\u{1b}') && page.contains("&lt;script&gt;"),
        "{page}"
    );
}

/// A job of three short steps, with a result.
#[derive(Debug)]
struct Quick;

#[async_trait]
impl Job for Quick {
    const KIND: &'static str = "quick";
    type Args = u32;
    type Checkpoint = u32;
    type Output = u32;

    fn begin(&self, _: &u32) -> u32 {
        0
    }

    async fn step(&self, _: &JobContext, args: &u32, at: u32) -> Result<Step<u32, u32>, JobError> {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(if at < 2 { Step::Continue(at + 1) } else { Step::Done(*args) })
    }
}

#[tokio::test]
async fn a_plan_like_a_batch_has_the_jobs_and_times_of_the_store() {
    let place = Place::new();
    let client = place.client().await;
    let like = [&["plan", "--like-batch", "--json", "--runs", "2", "--vms", "2"], &PRICES[..]].concat();
    let nothing = place.run(&like);
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(nothing.err.contains("no job was done in this store in the last 7d"), "{nothing:?}");

    let jobs = (0..12).map(|number| NewJob::of::<Quick>(&number).expect("arguments")).collect();
    client.producer().enqueue(jobs).await.expect("enqueued");
    let worker =
        Worker::builder(client.store().clone()).vm("workers_7").job(Quick).build().expect("a worker");
    let (stopper, stopping) = stopping();
    let running = tokio::spawn(worker.run(stopping));
    let store = client.store();
    until("all are done", async || {
        let results = store.blobs.list("results/").await.expect("a list");
        (results.len() == 12).then_some(())
    })
    .await;
    stopper.stop();
    running.await.expect("no panic");

    let ran = place.run(&like);
    let found = json(&ran);
    assert_eq!(found["jobs"], 12);
    let job_ms = found["tables"][0]["job_ms"].as_u64().unwrap();
    assert!((1..10_000).contains(&job_ms), "{job_ms}");
    let jobs = found["assumptions"].as_array().unwrap().iter().find(|it| it["subject"] == "jobs").unwrap();
    assert_eq!(jobs["kind"], "measured");
    assert!(jobs["source"].as_str().unwrap().starts_with("this store: 12 jobs in "), "{jobs}");
    // What is given comes first.
    let given = json(
        &place.run(&[&like[..], &["--job-time", "1h", "--jobs", "3", "--eviction-rate", "5%"]].concat()),
    );
    assert_eq!((&given["jobs"], &given["tables"][0]["job_ms"]), (&3.into(), &3_600_000.into()));
    assert_eq!(given["tables"][0]["worlds"][0]["name"], "5 % evicted an hour");
}
