//! `reprieve plan`: with given prices, and with traces.

mod like_batch;
mod online;

use serde_json::Value;

use crate::support::{Place, Ran};

const FLEET: &str = include_str!("../../../../reprieve-plan/traces/aws-p3-fleet.csv");
const LIVES: &str = include_str!("../../../../reprieve-plan/traces/gcp-lifetimes.csv");

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
fn small_numbers_are_not_shown_as_none() {
    let place = Place::new();
    let rare = plan(&place, &["--eviction-rate", "0.01%"]);
    assert!(rare.out.contains("0.01 % of the machines an hour") && !rare.out.contains(" 0 %  "), "{rare:?}");
    let short = ["plan", "--jobs", "60", "--job-time", "884ms", "--runs", "2", "--eviction-rate", "1%"];
    let short = place.run(&[&short[..], &PRICES, &["--boot", "500ms", "--notice", "700ms"]].concat());
    for words in ["60 of 884 ms on average", "500 to 500 ms, billed", "700 ms for 100 % of the evictions"] {
        assert!(short.out.contains(words), "{words} in {short:?}");
    }
}

#[test]
fn small_money_is_not_shown_as_none() {
    let place = Place::new();
    let batch = [
        "plan",
        "--jobs",
        "1",
        "--job-time",
        "1ms",
        "--vms",
        "1",
        "--boot",
        "0s",
        "--runs",
        "2",
        "--eviction-rate",
        "0%",
    ];
    let prices = ["--spot-price", "0.0000004", "--regular-price", "0.2", "--budget-usd", "0.0000001"];
    let tiny = place.run(&[&batch[..], &prices].concat());
    for words in ["for 0.0000001 USD at most", "Spot 0.0000004, regular 0.200000"] {
        assert!(tiny.out.contains(words), "{words} in {tiny:?}");
    }
    let rows = tiny.out.lines().filter(|line| line.contains("<0.0001   <0.0001"));
    assert_eq!(rows.count(), 5, "{tiny:?}");
}

#[test]
fn the_interval_of_saves_is_that_of_the_assumptions() {
    let place = Place::new();
    let found = json(&plan(&place, &["--json", "--eviction-rate", "5%", "--save-cost", "1m"]));
    let said =
        found["assumptions"].as_array().unwrap().iter().find(|it| it["subject"] == "checkpoint interval");
    let every_ms = found["tables"][0]["worlds"][0]["checkpoint_every_ms"].as_u64().expect("an interval");
    assert_eq!(said.unwrap()["value"], format!("{} s", every_ms / 1_000));
}

#[test]
fn saves_that_take_most_of_the_time_are_the_reason_that_nothing_is_done() {
    let place = Place::new();
    let ran = plan(&place, &["--eviction-rate", "5%", "--save-cost", "590s", "--deadline", "8h"]);
    let words = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("longer than the work that it protects, so make saves shorter"), "{words}");
    assert!(!words.contains("allow more time"), "{words}");
}

#[test]
fn deadline_policies_are_left_out_for_jobs_that_save_nothing_and_it_is_said() {
    let place = Place::new();
    place.write("series.json", r#"{"metadata":{"gap_seconds":600},"data":[1,1,1,1,1,0,0,1,1,1]}"#);
    let found = json(&plan(&place, &["--json", "--trace", "series.json", "--deadline", "10h", "--no-save"]));
    assert_eq!(found["tables"][0]["policies"], serde_json::json!([]));
    let said =
        found["assumptions"].as_array().unwrap().iter().find(|it| it["subject"] == "deadline policies");
    assert_eq!(said.expect("a sentence")["value"], "left out");
}

#[test]
fn a_series_without_a_loss_says_how_sure_that_is() {
    let place = Place::new();
    place.write("calm.json", r#"{"metadata":{"gap_seconds":3600},"data":[1,1,1,1,1,1,1,1,1,1]}"#);
    let words = plan(&place, &["--trace", "calm.json"]).out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("with 95 % there is a loss in no more than 25.9 % of the hours"), "{words}");
    assert!(words.contains("; the trace has no loss, so it may cost more"), "{words}");
}

#[test]
fn traffic_to_a_store_in_another_region_is_part_of_the_cost() {
    let place = Place::new();
    let cost = |more: &[&str]| {
        let args =
            [&["--json", "--eviction-rate", "5%", "--state", "1GB", "--save-cost", "5s"], more].concat();
        let found = json(&plan(&place, &args));
        let figures = &row(&found["tables"][0], "elastic")["worlds"][0];
        let number = |value: &Value| value.as_f64().expect("a number");
        (number(&figures["cost_usd"]["mean"]), number(&figures["parts_usd"]["traffic"]))
    };
    let (free, none) = cost(&[]);
    let (paid, traffic) = cost(&["--traffic-price", "0.02"]);
    assert!(
        none == 0.0 && traffic > 1.0 && (paid - free - traffic).abs() < 0.001,
        "{free}, {paid}, {traffic}"
    );
    let few = plan(&place, &["--eviction-rate", "5%", "--state", "40B", "--traffic-price", "0.02"]);
    assert!(few.out.contains("0.000000001 USD for each save and each restore"), "{few:?}");
    let alone = plan(&place, &["--traffic-price", "0.02"]);
    assert!(alone.code == Some(2) && alone.err.contains("--state"), "{alone:?}");
}

#[test]
fn a_price_history_is_compared_with_the_maximum() {
    let place = Place::new();
    let rows = ["2026-01-01T00:00:00Z,0.04", "2026-01-01T01:01:00Z,0.09", "2026-01-01T02:00:00Z,0.04"];
    place.write("prices.csv", format!("since_utc,price_usd\n{}\n", rows.join("\n")));
    // Four jobs of half an hour on one machine that boots at once: two before the price rises, two after it fell.
    let batch = [
        "plan",
        "--jobs",
        "4",
        "--job-time",
        "30m",
        "--vms",
        "1",
        "--boot",
        "0s",
        "--no-save",
        "--notice",
        "none",
        "--eviction-rate",
        "0%",
        "--runs",
        "1",
        "--regular-price",
        "0.23",
        "--price-history",
        "prices.csv",
    ];
    let limited = place.run(&[&batch[..], &["--max-price", "0.05", "--escalate-after", "2"]].concat());
    let words = limited.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "maximum price 0.050000 USD an hour: a machine is evicted when the price passes it",
        "Spot prices over time 3 prices in 2h, from 0.0400 to 0.0900 USD",
        "(measured: prices.csv)",
        "swap up to 2 regular machines for jobs after 2 interruptions without progress (given)",
        "deploy by these lines of a .bicepparam file, with \"maxPrice\": \"0.0500\" in infra/fleets.json",
    ] {
        assert!(words.contains(said), "{said} in {words}");
    }
    let cost = |more: &[&str], name: &str| {
        let found = json(&place.run(&[&batch[..], &["--json"], more].concat()));
        let row = row(&found["tables"][0], name);
        (row["worlds"][0]["cost_usd"]["mean"].as_f64(), row["max_price_usd"].as_f64())
    };
    // 121 min at 4 cents, or 61 at 4 and 59 at 9; a save costs nothing, because there is none.
    assert_eq!(cost(&["--max-price", "0.05"], "steady-fleet"), (Some(0.080_667), Some(0.05)));
    assert_eq!(cost(&["--max-price", "0.05"], "steady"), (Some(0.129_167), None));
    assert_eq!(cost(&[], "steady-fleet"), (Some(0.129_167), None));
    for (more, why) in [
        (&["--max-price", "0.03"][..], "the Spot price is above the maximum price at all times"),
        (&["--max-price", "-1"], "at most five decimals"),
        (&["--spot-price", "0.04"], "cannot be used with"),
        (&["--escalation-instances", "101"], "infra/ deploys no more of them"),
        (&["--escalate-after", "0"], "0 is not in 1..=1000"),
    ] {
        let ran = place.run(&[&batch[..], more].concat());
        assert!(ran.code == Some(2) && ran.err.contains(why), "{why}: {ran:?}");
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
    assert!(ran.out.contains("deploy  by means of your own: "), "{ran:?}");
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
    let many = [
        "plan",
        "--jobs",
        "5000",
        "--job-time",
        "40m",
        "--runs",
        "1",
        "--eviction-rate",
        "1%",
        "--deadline",
        "4h",
    ];
    let most = place.run(&[&many[..], &PRICES].concat());
    assert!(
        most.out.contains("up to 1000, one job") && most.out.contains("the most that infra/"),
        "{most:?}"
    );
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
fn a_ledger_that_tells_names_the_hour_to_begin() {
    let place = Place::new();
    // Ten machines a day for 40 days, of which three go at 14:30.
    let life = |number: u64| {
        let (day, evicted) = (number / 10 * 86_400_000, number % 10 < 3);
        let until = day + if evicted { 52_200_000 } else { 86_399_000 };
        format!(r#"{{"priority":"Spot","seen_unix_ms":{day},"until_unix_ms":{until},"evicted":{evicted}}}"#)
    };
    let lives: Vec<_> = (0..400).map(life).collect();
    place.write("ledger.json", format!(r#"{{"since_unix_ms":0,"lives":[{}]}}"#, lives.join(",")));
    let found = json(&plan(&place, &["--json", "--trace", "ledger.json"]));
    let begin = &found["tables"][0]["begin"];
    let hour = begin["hour_utc"].as_u64().expect("an hour");
    // The run takes up to five hours, and is over before.
    assert!(!(10..=14).contains(&hour), "{begin}");
    let text = plan(&place, &["--trace", "ledger.json"]);
    assert!(text.out.contains("\nwhen    begin at "), "{text:?}");
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
        (&["--deadline", "30s"], "the deadline of 30 s can't be met: regular machines alone take 245 min"),
        (&["--trace", "adds.csv"], "adds.csv: no machine left the fleet"),
        (&["--trace", "none.csv"], "none.csv can't be read"),
        (&["--trace", "binary"], "binary is no text"),
        (&["--trace", "."], ". is a directory"),
        (&["--trace", "lives.csv", "--eviction-rate", "5%"], "leave one out"),
        (&["--no-save", "--state", "1MB"], "cannot be used with"),
        (&["--notice", "9999999h"], "an hour before the eviction at most"),
        (&["--base-instances", "10"], "--base-instances 10 leaves no Spot VM of 10"),
        (&["--base-instances", "0"], "without a base `balanced` is `elastic`"),
        (&["--regular-percent-above-base", "100"], "with 100 no VM would be Spot"),
        (&["--sizes", "Standard_D4s_v5", "--regions", "westeurope"], "cannot be used with"),
        (&["--regions", "westeurope"], "cannot be used with '--regions <REGIONS>'"),
        (&["--regions", "westeurope", "--windows"], "cannot be used with"),
        (&["--windows"], "cannot be used with '--windows'"),
        (&["--speed", "Standard_D4s_v5=2"], "cannot be used with"),
        (&["--no-save", "--traffic-price", "0.02"], "cannot be used with"),
        (&["--deadline", "-1h"], "invalid value '-1h' for '--deadline <DURATION>'"),
        (&["--save-cost", "-1s"], "invalid value '-1s' for '--save-cost <DURATION>'"),
        (&["--boot", "-1m"], "it must be one time or two"),
        (&["--notice", "-30s"], "or none"),
        (&["--state", "-1MB"], "a number and a unit"),
        (&["--refused", "-5%"], "from 0% to 100%"),
        (&["--slots", "-1"], "-1 is not in 1..=1024"),
        (&["--offline"], "--offline is for prices that are asked for: leave it out"),
        (&["--max-age", "5m"], "--max-age is for prices that are asked for"),
        (&["--prices-url", "http://127.0.0.1:1"], "--prices-url is for prices that are asked for"),
        (&["--cache-dir", "cache"], "--cache-dir is for prices that are asked for"),
        (&["--management-url", "http://127.0.0.1:1"], "--management-url is for prices that are asked for"),
        (&["--store", "sqlite:x.db"], "--store is for the store of --like-batch: give both"),
        (&["--queue", "jobs"], "--queue is for the store of --like-batch: give both"),
        (&["--trace", "lives.csv", "--eviction-rate", "unknown"], "that nothing is known: leave one out"),
        (&["--save-cost", "20m"], "a save takes 20 min, and jobs save again 10 min after they began to"),
    ] {
        let ran = plan(&place, more);
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.err.starts_with("error: ") && ran.err.contains(why), "{why}: {ran:?}");
    }
    for (variable, value) in [("REPRIEVE_CACHE_DIR", "cache"), ("REPRIEVE_STORE", "sqlite:x.db")] {
        let args = [&BATCH[..], &PRICES, &["--eviction-rate", "5%"]].concat();
        let ran: Ran = place.command(&args).env(variable, value).output().expect("it runs").into();
        assert_eq!(ran.code, Some(0), "a variable is for other commands: {ran:?}");
    }
    for (args, why) in [
        (&["--jobs", "0"][..], "0 is not in 1..=1000000"),
        (&["--jobs", "-5"], "-5"),
        (&["--vms", "0"], "from 1 to 1000: infra/ deploys no more VMs"),
        (&["--vms", "1001"], "from 1 to 1000: infra/ deploys no more VMs"),
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
