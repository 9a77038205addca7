//! `reprieve doctor`, on the storage double, on Azurite, on embedded stores, and without any
//! answer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use reprieve_sim::metadata::{Config as MetadataConfig, MetadataServer};
use reprieve_sim::storage::{Action, Config, Latency, Operation, Rule, StorageServer};
use reprieve_testkit::RedisServer;
use serde_json::Value;
use tokio::time::Instant;

use crate::support::{Place, Ran};

/// The time limit of all checks together.
const ALL_MAX: Duration = Duration::from_secs(60);

async fn double() -> StorageServer {
    StorageServer::start(Config::default()).await.expect("free ports")
}

/// Runs the doctor on a store, without a metadata service unless `args` has one.
async fn doctor(place: &Place, store: &str, args: &[&str]) -> Ran {
    let mut command = place.command(&[&["doctor"], args].concat());
    command.env("REPRIEVE_STORE", store);
    if !args.contains(&"--metadata-url") {
        command.args(["--metadata-url", "off"]);
    }
    let began = Instant::now();
    let ran = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
    assert!(began.elapsed() < ALL_MAX, "{:?}", began.elapsed());
    ran.expect("it runs").into()
}

/// As [`doctor`], as JSON.
async fn report(place: &Place, store: &str, args: &[&str]) -> (Option<i32>, Value) {
    let ran = doctor(place, store, &[args, &["--json"]].concat()).await;
    assert_eq!(ran.err, "");
    (ran.code, serde_json::from_str(&ran.out).expect("JSON"))
}

#[track_caller]
fn finding<'a>(report: &'a Value, name: &str) -> &'a Value {
    let findings = report["findings"].as_array().expect("findings");
    findings.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

#[track_caller]
fn assert_finding(report: &Value, name: &str, state: &str, words: &[&str]) {
    let finding = finding(report, name);
    assert_eq!(finding["state"], state, "{finding:#}");
    let text = finding.to_string();
    for words in words {
        assert!(text.contains(words), "{words:?} is not in {finding:#}");
    }
}

/// Replaces numbers, which differ from run to run, by `#`.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            '.' if out.ends_with('#') => {}
            c => out.push(c),
        }
    }
    out
}

fn figures_without_numbers(report: &mut Value) {
    match report {
        Value::Number(_) => *report = "#".into(),
        Value::String(text) => *text = without_numbers(text),
        Value::Array(values) => values.iter_mut().for_each(figures_without_numbers),
        Value::Object(values) => values.values_mut().for_each(figures_without_numbers),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Puts a message as another program would, with a time to live in seconds.
fn put(double: &StorageServer, queue: &str, lives: i32) {
    let url = double.queue_url();
    let (host, path) = url.trim_start_matches("http://").split_once('/').expect("a path");
    let body = "<QueueMessage><MessageText>MQ==</MessageText></QueueMessage>";
    let mut stream = TcpStream::connect(host).expect("it listens");
    write!(
        stream,
        "POST /{path}/{queue}/messages?messagettl={lives}&sig=any HTTP/1.1\r\nhost: {host}\r\nx-ms-version: 2026-04-06\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}

/// Creates the queues and the container, as a first enqueue does.
async fn made(place: &Place, store: &str) {
    let mut command = place.command(&["enqueue", "resize", "--force"]);
    command.env("REPRIEVE_STORE", store);
    let output =
        tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs");
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_good_account_is_well_and_stays_as_it_is() {
    let (place, double) = (Place::new(), double().await);
    let store = double.connection_string();
    made(&place, &store).await;
    double.reset_counts();
    let args = ["--concurrency", "4"];
    let ran = doctor(&place, &store, &args).await;
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    insta::assert_snapshot!("text", without_numbers(&ran.out));
    let counts = double.counts();
    assert_eq!(counts.answered(Operation::QueueCreate, 201), counts.answered(Operation::QueueDelete, 204));
    assert_eq!((counts.requests(Operation::ContainerCreate), counts.requests(Operation::BlobDelete)), (0, 2));

    let (code, mut json) = report(&place, &store, &args).await;
    assert_eq!(code, Some(0));
    assert_eq!(finding(&json, "queue default")["figures"]["messages"], 1);
    assert_eq!(finding(&json, "round trip")["figures"]["samples"], 20);
    figures_without_numbers(&mut json);
    insta::assert_json_snapshot!("json", json);
    double.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_the_machine_does_not_have_is_a_warning() {
    let (place, double) = (Place::new(), double().await);
    let store = double.connection_string();
    made(&place, &store).await;
    place.write("reprieve.toml", "[kinds.render]\nmemory = '900TiB'\n[kinds.small]\nmemory = '1B'\n");
    let (code, report) = report(&place, &store, &["--memory-reserve", "800TiB"]).await;
    let findings = report["findings"].as_array().expect("findings");
    let texts: Vec<_> = findings.iter().filter(|one| one["name"] == "memory").map(Value::to_string).collect();
    let [reserve, kind] = texts.as_slice() else { panic!("{texts:#?}") };
    assert!(reserve.contains("--memory-reserve is 838860800 MiB"), "{reserve}");
    assert!(kind.contains("kind \\\"render\\\""), "{kind}");
    assert_eq!((code, report["warnings"].as_u64()), (Some(0), Some(2)), "{report:#}");
    double.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_that_is_missing_is_a_problem_with_its_cure() {
    for (operation, name) in [
        (Operation::Send, "queue roles: send"),
        (Operation::Receive, "queue roles: receive"),
        (Operation::Update, "queue roles: renew"),
        (Operation::Update, "queue roles: release"),
        (Operation::Delete, "queue roles: delete"),
        (Operation::Peek, "queue roles: peek"),
        (Operation::BlobPut, "blob roles: write"),
        (Operation::BlobGet, "blob roles: read"),
        (Operation::BlobDelete, "blob roles: delete"),
    ] {
        let (place, double) = (Place::new(), double().await);
        let sas = format!(
            "BlobEndpoint={};QueueEndpoint={};SharedAccessSignature=sv=2022-11-02&sig=hunter2",
            double.blob_url(),
            double.queue_url()
        );
        made(&place, &sas).await;
        double.add_fault(Rule::new(Action::PermissionMismatch).on(operation)).expect("a rule");
        let (code, report) = report(&place, &sas, &[]).await;
        assert_eq!(code, Some(1), "{operation}");
        assert_finding(
            &report,
            name,
            "problem",
            &["the SAS does not permit this", "make one for the services b and q"],
        );
        assert!(!report.to_string().contains("hunter2"), "{report:#}");
        double.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_role_that_cannot_renew_is_named() {
    let (place, double) = (Place::new(), double().await);
    let store = double.connection_string();
    made(&place, &store).await;
    for operation in [Operation::QueueCreate, Operation::QueueProperties, Operation::Send, Operation::Update]
    {
        double.add_fault(Rule::new(Action::PermissionMismatch).on(operation)).expect("a rule");
    }
    double.reset_counts();
    let (code, report) = report(&place, &store, &[]).await;
    assert_eq!(code, Some(1));
    assert_finding(&report, "queue roles: renew", "problem", &["Storage Queue", "run twice"]);
    assert_finding(
        &report,
        "queue roles",
        "ok",
        &["receive not tried: it would take a job from a worker", "release not tried"],
    );
    assert_finding(&report, "queue roles: count", "warning", &[]);
    assert_finding(&report, "round trip", "skipped", &["no lease could be renewed"]);
    assert_eq!(double.counts().requests(Operation::Receive), 0);
    double.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_that_are_missing_are_a_problem_only_for_who_may_not_make_them() {
    let (place, double) = (Place::new(), double().await);
    let store = double.connection_string();
    let (code, well) = report(&place, &store, &[]).await;
    assert_eq!(code, Some(0), "{well:#}");
    assert_finding(&well, "queue default", "ok", &["does not exist yet"]);
    assert_finding(&well, "container", "ok", &["does not exist yet"]);
    for operation in [Operation::QueueCreate, Operation::ContainerCreate] {
        double.add_fault(Rule::new(Action::PermissionMismatch).on(operation)).expect("a rule");
    }
    let (code, ill) = report(&place, &store, &[]).await;
    assert_eq!(code, Some(1));
    assert_finding(&ill, "queue default", "problem", &["az storage queue create --name default"]);
    assert_finding(&ill, "container", "problem", &["az storage container create --name reprieve"]);
    assert_finding(&ill, "blob roles", "skipped", &["no container"]);
    double.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_expire_and_messages_that_are_poisoned_are_warned_of() {
    let (place, double) = (Place::new(), double().await);
    let store = double.connection_string();
    made(&place, &store).await;
    put(&double, "default", 3_600);
    put(&double, "default-poison", -1);
    let (code, report) = report(&place, &store, &[]).await;
    assert_eq!(code, Some(0), "{report:#}");
    assert_finding(
        &report,
        "expiry in default",
        "warning",
        &["1 of the next 2 messages", "time to live of -1"],
    );
    assert_finding(&report, "queue default-poison", "warning", &["1 message: jobs", "reprieve status"]);
    double.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_keeps_what_is_overwritten_is_a_warning_with_an_estimate() {
    let place = Place::new();
    for keeps_copies in [true, false] {
        let config = Config { keeps_copies, ..Config::default() };
        let double = StorageServer::start(config).await.expect("two free ports");
        let (code, found) = report(&place, &double.connection_string(), &["--checkpoint-every", "1m"]).await;
        assert_eq!(code, Some(0), "{found:#}");
        if keeps_copies {
            let expected =
                ["versioning and soft delete are on", "about 1008.0 GB a week", "--enable-versioning false"];
            assert_finding(&found, "copies", "warning", &expected);
        } else {
            assert!(!found.to_string().contains("\"copies\""), "{found:#}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_with_a_hierarchical_namespace_is_a_warning() {
    for has_directories in [true, false] {
        let (place, config) = (Place::new(), Config { has_directories, ..Config::default() });
        let double = StorageServer::start(config).await.expect("two free ports");
        let store = double.connection_string();
        made(&place, &store).await;
        let (code, found) = report(&place, &store, &[]).await;
        assert_eq!(code, Some(0), "{found:#}");
        if has_directories {
            assert_finding(&found, "hierarchical namespace", "warning", &["empty directories may stay"]);
        } else {
            assert!(!found.to_string().contains("hierarchical"), "{found:#}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_off_is_warned_of_and_then_a_problem() {
    for (seconds, code, state) in [(0, 0, "ok"), (4, 0, "warning"), (-120, 0, "warning"), (400, 1, "problem")]
    {
        let (place, double) = (Place::new(), double().await);
        double.add_fault(Rule::new(Action::SkewClock { seconds })).expect("a rule");
        let (exit, report) = report(&place, &double.connection_string(), &[]).await;
        assert_eq!(exit, Some(code), "{report:#}");
        let side = match seconds {
            1.. => "behind",
            0 => "",
            _ => "ahead of",
        };
        assert_finding(&report, "clock", state, &[side]);
        double.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_distant_store_is_weighed_against_lease_budget_and_concurrency() {
    let (place, double) = (Place::new(), double().await);
    double.set_latency(Latency { fixed_ms: 60, ..Latency::default() });
    let args = ["--lease", "1s", "--budget", "100ms", "--concurrency", "100"];
    let (code, report) = report(&place, &double.connection_string(), &args).await;
    assert_eq!(code, Some(0), "{report:#}");
    assert_finding(&report, "lease", "warning", &["use --lease"]);
    assert_finding(&report, "drain", "warning", &["receives at most 1", "longer --budget"]);
    let p50 = finding(&report, "round trip")["figures"]["p50_ms"].as_f64().expect("a number");
    assert!(p50 >= 60.0, "{p50}");
    double.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_never_answers_is_given_up() {
    let (place, double) = (Place::new(), double().await);
    double.add_fault(Rule::new(Action::Hang { applied: false })).expect("a rule");
    let (code, report) = report(&place, &double.connection_string(), &[]).await;
    assert_eq!(code, Some(1));
    assert_finding(&report, "queue service", "problem", &["no answer within"]);
    assert_finding(&report, "blob service", "problem", &["no answer within"]);
    for name in ["clock", "queue roles", "queues", "round trip", "lease", "drain", "container", "conditions"]
    {
        assert_finding(&report, name, "skipped", &[]);
    }
    double.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_account_or_a_refused_key_is_one_problem() {
    let place = Place::new();
    let store = "AccountName=nobody;AccountKey=aHVudGVyMg==;BlobEndpoint=https://nobody.blob.invalid;\
                 QueueEndpoint=https://nobody.queue.invalid";
    let ran = doctor(&place, store, &[]).await;
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("is the storage account's name right?"), "{}", ran.out);
    assert!(!ran.out.contains("aHVudGVyMg") && ran.err.is_empty(), "{ran:?}");

    let double = double().await;
    let refuse = Action::Refuse { status: 403, code: "AuthenticationFailed".to_owned() };
    double.add_fault(Rule::new(refuse)).expect("a rule");
    let (code, report) = report(&place, &double.connection_string(), &[]).await;
    assert_eq!((code, &report["problems"]), (Some(1), &2.into()), "{report:#}");
    assert_finding(&report, "queue service", "problem", &["az storage account keys list"]);
    assert_finding(&report, "queue roles", "skipped", &["refuses requests"]);
    double.stop().await;
}

#[test]
fn without_an_identity_nothing_else_is_tried() {
    let place = Place::new();
    let mut command =
        place.command(&["doctor", "--store", "azure:thumbs", "--metadata-url", "off", "--json"]);
    // A pod with an identity but without its token.
    command.env("AZURE_TENANT_ID", "11111111-1111-1111-1111-111111111111");
    command.env("AZURE_CLIENT_ID", "22222222-2222-2222-2222-222222222222");
    command.env("AZURE_FEDERATED_TOKEN_FILE", place.path("no-token"));
    let ran: Ran = command.output().expect("it runs").into();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let report: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_finding(&report, "identity", "problem", &["workload identity"]);
    for name in ["queue service", "blob service", "clock", "queue roles", "blob roles", "drain"] {
        assert_finding(&report, name, "skipped", &["no identity"]);
    }
}

#[test]
fn what_jobs_depend_on_is_probed_and_its_announcements_are_known() {
    let place = Place::new();
    let examined = |url: &str| {
        place.write("reprieve.toml", "[dependencies.cache]\nredis = 'env:CACHE_URL'\n");
        let mut command = place.command(&["doctor", "--metadata-url", "off", "--json"]);
        let ran: Ran = command.env("CACHE_URL", url).output().expect("it runs").into();
        assert!(!format!("{ran:?}").contains("secret"), "{ran:?}");
        (ran.code, serde_json::from_str::<Value>(&ran.out).expect("JSON"))
    };
    let (code, report) = examined("redis://:secret@127.0.0.1:1");
    assert_eq!(code, Some(1), "{report:#}");
    assert_finding(&report, "dependency cache", "problem", &["the probe failed", "not begun"]);
    let Some(server) = RedisServer::start() else { return };
    let (code, report) = examined(&server.url());
    assert_eq!(code, Some(0), "{report:#}");
    assert_finding(
        &report,
        "dependency cache",
        "ok",
        &["it serves", "announces no maintenance", "answer_ms"],
    );
}

#[test]
fn an_id_of_an_identity_that_is_none_is_refused() {
    let place = Place::new();
    let mut command = place.command(&["status", "--store", "azure:thumbs"]);
    command.env("AZURE_CLIENT_ID", "my-identity");
    let ran: Ran = command.output().expect("it runs").into();
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("AZURE_CLIENT_ID is not a GUID") && !ran.err.contains("my-identity"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sas_that_ends_soon_is_warned_of_and_one_that_ended_is_a_problem() {
    let (place, double) = (Place::new(), double().await);
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(30);
    for (end, code, state, words) in [
        ("2020-01-01".to_owned(), 1, "problem", "expired"),
        (soon.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(), 0, "warning", "workers stop when it expires"),
        ("9000-01-01".to_owned(), 0, "ok", "valid for"),
    ] {
        let store = format!(
            "BlobEndpoint={};QueueEndpoint={};SharedAccessSignature=sv=2022-11-02&se={end}&sig=any",
            double.blob_url(),
            double.queue_url()
        );
        let (exit, report) = report(&place, &store, &[]).await;
        assert_eq!(exit, Some(code), "{report:#}");
        assert_finding(&report, "identity", state, &[words]);
    }
    double.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn azurite_is_well() {
    let Some(azurite) = reprieve_test_azurite() else { return };
    let place = Place::new();
    let name = &format!("doctor-{}", reprieve::WorkerId::unique());
    let (code, report) = report(&place, &azurite, &["--queue", name, "--container", name]).await;
    assert_eq!((code, &report["problems"]), (Some(0), &0.into()), "{report:#}");
    for one in ["queue service", "blob service", "clock", "queue roles", "blob roles", "conditions"] {
        assert_finding(&report, one, "ok", &[]);
    }
    assert_finding(&report, "container", "ok", &["does not exist yet"]);
    assert_eq!(finding(&report, "queue roles")["figures"]["remove"], "done");
    assert_eq!(finding(&report, "blob roles")["figures"]["remove"], "done");
    let wrong = azurite.replace("AccountKey=", "AccountKey=AAAA");
    let (code, report) = self::report(&place, &wrong, &[]).await;
    assert_eq!(code, Some(1));
    assert_finding(&report, "queue service", "problem", &["key is wrong"]);
}

/// Returns the connection string of the test run's shared Azurite.
#[expect(clippy::disallowed_methods, reason = "a test run hands its tests what they need by variables")]
#[expect(
    clippy::print_stderr,
    reason = "a test that passed although it saw nothing is not to pass in silence"
)]
fn reprieve_test_azurite() -> Option<String> {
    let found = std::env::var("REPRIEVE_TEST_AZURITE").ok();
    if found.is_none() {
        assert!(std::env::var("REPRIEVE_TESTS_NEED_AZURITE").is_err(), "REPRIEVE_TEST_AZURITE is not set");
        eprintln!("REPRIEVE_TEST_AZURITE is not set: this test saw nothing");
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_embedded_store_is_looked_at_and_not_made() {
    let place = Place::new();
    let (code, report) = report(&place, "sqlite:own.db", &[]).await;
    assert_eq!(code, Some(0), "{report:#}");
    assert_finding(&report, "store", "ok", &["own.db does not exist yet"]);
    assert_finding(&report, "durability", "ok", &["survives a power loss"]);
    assert_eq!(finding(&report, "round trip")["figures"]["samples"], 20);
    let left: Vec<_> = std::fs::read_dir(place.path(".")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");

    made(&place, "sqlite:own.db?durability=process").await;
    let (code, report) = self::report(&place, "sqlite:own.db?durability=process", &[]).await;
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(finding(&report, "queue default")["figures"]["messages"], 1);
    assert_finding(&report, "durability", "ok", &["may undo the last commits"]);
    let left = std::fs::read_dir(place.path(".")).unwrap().map(|one| one.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().contains("doctor")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_embedded_store_without_its_directory_is_a_problem() {
    let place = Place::new();
    let ran = place.run(&["doctor", "--store", "sqlite:nowhere/own.db", "--metadata-url", "off"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(1), ""));
    assert!(ran.out.contains("there is no directory nowhere"), "{}", ran.out);
    assert!(ran.out.ends_with("1 problem, 0 warnings\n"), "{}", ran.out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_reports_the_vm_name_and_the_active_events() {
    let place = Place::new();
    let server = MetadataServer::start(MetadataConfig::with_vms(["a_0", "a_1"])).await.expect("a free port");
    let url = server.vm_url("a_0");
    server.evict("a_1", Duration::from_secs(600)).expect("an eviction");
    let (code, calm) = report(&place, "sqlite:own.db", &["--metadata-url", &url]).await;
    assert_eq!(code, Some(0), "{calm:#}");
    assert_finding(&calm, "metadata service", "ok", &["newest api-version"]);
    assert_finding(&calm, "vm", "ok", &["a_0"]);
    assert_finding(&calm, "scheduled events", "ok", &["none is active for this VM", "1 event for other VMs"]);
    server.evict("a_0", Duration::from_secs(600)).expect("an eviction");
    let (code, noticed) =
        report(&place, "sqlite:own.db", &["--metadata-url", &url, "--vm-name", "a_0"]).await;
    assert_eq!(code, Some(0), "{noticed:#}");
    assert_finding(
        &noticed,
        "scheduled events",
        "warning",
        &["Preempt (scheduled, not before", "`reprieve status` shows what its worker does"],
    );
    let (_, mistaken) = report(&place, "sqlite:own.db", &["--metadata-url", &url, "--vm-name", "b_7"]).await;
    assert_finding(&mistaken, "vm", "warning", &["--vm-name is b_7"]);
    server.stop().await;

    let (code, gone) = report(&place, "sqlite:own.db", &["--metadata-url", &url]).await;
    assert_eq!(code, Some(1));
    assert_finding(&gone, "metadata service", "problem", &["receives no jobs before it has answered"]);
    assert_finding(&gone, "scheduled events", "skipped", &[]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_on_the_disk_of_a_spot_vm_is_a_warning() {
    for (policy, expected) in
        [("Delete", Some("an eviction deletes it")), ("Deallocate", Some("starts the VM")), ("", None)]
    {
        let place = Place::new();
        let config =
            MetadataConfig { eviction_policy: policy.to_owned(), ..MetadataConfig::with_vms(["a_0"]) };
        let server = MetadataServer::start(config).await.expect("a free port");
        let (code, found) = report(&place, "sqlite:own.db", &["--metadata-url", &server.vm_url("a_0")]).await;
        assert_eq!(code, Some(0), "{found:#}");
        match expected {
            Some(expected) => {
                assert_finding(&found, "eviction", "warning", &[expected, "--store azure:ACCOUNT"]);
            }
            None => assert!(!found.to_string().contains("\"eviction\""), "{found:#}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_metadata_service_that_never_answers_is_given_up() {
    let (place, silent) = (Place::new(), TcpListener::bind("127.0.0.1:0").expect("a free port"));
    let url = format!("http://{}", silent.local_addr().expect("an address"));
    let (code, report) = report(&place, "sqlite:own.db", &["--metadata-url", &url]).await;
    assert_eq!(code, Some(1));
    assert_finding(&report, "metadata service", "problem", &["did not answer"]);
}

#[test]
fn wrong_settings_exit_with_2() {
    let place = Place::new();
    for (args, expected) in [
        (&["--store", "slqite:x"][..], "there is no store slqite"),
        (&["--lease", "1s"], "1.5 times the budget"),
        (&["--store", "AccountKey=hunter2"], "visible to everyone"),
        (&["--jsno"], "--json"),
    ] {
        let ran = place.run(&[&["doctor"], args].concat());
        assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{args:?}");
        assert!(ran.err.contains(expected) && !ran.err.contains("hunter2"), "{args:?}: {}", ran.err);
    }
}

#[test]
fn help_explains_it() {
    insta::assert_snapshot!("doctor", Place::new().succeeds(&["doctor", "--help"]));
}
