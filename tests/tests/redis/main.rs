//! A job beside a cache that fails over: real servers, a real worker process, and `examples/cache-aside`.
#![cfg(unix)]

mod cost;
mod preempt;
mod scenes;
mod shop;

use std::path::Path;
use std::thread;
use std::time::Duration;

use reprieve_tests::binary;
use tokio::runtime::Builder;

use crate::cost::Cost;
use crate::scenes::{Breaker, MAINTENANCES, NEEDED, ODD, Scene};
use crate::shop::{Priced, Shop};

const FLAGS: [&str; 4] = ["--metadata-url", "off", "--concurrency", "4"];

/// Each order has 200 steps, and must outlast its scene.
#[derive(Debug, Clone, Copy)]
struct Load {
    orders: u32,
    /// How long a step works.
    work: Duration,
}

/// For the scenes in which calls are counted, so many that some are always in flight.
const BUSY: Load = Load { orders: 3, work: Duration::from_millis(120) };
const CALM: Load = Load { orders: 1, work: Duration::from_millis(200) };

/// An order that is not disturbed.
async fn undisturbed(program: &Path) -> Option<Priced> {
    let shop = Shop::open(program, &FLAGS, false, 1, Duration::ZERO).await?;
    let (mut priced, cost) = shop.finish().await;
    assert_eq!((cost.failed(), cost.openings), (0, 0), "{cost:?}");
    priced.pop()
}

/// A scene with or without its notifications.
#[derive(Debug, Clone, Copy)]
struct Run {
    scene: Scene,
    is_notified: bool,
    load: Load,
}

impl Run {
    async fn played(&self, program: &Path, expected: &Priced) -> Cost {
        let Self { scene, is_notified, load } = self;
        let shop = Shop::open(program, &FLAGS, scene.is_needed, load.orders, load.work).await;
        let mut shop = shop.expect("there was a Redis before");
        shop.play(scene, *is_notified).await;
        let (priced, cost) = shop.finish().await;
        assert!(priced.iter().all(|priced| priced == expected), "{}: the prices differ", scene.name);
        cost
    }

    fn check(&self, cost: &Cost) {
        let name = self.scene.name;
        match self.scene.breaker {
            Breaker::StaysClosed => assert_eq!((cost.openings, cost.failed()), (0, 0), "{name}: {cost:?}"),
            Breaker::OpensInTime if self.is_notified => {
                assert!(cost.openings > 0 && cost.failed() == 0, "{name}: {cost:?}");
            }
            Breaker::OpensInTime | Breaker::Opens => assert!(cost.openings > 0, "{name}: {cost:?}"),
        }
        if self.is_notified {
            let why = "a call that began after the breaker had opened failed";
            assert_eq!(cost.after, 0, "{name}: {why}: {cost:?}");
        }
    }
}

/// Plays all at the same time, each with a runtime of its own, so that none waits while another one blocks. Returns
/// how many calls failed without notifications, and with them; `None` where there is no Redis.
#[expect(clippy::print_stdout, reason = "the table is what the test measures")]
fn play(runs: &[Run]) -> Option<(usize, usize)> {
    let program = &binary("cache-aside");
    let expected = &block_on(undisturbed(program))?;
    let costs: Vec<_> = thread::scope(|scope| {
        let play = |run| scope.spawn(move || block_on(Run::played(run, program, expected)));
        let threads: Vec<_> = runs.iter().map(play).collect();
        threads.into_iter().map(|played| played.join().expect("a scene")).collect()
    });
    println!("| scene | notified | before | in flight | after | probes | open for | rows read |");
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    let (mut without, mut with) = (0, 0);
    for (run, cost) in runs.iter().zip(costs) {
        println!("| {} | {} | {cost}", run.scene.name, if run.is_notified { "yes" } else { "no" });
        run.check(&cost);
        *(if run.is_notified { &mut with } else { &mut without }) += cost.failed();
    }
    Some((without, with))
}

fn block_on<T>(main: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(main)
}

#[test]
fn a_failover_changes_no_price_costs_no_attempt_and_fails_no_call_after_its_announcement() {
    let both = MAINTENANCES.into_iter().flat_map(|scene| [(scene, false), (scene, true)]);
    let runs: Vec<_> = both.map(|(scene, is_notified)| Run { scene, is_notified, load: BUSY }).collect();
    let Some((without, with)) = play(&runs) else { return };
    assert!(with < without, "{with} calls failed with notifications, and {without} without");
}

#[test]
fn notifications_that_are_wrong_late_doubled_or_missed_change_no_price_and_cost_no_attempt() {
    let run = |scene| Run { scene, is_notified: true, load: CALM };
    let runs: Vec<_> = ODD.into_iter().chain([NEEDED]).map(run).collect();
    play(&runs);
}
