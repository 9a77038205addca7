//! `reprieve plan` for sizes and regions, on mocks of Azure's services.

use reprieve_sim::management::{self, ManagementServer};
use reprieve_sim::prices::{Config, PricesServer};
use serde_json::Value;

use super::BATCH;
use crate::support::{Place, Ran};

const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000001";

/// Plans sizes and regions on the mocks.
async fn online(place: &Place, azure: management::Config, args: &[&str]) -> Ran {
    online_of(place, azure, &[&BATCH[..], args].concat()).await
}

async fn online_of(place: &Place, azure: management::Config, args: &[&str]) -> Ran {
    let prices = PricesServer::start(Config::default()).await.expect("a mock");
    let azure = ManagementServer::start(azure).await.expect("a mock");
    let (prices, azure, cache) = (prices.url(), azure.url(), place.path("cache").display().to_string());
    let at = ["--prices-url", &prices, "--cache-dir", &cache];
    let mut command = place.command(&[args, &at].concat());
    command.env("REPRIEVE_MANAGEMENT_URL", &azure);
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
    insta::assert_snapshot!("online", format!("{}{}", text.out, text.err));
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
        ("Standard_D4s_v5,", "westeurope", 2, "--sizes has an empty name: leave out the comma"),
        ("Standard_D4s_v5,standard_d4s_v5", "westeurope", 2, "--sizes names standard_d4s_v5 twice"),
        ("Standard_D4s_v5", "westeurope,West Europe", 2, "--regions names West Europe twice"),
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

/// Each size is asked about with its own number of VMs.
#[tokio::test]
async fn a_question_about_scores_that_is_refused_loses_no_other_answer() {
    let place = Place::new();
    let batch = ["plan", "--jobs", "200", "--job-time", "40m", "--runs", "5", "--deadline", "9h"];
    let sizes = ["--sizes", "Standard_D4s_v5,Standard_D2s_v5", "--speed", "Standard_D2s_v5=0.25"];
    let more = ["--regions", "westeurope", "--subscription", SUBSCRIPTION];
    let args = [&batch[..], &sizes, &more].concat();
    let limited = management::Config { scores_up_to: 40, ..management::Config::default() };
    let ran = online_of(&place, limited, &args).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("placement high") && ran.out.contains("placement unknown"), "{ran:?}");
    assert_eq!(ran.err.matches("placement scores are unknown").count(), 1, "{ran:?}");
}

#[tokio::test]
async fn vms_with_windows_have_no_lines_for_templates_that_deploy_linux() {
    let place = Place::new();
    let args =
        ["--sizes", "Standard_D4s_v5", "--regions", "westeurope", "--eviction-rate", "5%", "--windows"];
    let ran = online(&place, management::Config::default(), &args).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("deploy  by means of your own: infra/ deploys Linux VMs only\n"), "{ran:?}");
    assert!(!ran.out.contains("param "), "{ran:?}");
    let json = online(&place, management::Config::default(), &[&args[..], &["--json"]].concat()).await;
    let found: Value = serde_json::from_str(&json.out).expect("JSON");
    let rows = found["tables"][0]["strategies"].as_array().expect("rows");
    assert!(rows.iter().all(|row| row["bicepparam"].as_array().is_some_and(Vec::is_empty)), "{found}");
}

#[tokio::test]
async fn a_speed_that_is_given_twice_is_refused() {
    let place = Place::new();
    let args = ["--sizes", "Standard_D4s_v5", "--regions", "westeurope", "--eviction-rate", "5%", "--speed"];
    let twice = "Standard_D4s_v5=2,standard_d4s_V5=3";
    let ran = online(&place, management::Config::default(), &[&args[..], &[twice]].concat()).await;
    assert!(
        ran.code == Some(2) && ran.err.contains("--speed names standard_d4s_V5 twice: give it once"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn a_flag_of_requests_for_rates_that_are_not_asked_for_is_refused() {
    let place = Place::new();
    let args =
        ["--sizes", "Standard_D4s_v5", "--regions", "westeurope", "--management-url", "http://127.0.0.1:1"];
    let ran = online(&place, management::Config::default(), &args).await;
    assert!(ran.code == Some(2) && ran.err.contains("is for what --subscription asks"), "{ran:?}");
}
