//! Knows the spans that jobs have open, so that a job that stands still is shown with the one in which it does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reprieve_core::worker::OpenSpans;
use tracing::span::{Attributes, Id};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The spans that jobs have open, oldest first, by the span of the job. A job that opens none costs nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobSpans(Arc<Open>);

#[derive(Debug, Default)]
struct Open {
    spans: Mutex<HashMap<Id, Vec<(Id, &'static str)>>>,
    /// The number of jobs in it.
    jobs: AtomicUsize,
}

impl Open {
    fn spans(&self) -> MutexGuard<'_, HashMap<Id, Vec<(Id, &'static str)>>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<Id, Vec<(Id, &'static str)>>)) {
        let mut spans = self.spans();
        change(&mut spans);
        self.jobs.store(spans.len(), Relaxed);
    }
}

/// Whether this is the span in which a worker runs the steps of a job.
fn is_of_a_job(span: &Metadata<'_>) -> bool {
    span.name() == "job" && span.target().starts_with("reprieve_core::")
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for JobSpans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if is_of_a_job(attributes.metadata()) {
            return;
        }
        let Some(mut scope) = context.span_scope(id) else { return };
        let Some(job) = scope.find(|span| is_of_a_job(span.metadata())) else { return };
        let opened = (id.clone(), attributes.metadata().name());
        self.0.change(|spans| spans.entry(job.id()).or_default().push(opened));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        if self.0.jobs.load(Relaxed) == 0 {
            return;
        }
        let job =
            context.span_scope(&id).and_then(|mut scope| scope.find(|span| is_of_a_job(span.metadata())));
        let Some(job) = job.map(|span| span.id()) else { return };
        self.0.change(|spans| {
            if let Some(open) = spans.get_mut(&job) {
                open.retain(|(open, _)| *open != id);
                if open.is_empty() {
                    spans.remove(&job);
                }
            }
        });
    }
}

impl OpenSpans for JobSpans {
    fn innermost(&self, job: &Id) -> Option<&'static str> {
        self.0.spans().get(job)?.last().map(|(_, name)| *name)
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn the_span_that_a_job_opened_last_and_has_not_closed_is_where_it_stands() {
        let spans = JobSpans::default();
        let log = tracing_subscriber::registry().with(spans.clone());
        tracing::subscriber::with_default(log, || {
            let job = tracing::error_span!(target: "reprieve_core::worker", "job", id = "a");
            let other = tracing::error_span!(target: "reprieve_core::worker", "job", id = "b");
            let here = || spans.innermost(&job.id().unwrap());
            assert_eq!(here(), None);
            // Spans of no job.
            let _outside = tracing::info_span!("outside").entered();
            let download = job.in_scope(|| tracing::info_span!("download"));
            assert_eq!(here(), Some("download"));
            let part = download.in_scope(|| tracing::info_span!("part"));
            let elsewhere = other.in_scope(|| tracing::info_span!("elsewhere"));
            assert_eq!(here(), Some("part"));
            drop(part);
            assert_eq!(here(), Some("download"));
            drop(download);
            assert_eq!(here(), None);
            drop(elsewhere);
            assert!(spans.0.spans().is_empty(), "nothing is kept");
        });
    }
}
