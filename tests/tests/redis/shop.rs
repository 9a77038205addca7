//! A worker of `examples/cache-aside`, whose cache is a real pair, and an order that it prices.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reprieve_core::JobId;
use reprieve_core::dependency::DependencyReport;
use reprieve_core::ports::WorkerReport;
use reprieve_testkit::{RedisPair, Signal};
use reprieve_tests::{Sandbox, Worker, until};
use rusqlite::Connection;
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

use crate::cost::{CLOSED, Cost, OPENED, last_change};
use crate::scenes::{Act, Scene};

/// The time limit of any wait: this machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const ITEMS: u32 = 5_000;

/// Where the cache announces its maintenance.
const CHANNEL: &str = "AzureRedisEvents";

/// For how long a node that goes answers nothing before it closes its connections: long enough that every order has
/// calls in flight, and too short for their time-out.
const FALTERS: Duration = Duration::from_millis(400);

/// When the maintenance begins, as it is announced and in milliseconds of Unix time.
const STARTS_AT: (&str, i64) = ("2026-11-26T16:35:57", 1_795_710_957_000);

/// A worker far from UTC, so that a time that is read in its zone is wrong.
const ZONE: &str = "Asia/Kolkata";

pub(crate) struct Shop {
    pub(crate) pair: RedisPair,
    pub(crate) sandbox: Sandbox,
    pub(crate) worker: Worker,
    pub(crate) jobs: Vec<JobId>,
}

/// What an order came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Priced {
    total: Total,
    /// The version and the price of each item.
    results: Vec<(u32, i64, i64)>,
    /// The versions of all products, which change with the results.
    versions: Vec<i64>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Total {
    items: u32,
    sum: i64,
}

impl Shop {
    /// Opens a shop whose worker has these flags, and takes so many orders, each with a database of its own; `None`
    /// where there is no Redis.
    pub(crate) async fn open(
        program: &Path,
        flags: &[&str],
        is_needed: bool,
        orders: u32,
        work: Duration,
    ) -> Option<Self> {
        let pair = RedisPair::start()?;
        let sandbox = Sandbox::new().await;
        let needs = if is_needed { "[kinds.quote]\nneeds = [\"cache\"]\nuses = []\n" } else { "" };
        let settings = format!("{needs}[dependencies.cache]\nredis = \"env:CACHE_URL\"\n");
        fs::write(sandbox.path("reprieve.toml"), settings).expect("settings");
        let mut args = Vec::new();
        for order in 0..orders {
            let database = sandbox.path(&format!("shop-{order}.db"));
            let prepared = Command::new(program).arg("prepare").arg(&database).status().expect("cache-aside");
            assert!(prepared.success(), "{prepared}");
            let work_ms = u64::try_from(work.as_millis()).expect("a short time");
            args.push(json!({"database": database, "items": ITEMS, "work_ms": work_ms}));
        }
        let arguments = ["work"].iter().chain(flags);
        let environment = [("CACHE_URL", pair.url()), ("TZ", ZONE.to_owned())];
        let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
        let worker = Worker::start_with(&sandbox, program, arguments, &environment);
        let jobs = sandbox.enqueue("quote", args).await;
        Some(Self { pair, sandbox, worker, jobs })
    }

    /// Plays a scene in the middle of the order, with or without its notifications.
    pub(crate) async fn play(&mut self, scene: &Scene, is_notified: bool) {
        self.has_priced(0, ITEMS / 10).await;
        for &act in scene.acts.iter().filter(|act| is_notified || !act.is_announced()) {
            self.act(act).await;
        }
        let left = ITEMS.saturating_sub(self.priced(0));
        assert!(left > 0, "{}: the order was priced before the scene had ended", scene.name);
    }

    pub(crate) async fn act(&mut self, act: Act) {
        match act {
            Act::Say(what) => self.say(&message(what, false)).await,
            Act::SayOfReplica(what) => self.say(&message(what, true)).await,
            Act::Raw(text) => self.say(text).await,
            Act::SayOnce(what) => {
                self.pair.primary.command(&["PUBLISH", CHANNEL, &message(what, false)]);
            }
            Act::Opened => self.changed(OPENED).await,
            Act::Closed => self.changed(CLOSED).await,
            Act::ReplicasAvoided => {
                self.depends("replicas are avoided", |cache| cache.avoids_replicas).await;
            }
            Act::Idle => {
                self.reports("no job runs", |report| report.in_flight.is_empty()).await;
            }
            Act::Close => {
                self.pair.balancer.hang();
                sleep(FALTERS).await;
                self.pair.balancer.refuse();
            }
            Act::Reopen => self.pair.balancer.switch(self.pair.primary.port()),
            Act::Stop => self.pair.primary.process.signal(Signal::STOP),
            Act::StopReplica => self.pair.replica.process.signal(Signal::STOP),
            Act::Wake => {
                self.pair.primary.process.signal(Signal::CONT);
                self.pair.replica.process.signal(Signal::CONT);
            }
            Act::Promote => self.pair.promote(),
            Act::Rejoin => self.pair.rejoin(),
            Act::Last(time) => sleep(time).await,
        }
    }

    /// Publishes a message when the worker listens.
    async fn say(&self, message: &str) {
        let publish = || self.pair.primary.command(&["PUBLISH", CHANNEL, message]) != "0";
        until("the worker listens", PATIENCE, async || publish().then_some(())).await;
        if message.contains("NodeMaintenanceScheduled") {
            let is_shown = |cache: &DependencyReport| cache.scheduled_unix_ms == Some(STARTS_AT.1);
            self.depends("the start is shown", is_shown).await;
        }
    }

    /// Waits until the worker has logged so many of these lines.
    pub(crate) async fn count(&self, lines: usize, text: &str) {
        let logged = async || (self.worker.log().lines(text).len() >= lines).then_some(());
        until(&format!("the worker has logged {text:?} {lines} times"), PATIENCE, logged).await;
    }

    /// Waits until the breaker's last change is this one.
    async fn changed(&self, to: &str) {
        let changed = async || (last_change(self.worker.log()) == Some(to)).then_some(());
        until(&format!("the worker has logged {to:?} last"), PATIENCE, changed).await;
    }

    async fn depends(&self, what: &str, condition: impl Fn(&DependencyReport) -> bool) {
        self.reports(what, |report| report.dependencies.first().is_some_and(&condition)).await;
    }

    async fn reports(&self, what: &str, condition: impl Fn(&WorkerReport) -> bool) {
        let report = async || self.sandbox.report(self.worker.pid()).await.filter(&condition);
        until(what, PATIENCE, report).await;
    }

    /// Waits until so many items of an order have a price.
    pub(crate) async fn has_priced(&self, order: u32, items: u32) {
        until("some items are priced", PATIENCE, async || (self.priced(order) >= items).then_some(())).await;
    }

    fn priced(&self, order: u32) -> u32 {
        let count = "SELECT COUNT(*) FROM results";
        self.database(order).query_row(count, [], |row| row.get(0)).expect("a count")
    }

    fn database(&self, order: u32) -> Connection {
        Connection::open(self.sandbox.path(&format!("shop-{order}.db"))).expect("a database")
    }

    /// Waits for the orders, and checks that they cost no attempt and that each price is that of a row.
    pub(crate) async fn finish(self) -> (Vec<Priced>, Cost) {
        let mut all = Vec::new();
        for (order, job) in (0..).zip(&self.jobs) {
            let total = async || self.sandbox.result(job).await;
            let total = until("the order is priced", 2 * PATIENCE, total).await;
            let results = results(&self.database(order)).expect("results");
            let wrong = results.iter().find(|&&(item, version, price)| {
                price != (i64::from(item % 100) * 7919 + version * 104_729) % 1000
            });
            assert_eq!(wrong, None, "a price that no row had");
            all.push(Priced { total, results, versions: versions(&self.database(order)).expect("versions") });
        }
        for line in ["a job failed; retrying it", "a job timed out; retrying it"] {
            assert_eq!(self.worker.log().lines(line).len(), 0, "{line}");
        }
        assert_eq!(self.sandbox.depth().await.poisoned, Some(0));
        let cost = Cost::of(self.worker.log());
        self.worker.stop().await;
        (all, cost)
    }
}

/// Returns the item, the version and the price of all results.
fn results(database: &Connection) -> rusqlite::Result<Vec<(u32, i64, i64)>> {
    let mut results = database.prepare("SELECT item, version, price FROM results ORDER BY item")?;
    results.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect()
}

/// Returns the versions of all products.
fn versions(database: &Connection) -> rusqlite::Result<Vec<i64>> {
    let mut versions = database.prepare("SELECT version FROM products ORDER BY id")?;
    versions.query_map([], |row| row.get(0))?.collect()
}

/// A message, with all its fields. Those at the start have no time.
fn message(what: &str, is_replica: bool) -> String {
    let at = if what == "NodeMaintenanceStart" { "" } else { STARTS_AT.0 };
    let is_replica = if is_replica { "True" } else { "False" };
    format!(
        "NotificationType|{what}|StartTimeInUTC|{at}|IsReplica|{is_replica}|IPAddress||SSLPort|15001|NonSSLPort|13001"
    )
}
