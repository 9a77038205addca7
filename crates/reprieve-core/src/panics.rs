//! The places of panics. A job's task sees only what a panic says, so the hook for panics notes on the
//! panicking thread where it was, and the job's reason names the place. So does what is said of a dependency.

use std::any::Any;
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Notes where this thread panics, for the reason of the job that panicked. Call it from a panic hook;
/// [`std::panic::set_hook`] belongs to the program.
pub fn note(panic: &PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string);
    // Another panic while this one is noted aborts the process in any case.
    PLACE.with(|noted| {
        if let Ok(mut noted) = noted.try_borrow_mut() {
            *noted = place;
        }
    });
}

/// A panic of another thread, with its place.
pub(crate) struct Panic {
    cause: Box<dyn Any + Send>,
    place: Option<String>,
}

/// Runs `work`, and returns its panic as an error, which another thread can continue.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    // The panic continues where the result would be used.
    catch_any(work).map_err(|cause| Panic { cause, place: PLACE.with(RefCell::take) })
}

impl Panic {
    /// Continues the panic on this thread, which then is at the place where it began.
    pub(crate) fn resume(self) -> ! {
        PLACE.with(|noted| noted.replace(self.place));
        resume_unwind(self.cause)
    }
}

/// Awaits code of the program's, and returns its panic as a description of what `who` did: one of `begin`, of a poll, or of
/// a drop. It may be dropped at any time, and does not panic then either.
pub(crate) async fn contain<F: Future>(who: &str, begin: impl FnOnce() -> F) -> Result<F::Output, String> {
    let future = catch_any(begin).map_err(|panic| tell(who, panic))?;
    let mut contained = Contained { who, future: Some(Box::pin(future)) };
    let output = poll_fn(|context| contained.poll(context)).await;
    let dropped = contained.drop_future();
    output.and_then(|output| dropped.map(|()| output))
}

/// A future of the program's that is polled and dropped without a panic.
struct Contained<'a, F> {
    who: &'a str,
    /// `None` when it has ended.
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Contained<'_, F> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<F::Output, String>> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        match catch_any(|| future.as_mut().poll(context)) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(tell(self.who, panic))),
        }
    }
}

impl<F> Contained<'_, F> {
    fn drop_future(&mut self) -> Result<(), String> {
        let future = self.future.take();
        catch_any(|| drop(future)).map_err(|panic| tell(self.who, panic))
    }
}

impl<F> Drop for Contained<'_, F> {
    fn drop(&mut self) {
        // Who gave it up does not ask what it did.
        let _dropped = self.drop_future();
    }
}

/// Nobody sees what a panic of `work` left half done.
fn catch_any<T>(work: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(work))
}

/// Describes a panic, and drops what it was raised with, which may be anything and panic, too.
fn tell(who: &str, panic: Box<dyn Any + Send>) -> String {
    let told = describe(who, &*panic);
    if let Err(again) = catch_any(|| drop(panic)) {
        // A third time would be malice.
        std::mem::forget(again);
        PLACE.with(RefCell::take);
    }
    told
}

/// Describes a panic of `who` that was caught on this thread, and forgets its place.
pub(crate) fn describe(who: &str, panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)");
    match PLACE.with(RefCell::take) {
        Some(place) => format!("{who} panicked at {place}: {text}"),
        None => format!("{who} panicked: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::panic::panic_any;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Panics when it is dropped, but not while the thread panics: that would end the process.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "in a drop");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_in_any_part_of_a_future_is_returned() {
        let begun = contain("it", || -> std::future::Ready<()> { panic!("before") }).await;
        assert!(begun.unwrap_err().ends_with(": before"));
        let polled = contain("it", || async { panic!("in a poll") }).await;
        let polled: Result<(), _> = polled;
        assert!(polled.unwrap_err().ends_with(": in a poll"));
        let raised = contain("it", || async { panic_any(Bomb) }).await;
        let raised: Result<(), _> = raised;
        assert!(raised.unwrap_err().ends_with(": (no message)"));
        let held = Bomb;
        let ready_and_dropped = contain("it", || {
            poll_fn(move |_| {
                let _held = &held;
                Poll::Ready(1)
            })
        })
        .await;
        assert!(ready_and_dropped.unwrap_err().ends_with(": in a drop"));
        assert_eq!(contain("it", || ready(2)).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_future_that_panics_in_its_drop_may_be_given_up() {
        let hangs = contain("it", || async {
            let _held = Bomb;
            pending::<()>().await;
        });
        assert!(timeout(Duration::from_secs(1), hangs).await.is_err());
    }
}
