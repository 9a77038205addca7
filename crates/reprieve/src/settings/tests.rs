//! Parsing and precedence.

use clap::Parser;
use tempfile::TempDir;

use reprieve_azure::scheduled_events::METADATA_URL;
use reprieve_core::checkpoint::CheckpointEvery;
use reprieve_core::interruption::{Approve, ApproveUser, DuringFreeze, Policy, PredictedFailure};
use reprieve_core::worker::Expiring;

use super::*;
use crate::stores::Address;

#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    worker: WorkerArgs,
}

/// Reads the settings from flags and from a settings file that contains `file`.
fn read(file: &str, flags: &[&str]) -> Result<WorkerSettings> {
    let (_dir, args) = args(file, flags);
    WorkerSettings::read(&args)
}

fn args(file: &str, flags: &[&str]) -> (TempDir, WorkerArgs) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("reprieve.toml");
    std::fs::write(&path, file).unwrap();
    let config = format!("--config={}", path.display());
    let cli = Cli::parse_from(["worker", &config].iter().chain(flags));
    (dir, cli.worker)
}

#[track_caller]
fn faults(file: &str, flags: &[&str]) -> Vec<String> {
    let error = read(file, flags).expect_err("these settings are wrong");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    error.message().split("; --").map(str::to_owned).collect()
}

#[test]
fn the_defaults_are_those_of_the_core() {
    let settings = read("", &[]).unwrap();
    assert_eq!(settings.worker, Settings::default());
    let Address::Local(address) = settings.store.address else { panic!("{:?}", settings.store) };
    assert_eq!(address, "sqlite:reprieve.db".parse().unwrap());
    assert_eq!(settings.store.queues.shown, "default");
    assert_eq!(settings.store.container.as_str(), "reprieve");
    assert_eq!(settings.metadata.unwrap().base().trim_end_matches('/'), METADATA_URL);
    assert_eq!((settings.vm_name, settings.listen), (None, None));
}

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let file = "budget = '1s'\nlease = '11s'\nqueue = 'from-file'\nconcurrency = 3\nvm-name = 'a_0'";
    let (_dir, mut args) = args(file, &["--budget=3s"]);
    args.set_env("lease", "12s");
    args.set_env("queue", "from-env");
    // An empty variable, as in a unit file, counts as not set.
    args.set_env("vm-name", "");
    args.set_env("listen", "");
    let settings = WorkerSettings::read(&args).unwrap();
    assert_eq!(settings.worker.budget, Duration::from_secs(3));
    assert_eq!(settings.worker.lease, Duration::from_secs(12));
    assert_eq!(settings.store.queues.shown, "from-env");
    assert_eq!(settings.worker.concurrency, 3);
    assert_eq!(settings.vm_name.as_deref(), Some("a_0"));
    assert_eq!(settings.listen, None);
}

#[test]
fn every_setting_can_be_given_by_flag_and_by_file() {
    let given = [
        ("store", "sqlite:x.db?durability=process"),
        ("queue", "thumbs"),
        ("container", "pictures"),
        ("default-kind", "resize"),
        ("unknown-kind-after", "36h"),
        ("remember-done", "90m"),
        ("metadata-url", "off"),
        ("metadata-version", "2020-07-01"),
        ("vm-name", "workers_3"),
        ("state-dir", "/run/own"),
        ("concurrency", "7"),
        ("budget", "500ms"),
        ("lease", "1h"),
        ("checkpoint-every", "0s"),
        ("approve", "leader"),
        ("approve-user", "at-once"),
        ("approve-freeze-under", "9s"),
        ("approve-wait", "90s"),
        ("during-freeze", "pause"),
        ("expiring-messages", "keep"),
        ("approve-for", "workers_4, workers_5"),
        ("predicted-failure", "drain"),
        ("listen", "127.0.0.1:9090"),
        ("log-format", "json"),
        ("log", "warn"),
        ("keep-results", "400d"),
        ("keep-drains", "forever"),
        ("keep-ledger", "200d"),
        ("keep-unfinished", "90d"),
    ];
    let flags: Vec<_> = given.iter().map(|(key, value)| format!("--{key}={value}")).collect();
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    let lines: Vec<_> = given.iter().map(|(key, value)| format!("{key} = {value:?}")).collect();
    let file = lines.join("\n");
    for (file, flags) in [("", &flags[..]), (&file, &[])] {
        let (_dir, args) = args(file, flags);
        let settings = WorkerSettings::read(&args).unwrap();
        let Address::Local(address) = settings.store.address else { panic!("{:?}", settings.store) };
        assert_eq!(address.durability, reprieve_local::Durability::Process);
        assert_eq!(settings.store.queues.shown, "thumbs");
        assert_eq!(settings.store.container.as_str(), "pictures");
        assert_eq!(settings.worker.default_kind.as_deref(), Some("resize"));
        assert_eq!(settings.worker.unknown_kind_after, Duration::from_secs(36 * 3600));
        assert_eq!(settings.worker.remember_done, Duration::from_secs(90 * 60));
        let keep = settings.worker.keep;
        let days = |days: u64| Some(Duration::from_hours(24 * days));
        assert_eq!((keep.results, keep.drains), (days(400), None));
        assert_eq!((keep.ledger, keep.unfinished), (days(200), days(90)));
        assert_eq!(settings.approve_for, ["workers_4", "workers_5"]);
        assert_eq!(settings.worker.expiring, Expiring::Keep);
        assert!(settings.metadata.is_none());
        assert_eq!(settings.vm_name.as_deref(), Some("workers_3"));
        assert_eq!(settings.state_dir.as_deref(), Some(std::path::Path::new("/run/own")));
        assert_eq!(settings.worker.concurrency, 7);
        assert_eq!(settings.worker.budget, Duration::from_millis(500));
        assert_eq!(settings.worker.lease, Duration::from_secs(3600));
        assert_eq!(settings.worker.checkpoint_every, CheckpointEvery::Every(Duration::ZERO));
        let policy = Policy {
            approve: Approve::Leader,
            approve_user: ApproveUser::AtOnce,
            approve_freeze_under: Duration::from_secs(9),
            during_freeze: DuringFreeze::Pause,
            approve_wait: Duration::from_secs(90),
            predicted_failure: PredictedFailure::Drain,
        };
        assert_eq!(settings.worker.policy, policy);
        assert_eq!(settings.listen, Some("127.0.0.1:9090".parse().unwrap()));
        assert_eq!(settings.log.format, Some(LogFormat::Json));
        assert!(
            settings.log.filter.to_string().split(',').any(|part| part == "warn"),
            "{}",
            settings.log.filter
        );
    }
}

#[test]
fn a_misspelt_variable_is_named_with_the_nearest_setting() {
    let unknown = |names: &[&str]| super::table::unknown_variables(names.iter().map(ToString::to_string));
    assert_eq!(
        unknown(&["REPRIEVE_CONCURENCY", "REPRIEVE_STORES", "reprieve_store", "PATH"]),
        [
            "REPRIEVE_CONCURENCY: there is no such setting; did you mean REPRIEVE_CONCURRENCY?",
            "REPRIEVE_STORES: there is no such setting; did you mean REPRIEVE_STORE?",
        ]
    );
    let known =
        ["REPRIEVE_STORE", "REPRIEVE_CONFIG", "REPRIEVE_LOG", "REPRIEVE_INSTANCES", "REPRIEVE_EVENT_ID"];
    assert_eq!(unknown(&known), [""; 0]);
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_no_text_is_refused_by_every_program() {
    use std::os::unix::ffi::OsStringExt as _;

    let bad = || std::ffi::OsString::from_vec(vec![b'd', 0xff]);
    let variables = [
        ("REPRIEVE_LOG".to_owned(), bad()),
        ("REPRIEVE_QUEUE".to_owned(), "jobs".into()),
        ("HOME".to_owned(), bad()),
    ];
    assert_eq!(
        super::table::unreadable_variables(&variables),
        ["REPRIEVE_LOG: its value is not UTF-8; write plain text"]
    );
}

#[test]
fn variables_of_a_service_in_kubernetes_are_no_settings() {
    let of_service = [
        "REPRIEVE_SERVICE_HOST",
        "REPRIEVE_PORT",
        "REPRIEVE_WORKER_SERVICE_HOST",
        "REPRIEVE_WORKER_SERVICE_PORT",
        "REPRIEVE_WORKER_SERVICE_PORT_METRICS",
        "REPRIEVE_WORKER_PORT",
        "REPRIEVE_WORKER_PORT_9090_TCP",
        "REPRIEVE_WORKER_PORT_9090_TCP_ADDR",
        "REPRIEVE_WORKER_PORT_9090_TCP_PROTO",
    ];
    assert_eq!(super::table::unknown_variables(of_service.iter().map(ToString::to_string)), [""; 0]);
    for misspelt in ["REPRIEVE_LISTEN_PORT", "REPRIEVE_WORKER_SERVICE_PORTION", "REPRIEVE_STATE_DIR_PORT"] {
        let all = of_service.iter().chain([&misspelt]).map(ToString::to_string);
        let found = super::table::unknown_variables(all);
        assert!(found.len() == 1 && found[0].starts_with(misspelt), "{found:?}");
    }
}

/// Whoever follows `infra/README.md` has them in the environment, and so has whoever takes azd's.
#[test]
fn the_variables_of_the_templates_and_their_scripts_are_known() {
    let infra = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra");
    let (mut directories, mut names) = (vec![infra], std::collections::BTreeSet::new());
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                directories.push(entry.path());
            } else if let Ok(text) = std::fs::read_to_string(entry.path()) {
                let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
                let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("REPRIEVE_"));
                names.extend(words.map(str::to_owned));
            }
        }
    }
    assert!(names.len() > 20, "{names:?}");
    // What remains of a name that a script puts together, or a reader is to complete.
    let names = names.into_iter().filter(|name| !name.ends_with('_'));
    assert_eq!(super::table::unknown_variables(names), [""; 0]);
}

#[test]
fn all_faults_are_reported_at_once_with_their_origins() {
    let file = "queue = 'A'\nlease = '5'\ncolour = 'red'";
    let all =
        faults(file, &["--concurrency=many", "--budget=-3s", "--listen=9090", "--log-format=xml"]).join("\n");
    for wanted in [
        "there is no setting \"colour\"",
        "queue in ",
        "\"A\" may hold only a-z",
        "lease in ",
        "\"5\" is not a number and a unit",
        "concurrency: \"many\" is neither a number nor auto",
        "budget: \"-3s\" is not a number and a unit",
        "listen: \"9090\" is not an IP address with a port",
        "log-format: \"xml\" is neither text nor json",
    ] {
        assert!(all.contains(wanted), "{wanted} is missing:\n{all}");
    }
    assert!(!all.contains("1.5 times"), "no fault follows from another:\n{all}");
}

#[test]
fn values_that_are_out_of_bounds_or_do_not_fit_together_are_refused() {
    for (flags, wanted) in [
        (&["--concurrency=0"][..], "from 1 to 4096"),
        (&["--concurrency=-1"], "neither a number nor auto"),
        (&["--concurrency=99999999999999999999"], "neither a number nor auto"),
        (&["--budget=1ms"], "at least 100ms"),
        (&["--lease=8760h"], "from 1s to 7 days"),
        (&["--lease=14s"], "1.5 times the budget"),
        (&["--checkpoint-every=25h"], "at most a day"),
        (&["--checkpoint-every=often"], "or auto"),
        (&["--unknown-kind-after=721h"], "at most 720h"),
        (&["--unknown-kind-after=7w"], "\"7w\" is not a number and a unit"),
        (&["--keep-results=7d"], "keep-results must be at least 8 days (192h), or forever"),
        (&["--keep-drains=0s"], "keep-drains must be at least 8 days"),
        (&["--keep-unfinished=1h"], "keep-unfinished must be at least 8 days"),
        (&["--keep-results=never"], "such as 10s or 7d, or forever"),
        (&["--remember-done=8761h"], "at most 8760h"),
        (&["--approve=all"], "\"all\" is none of never, sole, leader and any"),
        (&["--approve="], "none of never, sole, leader and any"),
        (&["--approve-user=now"], "\"now\" is neither drained nor at-once"),
        (&["--approve-freeze-under=10"], "\"10\" is not a number and a unit"),
        (&["--approve-freeze-under=6m"], "at most 5 minutes"),
        (&["--approve-wait=2h"], "at most an hour"),
        (&["--predicted-failure=Drain"], "\"Drain\" is neither warn nor drain"),
        (&["--budget=99999999999999999999s"], "is too long for a duration"),
        (&["--vm-name="], "it is empty"),
        (&["--default-kind="], "it is empty"),
        (&["--queue="], "a name is empty"),
        (&["--queue=ab"], "shorter than 3"),
        (&["--queue=a{2..1}"], "counts down"),
        (&["--container=A"], "3 to 63 of a-z"),
        (&["--store="], "it must be sqlite:PATH"),
        (&["--metadata-url=https://x"], "speaks http only"),
        (&["--log=reprieve=loud"], "not a log filter"),
        (&["--log=inof"], "\"inof\" is none of off, error, warn, info, debug and trace"),
        (&["--log=info,reprieve_core"], "write reprieve_core=debug"),
        (&["--lease=8w"], "use ms, s, m, h or d, such as 10s or 7d"),
        (&["--lease=8d"], "from 1s to 7 days"),
    ] {
        let reported = faults("", flags).join("\n");
        assert!(reported.contains(wanted), "{flags:?}: {reported}");
    }
}

#[test]
fn a_store_that_does_not_exist_is_refused_without_repeating_a_secret() {
    let secret =
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=hunter2;EndpointSuffix=core.windows.net";
    for (store, wanted) in [
        (secret, "put it into REPRIEVE_STORE or reprieve.toml"),
        ("https://a.queue.core.windows.net/q?sv=1&SIG=hunter2", "put it into REPRIEVE_STORE"),
        ("UseDevelopmentStorage=true", "put it into"),
        ("azure:hunter2!", "after azure: give an account's name"),
        ("postgres://user:hunter2@host/db", "there is no store postgres:…; use sqlite:PATH"),
        ("hunter2", "it must be sqlite:PATH, such as sqlite:reprieve.db, or azure:ACCOUNT"),
        ("hunter2 hunter2:", "it must be sqlite:PATH"),
        ("sqlite:", "write the file after sqlite:"),
    ] {
        let reported = faults("", &[&format!("--store={store}")]).join("\n");
        assert!(reported.contains(wanted), "{store}: {reported}");
        assert!(!reported.contains("hunter2"), "{store}: {reported}");
    }
    let reported = faults(&format!("store = '{secret}'"), &[]).join("\n");
    assert!(reported.contains("store in ") && reported.contains("AccountKey is not base64"), "{reported}");
    assert!(!reported.contains("hunter2"), "{reported}");
}
