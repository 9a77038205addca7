//! Looks after one dependency for as long as its worker runs: probes it when that is due, looks whether it
//! goes on to refuse what it refused, and hears what it announces. The dependency is the program's code, and a panic
//! there is a failure of that call alone.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::{sleep, timeout};

use super::breaker::{Answer, PAUSE_MAX};
use super::handle::DependencyHandle;
use super::{Dependency, PROBE_WITHIN};
use crate::panics;

/// Runs until it is dropped.
pub(crate) async fn keep(handle: DependencyHandle, dependency: Arc<dyn Dependency>) {
    let probes = async {
        loop {
            handle.probe_due().await;
            handle.on_probe_begins();
            let answer = probe(&*dependency).await;
            if let Answer::Failed(why) = &answer {
                tracing::debug!(dependency = handle.name(), why, "a probe of a dependency failed");
            }
            handle.on_probe(&answer);
        }
    };
    let signals = async {
        let mut is_told = false;
        loop {
            match panics::contain("its next_signal", dependency.next_signal()).await {
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
        () = probes => {}
        () = looks => {}
        () = signals => {}
    }
}

async fn probe(dependency: &dyn Dependency) -> Answer {
    match timeout(PROBE_WITHIN, panics::contain("the probe", dependency.probe())).await {
        Ok(Ok(Ok(()))) => Answer::Served,
        Ok(Ok(Err(why)) | Err(why)) => Answer::Failed(why),
        Err(_) => Answer::Failed(format!("no answer within {PROBE_WITHIN:?}")),
    }
}
