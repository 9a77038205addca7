//! `reprieve prices`, on a mock of the Retail Prices API.

use reprieve_sim::management::{self, ManagementServer};
use reprieve_sim::prices::{Config, Fault, PricesServer};
use reprieve_testkit::{Lines, Process};
use serde_json::Value;

use crate::support::{LONG, Place, Ran, until};

const D4S: &str = "Standard_D4s_v5";

async fn mock() -> (Place, PricesServer) {
    (Place::new(), PricesServer::start(Config::default()).await.expect("a mock"))
}

/// Runs `reprieve prices …` with a cache of its own, while the mock runs.
async fn prices(place: &Place, url: &str, args: &[&str]) -> Ran {
    let cache = place.path("cache").display().to_string();
    let at = ["--prices-url", url, "--cache-dir", &cache];
    let mut command = place.command(&[&["prices"], args, &at].concat());
    tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs").into()
}

/// The prices of a size in western Europe.
async fn table(place: &Place, url: &str, more: &[&str]) -> Ran {
    prices(place, url, &[&["--size", D4S, "--region", "westeurope"], more].concat()).await
}

#[track_caller]
fn check(ran: &Ran, code: i32, out: &[&str], err: &[&str]) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    for (text, parts) in [(&ran.out, out), (&ran.err, err)] {
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in {ran:?}");
        assert!(!parts.is_empty() || text.is_empty(), "{ran:?}");
    }
}

#[test]
fn help_explains_prices_and_their_watch() {
    let place = Place::new();
    insta::assert_snapshot!("prices", place.succeeds(&["prices", "--help"]));
    insta::assert_snapshot!("prices_watch", place.succeeds(&["prices", "watch", "--help"]));
}

#[tokio::test]
async fn sizes_and_regions_have_a_row_each_and_what_is_missing_has_a_sentence() {
    let (place, mock) = mock().await;
    let args = ["--size", "standard_d4s_v5,Standard_B2ms", "--region", "westeurope,northeurope"];
    let ran = prices(&place, &mock.url(), &args).await;
    insta::assert_snapshot!("table", format!("{}{}", ran.out, ran.err));
    assert_eq!(ran.code, Some(2), "one size is unknown in a region");
    let euros = table(&place, &mock.url(), &["--currency", "eur", "--windows", "--json"]).await;
    let figures: Value = serde_json::from_str(&euros.out).unwrap();
    let price = &figures["prices"][0];
    assert_eq!(
        [&price["size"], &price["os"], &price["currency"], &price["from"], &price["problem"]],
        [&D4S.into(), &"windows".into(), &"EUR".into(), &"service".into(), &Value::Null]
    );
    assert!(euros.out.contains(r#""regular":0.38285,"spot":0.07657,"discount_permille":800,"#), "{euros:?}");
}

#[tokio::test]
async fn what_was_asked_for_is_kept_and_younger_prices_need_no_request() {
    let (place, mock) = mock().await;
    check(&table(&place, &mock.url(), &[]).await, 0, &["0.2300", "0.0460", "80.0 %  ", "now"], &[]);
    mock.set_spot_price(D4S, "0.1");
    check(&table(&place, &mock.url(), &[]).await, 0, &["0.0460"], &[]);
    assert_eq!(mock.requests().len(), 1);
    check(&table(&place, &mock.url(), &["--max-age", "0s"]).await, 0, &["0.1000"], &[]);
    // Another currency has prices of its own.
    check(&table(&place, &mock.url(), &["--currency", "EUR"]).await, 0, &["0.04254"], &[]);
}

#[tokio::test]
async fn a_service_that_fails_is_said_and_the_cache_takes_its_place() {
    let (place, mock) = mock().await;
    mock.inject(&Fault::Garbage("<html>sign in</html>".to_owned()), 1);
    let first = table(&place, &mock.url(), &[]).await;
    check(&first, 1, &[], &["error: failed to read the retail prices", "the cache has no price either"]);
    check(&table(&place, &mock.url(), &[]).await, 0, &["0.0460"], &[]);
    mock.inject(&Fault::Garbage("<html>sign in</html>".to_owned()), 1);
    let old = table(&place, &mock.url(), &["--max-age", "0s"]).await;
    check(&old, 0, &["0.0460"], &["is no page of prices", "1 price from the cache instead, up to ", " old"]);
    assert_eq!(old.err.lines().count(), 1, "{old:?}");
}

/// The cache's file for a size in western Europe, in US dollars.
fn cached(place: &Place, mock: &PricesServer) -> std::path::PathBuf {
    let service = mock.url().replace("http://", "").replace(':', "_");
    place.path("cache").join(service).join("USD/westeurope/standard_d4s_v5.json")
}

/// Changes what the cache has of a size.
fn change_cache(file: &std::path::Path, change: impl FnOnce(&mut Value)) {
    let kept = std::fs::read(file).expect("a file of the cache");
    let mut kept: Value = serde_json::from_slice(&kept).expect("JSON");
    change(&mut kept);
    std::fs::write(file, kept.to_string()).expect("written");
}

#[tokio::test]
async fn a_price_of_the_cache_that_has_ended_is_asked_for_again() {
    let (place, mock) = mock().await;
    check(&table(&place, &mock.url(), &[]).await, 0, &["0.0460"], &[]);
    mock.set_spot_price(D4S, "0.1");
    let file = cached(&place, &mock);
    // It was asked for ten minutes ago, and the prices ended one minute ago.
    change_cache(&file, |kept| {
        let asked = kept["asked_unix_ms"].as_i64().unwrap();
        kept["asked_unix_ms"] = (asked - 600_000).into();
        let end = jiff::Timestamp::from_millisecond(asked - 60_000).unwrap().to_string();
        for meter in kept["meters"].as_array_mut().unwrap() {
            meter["effectiveEndDate"] = end.clone().into();
        }
    });
    let offline = table(&place, &mock.url(), &["--offline"]).await;
    check(&offline, 1, &[], &["in the cache has ended; ask the service for the new one"]);
    assert!(!offline.err.contains("not for sale"), "{offline:?}");
    check(&table(&place, &mock.url(), &[]).await, 0, &["0.1000", "now"], &[]);
    let requests = mock.requests().len();
    check(&table(&place, &mock.url(), &[]).await, 0, &["0.1000"], &[]);
    assert_eq!(mock.requests().len(), requests, "what the service said now is kept");
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_said_also_of_the_cache() {
    let (place, mock) = mock().await;
    mock.inject(&Fault::Changed("\"meterName\"".to_owned(), "\"name\"".to_owned()), 1);
    let said = "1 row of the prices of Standard_D4s_v5 in westeurope can't be read and left out";
    check(&table(&place, &mock.url(), &[]).await, 0, &["0.0460"], &[said, "missing field `meterName`"]);
    check(&table(&place, &mock.url(), &[]).await, 0, &["0.0460"], &[said]);
    assert_eq!(mock.requests().len(), 1);
    mock.inject(&Fault::Changed("\"meterName\"".to_owned(), "\"name\"".to_owned()), 1);
    check(&once(&place, &mock.url(), "0.06", &[]).await, 0, &["below"], &[said]);
}

#[tokio::test]
async fn a_file_of_another_region_in_the_cache_is_said_and_its_price_is_asked_for() {
    let (place, mock) = mock().await;
    check(&table(&place, &mock.url(), &[]).await, 0, &["0.0460"], &[]);
    let file = cached(&place, &mock);
    let other = file.to_str().unwrap().replace("westeurope", "northeurope");
    std::fs::create_dir_all(std::path::Path::new(&other).parent().unwrap()).unwrap();
    std::fs::copy(&file, &other).unwrap();
    let ran = prices(&place, &mock.url(), &["--size", D4S, "--region", "northeurope"]).await;
    check(&ran, 0, &["0.02568", "now"], &["has prices of another size, region or currency"]);
    let again = prices(&place, &mock.url(), &["--size", D4S, "--region", "northeurope"]).await;
    check(&again, 0, &["0.02568"], &[]);
}

#[tokio::test]
async fn empty_variables_of_the_cache_are_as_if_they_were_not_set() {
    let (place, mock) = mock().await;
    let home = place.path("home");
    let args = ["prices", "--size", D4S, "--region", "westeurope", "--prices-url", &mock.url()];
    let mut command = place.command(&args);
    command.env("HOME", &home).env("XDG_CACHE_HOME", "").env("REPRIEVE_CACHE_DIR", "");
    let ran =
        tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs");
    check(&ran.into(), 0, &["0.0460"], &[]);
    assert!(home.join(".cache/reprieve/prices").is_dir());
}

#[tokio::test]
async fn offline_shows_the_cache_alone_and_its_age_or_what_to_do() {
    let (place, mock) = mock().await;
    let empty = table(&place, &mock.url(), &["--offline"]).await;
    check(
        &empty,
        1,
        &[],
        &["the cache has no price of Standard_D4s_v5 in westeurope in USD", "without --offline"],
    );
    check(&table(&place, &mock.url(), &[]).await, 0, &["0.0460"], &[]);
    let requests = mock.requests().len();
    // Two days later.
    let file = cached(&place, &mock);
    change_cache(&file, |kept| {
        kept["asked_unix_ms"] = (kept["asked_unix_ms"].as_i64().unwrap() - 172_800_000).into();
    });
    let offline = table(&place, &mock.url(), &["--offline"]).await;
    check(&offline, 0, &["0.0460", "2d"], &["offline: prices are from the cache in ", "up to 2d"]);
    assert_eq!(mock.requests().len(), requests);
    // Online, a price of that age is asked for again.
    check(&table(&place, &mock.url(), &[]).await, 0, &["now"], &[]);
    std::fs::write(&file, "{").unwrap();
    let damaged = table(&place, &mock.url(), &["--offline"]).await;
    check(&damaged, 1, &[], &["a price of the cache is left out", "is damaged", "without --offline"]);
}

#[tokio::test]
async fn wrong_usage_is_one_sentence() {
    let (place, mock) = mock().await;
    for (size, region, more, why) in [
        ("D4'", "westeurope", &[][..], "\"D4'\" is no VM size"),
        (D4S, "West Europe", &[], "\"West Europe\" is no region"),
        (D4S, "westeurope", &["--currency", "euro"], "is no currency"),
        (D4S, "mars", &[], "no VM has a price in region \"mars\""),
        ("Standard_X1", "westeurope", &[], "there is no price of size \"Standard_X1\""),
    ] {
        let ran = prices(&place, &mock.url(), &[&["--size", size, "--region", region], more].concat()).await;
        check(&ran, 2, &[], &["error: ", why]);
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    }
    let plain = table(&place, "http://prices.example", &[]).await;
    check(&plain, 2, &[], &["plain http"]);
    let missing = place.run(&["prices"]);
    check(&missing, 2, &[], &["--size <SIZES>", "--region <REGIONS>"]);
}

#[tokio::test]
async fn a_subscription_adds_what_azure_knows_and_a_missing_role_is_said() {
    const ID: &str = "00000000-0000-0000-0000-000000000001";

    let (place, mock) = mock().await;
    let ask = async |config: management::Config, more: &[&str]| {
        let azure = ManagementServer::start(config).await.expect("a mock");
        let args =
            ["--size", "Standard_D4s_v5,Standard_D2s_v5", "--region", "westeurope", "--subscription", ID];
        let at = azure.url();
        prices(&place, &mock.url(), &[&args, &["--management-url", &at][..], more].concat()).await
    };
    let all = ask(management::Config::default(), &[]).await;
    insta::assert_snapshot!("subscription", format!("{}{}", all.out, all.err));
    let json = ask(management::Config::default(), &["--json"]).await;
    let figures: Value = serde_json::from_str(&json.out).unwrap();
    let (known, unknown) = (&figures["prices"][0]["azure"], &figures["prices"][1]["azure"]);
    assert_eq!(known["eviction_rate"], serde_json::json!({ "low_percent": 0, "high_percent": 5 }));
    assert_eq!((&known["placement_score"], &known["quota_available"]), (&"high".into(), &true.into()));
    assert_eq!(known["past_prices_usd"].as_array().map(Vec::len), Some(2));
    assert_eq!(unknown["eviction_rate"], Value::Null, "an empty text is unknown, not 0");

    let denied =
        management::Config { reader: false, recommendations: false, ..management::Config::default() };
    let denied = ask(denied, &[]).await;
    check(&denied, 0, &["0.0460", "unknown"], &["eviction rates are unknown", "\"Reader\""]);
    check(&denied, 0, &["0.0230"], &["placement scores are unknown", "\"Compute Recommendations Role\""]);
}

/// Compares once with this max price.
async fn once(place: &Place, url: &str, max: &str, more: &[&str]) -> Ran {
    let args = ["watch", "--once", "--size", D4S, "--region", "westeurope", "--max-price", max];
    prices(place, url, &[&args, more].concat()).await
}

#[tokio::test]
async fn one_comparison_exits_with_its_result() {
    let (place, mock) = mock().await;
    for (max, more, code, verdict) in [
        (
            "0.06",
            &[][..],
            0,
            "below    Spot 0.0460 USD of max 0.0600 USD, 23.3 % left, Standard_D4s_v5 in westeurope",
        ),
        ("0.05", &[], 3, "close    Spot 0.0460 USD of max 0.0500 USD, 8.0 % left"),
        ("0.05", &["--margin", "5%"], 0, "below    "),
        ("0.06", &["--margin", "25%"], 3, "close    "),
        ("0.046", &[], 4, "reached  "),
        ("0.04", &[], 4, "-15.0 % left"),
        ("0.04", &["--windows"], 4, "Spot 0.0828 USD of max 0.0400 USD"),
    ] {
        let ran = once(&place, &mock.url(), max, more).await;
        check(
            &ran,
            code,
            &[verdict],
            if code == 0 { &[] } else { &["az vm deallocate", "never the max price"] },
        );
    }
    let json = once(&place, &mock.url(), "0.05", &["--json"]).await;
    let line: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&line["verdict"], &line["left_permille"]), (&"close".into(), &80.into()), "{json:?}");
    assert_eq!(line["commands"][1], "az vm update --resource-group GROUP --name VM --max-price -1");
}

#[tokio::test]
async fn a_comparison_never_takes_a_price_of_the_cache() {
    let (place, mock) = mock().await;
    check(&once(&place, &mock.url(), "0.06", &[]).await, 0, &["below"], &[]);
    mock.set_spot_price(D4S, "0.07");
    check(&once(&place, &mock.url(), "0.06", &[]).await, 4, &["reached"], &["none can be created"]);
    mock.inject(&Fault::Garbage(String::new()), 1);
    check(
        &once(&place, &mock.url(), "0.06", &[]).await,
        1,
        &[],
        &["error: failed to read the retail prices"],
    );
    for (max, why) in [
        ("-1", "nothing to watch"),
        ("0.000001", "five decimals"),
        ("1e-9", "a plain number above 0"),
        ("free", "five decimals"),
    ] {
        check(&once(&place, &mock.url(), max, &[]).await, 2, &[], &[why]);
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_watch_reports_each_comparison_and_advises_when_the_verdict_changes() {
    use reprieve_testkit::Signal;

    let (place, mock) = mock().await;
    let (url, cache) = (mock.url(), place.path("cache").display().to_string());
    let args = [
        "prices",
        "watch",
        "--size",
        D4S,
        "--region",
        "westeurope",
        "--max-price",
        "0.05",
        "--every",
        "50ms",
    ];
    let at = ["--margin", "1%", "--json", "--prices-url", &url, "--cache-dir", &cache];
    let mut watch = Process::start(&mut place.command(&[&args[..], &at[..]].concat()));
    let (out, err) = (Lines::of(watch.stdout()), Lines::of(watch.stderr()));
    let verdict = async |verdict: &str| {
        let line = until(verdict, async || out.find(|line| line.contains(verdict))).await;
        serde_json::from_str::<Value>(&line).expect("JSON")
    };
    assert_eq!(verdict(r#""verdict":"below""#).await["left_permille"], 80);
    mock.inject(&Fault::Garbage(String::new()), 1);
    until("a failure is said", async || err.find(|line| line.contains("next comparison is in 50ms"))).await;
    // After a price was found this is a bad day of the service, and no wrong usage.
    mock.inject(&Fault::Busy { status: 404, retry_after_seconds: None }, 1);
    until("another is said", async || err.find(|line| line.contains("404"))).await;
    mock.set_spot_price(D4S, "0.0499");
    verdict(r#""verdict":"close""#).await;
    mock.set_spot_price(D4S, "0.06");
    verdict(r#""verdict":"reached""#).await;
    let lines = out.all().len();
    until("it goes on", async || (out.all().len() > lines + 3).then_some(())).await;
    watch.signal(Signal::TERM);
    assert_eq!(watch.ended(LONG).await.code(), Some(0));
    let advised =
        err.all().iter().filter(|line| line.contains("MaxPriceChangeNotAllowedForAllocatedVMs")).count();
    assert_eq!(advised, 2, "{err:?}");
}
