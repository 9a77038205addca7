//! `reprieve events watch --once`: what stands now.

use std::cell::RefCell;
use std::time::Duration;

use reprieve::Result;
use reprieve_azure::scheduled_events::ActiveEvents;

use super::args::WatchArgs;
use super::at::At;
use super::patience::patiently;
use super::printer::Printer;
use super::silence::SILENCE_MAX;
use super::told::Told;
use crate::out::{plain, say};

/// How long an answer is waited for: the first request of a VM enables the service, which takes up to two minutes.
/// <https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events#enabling-and-disabling-scheduled-events>
const WITHIN: Duration = Duration::from_secs(130);

pub(super) async fn run(args: &WatchArgs) -> Result<()> {
    let at = args.at.read()?;
    let fault = RefCell::new(None);
    let asked = async {
        let events = patiently(WITHIN, async |left| {
            let answer = at.client.answer(left).await;
            *fault.borrow_mut() = answer.as_ref().err().map(|error| error.message().to_owned());
            answer
        });
        // Both at once: it is the request for events that enables the service.
        tokio::try_join!(at.vm(WITHIN), events)
    };
    let (vm, answer) = told_when_slow(&at, &fault, asked).await?;
    // To somebody who has seen nothing before, what stands is what has changed.
    let changes = ActiveEvents::default().update(&answer, &vm);
    let wanted: Vec<_> = changes.iter().filter(|change| args.wants(change)).collect();
    let printer = Printer::new(args.json, args.all)?;
    for change in &wanted {
        printer.print(&Told::new(change, &vm))?;
    }
    if wanted.is_empty() {
        let whom = if args.all { "the set of " } else { "" };
        say(&plain(&format!("nothing is planned for {whom}{vm}")));
    }
    printer.finish().await
}

/// Says so when there is no answer for a while, and what came instead.
async fn told_when_slow<T>(
    at: &At,
    fault: &RefCell<Option<String>>,
    asked: impl Future<Output = Result<T>>,
) -> Result<T> {
    let mut asked = std::pin::pin!(asked);
    tokio::select! {
        result = &mut asked => return result,
        () = tokio::time::sleep(SILENCE_MAX) => {}
    }
    let address = at.address();
    let why = fault.borrow().as_ref().map(|fault| format!(": {fault}")).unwrap_or_default();
    say(&plain(&format!(
        "no answer yet from {address}{why}; it is waited for, because a new Azure VM may need two minutes"
    )));
    asked.await
}
