//! Looks after one dependency for as long as its worker runs: probes it when that is due, looks whether it
//! goes on to refuse what it refused, and hears what it announces.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::timeout;

use super::breaker::Answer;
use super::handle::DependencyHandle;
use super::{Dependency, PROBE_WITHIN};

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
        loop {
            handle.on_signal(&dependency.next_signal().await);
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
    match timeout(PROBE_WITHIN, dependency.probe()).await {
        Ok(Ok(())) => Answer::Served,
        Ok(Err(why)) => Answer::Failed(why),
        Err(_) => Answer::Failed(format!("no answer within {PROBE_WITHIN:?}")),
    }
}
