//! Looks after one dependency for as long as its worker runs: probes it when that is due, looks whether it
//! goes on to refuse what it refused, and hears what it announces. The dependency is the program's code, and a panic
//! there is a failure of that call alone.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use tokio::time::{sleep, timeout};

use super::breaker::{Answer, PAUSE_MAX};
use super::handle::DependencyHandle;
use super::{Dependency, PROBE_WITHIN};
use crate::panics;

/// Runs until it is dropped.
pub(crate) async fn keep(handle: DependencyHandle, dependency: Arc<dyn Dependency>) {
    loop {
        // Without it, the breaker would stay as it is for ever, and jobs with it.
        let Err(why) = panics::contain("its keeper", || look_after(&handle, &*dependency)).await;
        let dependency = handle.name();
        tracing::error!(dependency, why, "failed to look after a dependency; trying again in {PAUSE_MAX:?}");
        sleep(PAUSE_MAX).await;
    }
}

async fn look_after(handle: &DependencyHandle, dependency: &dyn Dependency) -> Infallible {
    let probes = async {
        loop {
            handle.probe_due().await;
            handle.on_probe_begins();
            let answer = probe(dependency).await;
            if let Answer::Failed(why) = &answer {
                tracing::debug!(dependency = handle.name(), why, "a probe of a dependency failed");
            }
            handle.on_probe(&answer);
        }
    };
    let signals = async {
        let mut is_told = false;
        loop {
            match panics::contain("its next_signal", || dependency.next_signal()).await {
                Ok(signal) => handle.on_signal(&signal),
                Err(why) => {
                    if !std::mem::replace(&mut is_told, true) {
                        tracing::warn!(
                            dependency = handle.name(),
                            why,
                            "failed to hear what a dependency announces; trying again every {PAUSE_MAX:?}"
                        );
                    }
                    sleep(PAUSE_MAX).await;
                }
            }
        }
    };
    let looks = async {
        loop {
            handle.look_due().await;
            handle.look_again().await;
        }
    };
    let (probes, signals, looks) = (pin!(probes), pin!(signals), pin!(looks));
    tokio::select! {
        never = probes => never,
        never = looks => never,
        never = signals => never,
    }
}

async fn probe(dependency: &dyn Dependency) -> Answer {
    match timeout(PROBE_WITHIN, panics::contain("the probe", || dependency.probe())).await {
        Ok(Ok(Ok(()))) => Answer::Served,
        Ok(Ok(Err(why)) | Err(why)) => Answer::Failed(why),
        Err(_) => Answer::Failed(format!("no answer within {PROBE_WITHIN:?}")),
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::panic::panic_any;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::time::Duration;

    use super::super::breaker::BreakerState;
    use super::*;
    use crate::testing::dependency;

    /// Where its probe panics.
    const NOWHERE: usize = 0;
    const BEFORE: usize = 1;
    const IN_DROP: usize = 2;
    const TWICE: usize = 3;

    /// Away, and panics where it is told to.
    #[derive(Debug, Default)]
    struct Odd {
        panics: AtomicUsize,
        probes: AtomicUsize,
    }

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "a defect of a drop");
        }
    }

    impl Dependency for Odd {
        fn probe<'a, 'b>(&'a self) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'b>>
        where
            'a: 'b,
            Self: 'b,
        {
            self.probes.fetch_add(1, Relaxed);
            let panics = self.panics.load(Relaxed);
            assert!(panics != BEFORE, "a defect before the first poll");
            Box::pin(async move {
                match panics {
                    IN_DROP => {
                        let _held = Bomb;
                        std::future::pending().await
                    }
                    TWICE => panic_any(Bomb),
                    _ => Ok(()),
                }
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dependency_is_probed_again_wherever_its_probe_panicked() {
        for panics in [BEFORE, IN_DROP, TWICE] {
            let odd = Arc::new(Odd::default());
            let handle = dependency("odd", Arc::clone(&odd) as _);
            odd.panics.store(panics, Relaxed);
            sleep(Duration::from_secs(60)).await;
            assert_eq!(handle.state(), BreakerState::Open, "{panics}");
            odd.panics.store(NOWHERE, Relaxed);
            let before = odd.probes.load(Relaxed);
            sleep(Duration::from_secs(60)).await;
            assert!(odd.probes.load(Relaxed) > before, "{panics}");
            assert_eq!(handle.state(), BreakerState::Closed, "{panics}");
        }
    }
}
