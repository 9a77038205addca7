//! The places of panics. A job's task sees only what a panic says, so the hook for panics notes on the
//! panicking thread where it was, and the job's reason names the place. So does what is said of a dependency.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, resume_unwind};

use futures_util::FutureExt as _;

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
    // The panic continues where the result would be used, so nobody sees what it left half done.
    catch_unwind(AssertUnwindSafe(work)).map_err(|cause| Panic { cause, place: PLACE.with(RefCell::take) })
}

impl Panic {
    /// Continues the panic on this thread, which then is at the place where it began.
    pub(crate) fn resume(self) -> ! {
        PLACE.with(|noted| noted.replace(self.place));
        resume_unwind(self.cause)
    }
}

/// Awaits code of the program's, and returns its panic as a description of what `who` did.
pub(crate) async fn contain<T>(who: &str, future: impl Future<Output = T>) -> Result<T, String> {
    let ended = AssertUnwindSafe(future).catch_unwind().await;
    ended.map_err(|panic| describe(who, &*panic))
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
