//! The metadata service that is asked, and as which VM: read as a worker reads it; asked again while it
//! fails; reported when it stays silent.

use std::time::Duration;

use clap::builder::Resettable;
use clap::{Arg, Args, FromArgMatches};
use reprieve::checkup::Checkup;
use reprieve::{Error, ErrorKind, Result, WorkerArgs};
use reprieve_azure::scheduled_events::{Client, Failures, METADATA_URL, Stats};
use tokio::time::{Instant, sleep};

use crate::format::{duration, plain};
use crate::out::say;

/// How long one request for this VM's name may take, and how long after its failure the next is sent. It has no first
/// answer to wait for, as the events have.
const NAME_TIMEOUT: Duration = Duration::from_secs(3);
const NAME_PAUSE: Duration = Duration::from_secs(1);

/// The settings of a worker that say where it hears of events. Here they are flags as they stand; what they mean, and
/// where they come from when nobody gives the flag, is the worker's to say.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "the fields' docs are --help, which is no Markdown")]
pub(super) struct AtArgs {
    /// The instance metadata service, which announces events [default: http://169.254.169.254]
    ///
    /// The default is its address in every Azure VM.
    ///
    /// [env: REPRIEVE_METADATA_URL]
    #[arg(long, value_name = "URL")]
    metadata_url: Option<String>,

    /// What Azure calls this VM [default: as the metadata service says]
    ///
    /// It tells the events of this VM from those of its neighbours.
    ///
    /// [env: REPRIEVE_VM_NAME]
    #[arg(long, value_name = "NAME")]
    vm_name: Option<String>,

    /// The settings file, for the two above [default: reprieve.toml, if there is one]
    ///
    /// [env: REPRIEVE_CONFIG]
    #[arg(long, value_name = "PATH")]
    config: Option<String>,
}

/// A metadata service, and what this VM is said to be called there.
#[derive(Debug)]
pub(super) struct At {
    pub(super) client: Client,
    /// `None`: the service is to be asked.
    pub(super) vm_name: Option<String>,
}

impl At {
    /// Where the service is, as people write it.
    pub(super) fn address(&self) -> &str {
        self.client.base().trim_end_matches('/')
    }

    /// What this VM is called, asked for no longer than `within`.
    pub(super) async fn vm(&self, within: Duration) -> Result<String> {
        match &self.vm_name {
            Some(name) => Ok(name.clone()),
            None => patiently(within, async |left| self.client.compute(left.min(NAME_TIMEOUT)).await)
                .await
                .map(|vm| vm.name),
        }
    }

    /// What this VM is called, however long it takes to learn that; that it does is said.
    pub(super) async fn vm_at_last(&self) -> String {
        if let Some(name) = &self.vm_name {
            return name.clone();
        }
        let mut said = false;
        loop {
            match self.client.compute(NAME_TIMEOUT).await {
                Ok(vm) => return vm.name,
                Err(error) if !said => {
                    said = true;
                    say(&plain(&format!(
                        "what this VM is called is not known yet: {}; it is asked every second, and a new Azure VM may \
                         need two minutes; --vm-name says it, too",
                        error.message()
                    )));
                }
                Err(_) => {}
            }
            sleep(NAME_PAUSE).await;
        }
    }
}

impl AtArgs {
    pub(super) fn read(&self) -> Result<At> {
        let checkup = Checkup::read(&self.as_a_workers()?)?;
        let Some(client) = checkup.metadata else {
            let place = checkup.origins.into_iter().find(|setting| setting.name == "metadata-url");
            let place = place.and_then(|setting| setting.from).unwrap_or_default();
            let message =
                format!("{place}: without it there are no events; give its address, such as {METADATA_URL}");
            return Err(Error::new(ErrorKind::Invalid, "read the settings", message));
        };
        Ok(At { client, vm_name: checkup.vm_name })
    }

    /// The arguments of a worker with these flags and no others. Its other settings are not read from the environment:
    /// a queue that is none, say, is no reason to see no events.
    fn as_a_workers(&self) -> Result<WorkerArgs> {
        let ours =
            [("metadata-url", &self.metadata_url), ("vm-name", &self.vm_name), ("config", &self.config)];
        let line =
            ours.iter().filter_map(|(flag, text)| text.as_ref().map(|text| format!("--{flag}={text}")));
        let is_ours = |arg: &Arg| ours.iter().any(|(flag, _)| arg.get_long() == Some(flag));
        let command = WorkerArgs::augment_args(clap::Command::new("events").no_binary_name(true))
            .mut_args(|arg| if is_ours(&arg) { arg } else { arg.env(Resettable::Reset) });
        let parsed =
            command.try_get_matches_from(line).and_then(|matches| WorkerArgs::from_arg_matches(&matches));
        parsed.map_err(|error| {
            Error::new(ErrorKind::Invalid, "read the settings", error.to_string()).with_source(error)
        })
    }
}

/// How long after a failure it is asked again: all processes of a VM share five requests a second.
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#rate-limiting>
const PAUSE: Duration = Duration::from_secs(1);

/// Calls until it succeeds, fails for good, or `within` is over, and returns what came last. Each call is told how long
/// it may take.
pub(super) async fn patiently<T>(
    within: Duration,
    mut call: impl AsyncFnMut(Duration) -> Result<T>,
) -> Result<T> {
    let deadline = Instant::now() + within;
    loop {
        let result = call(deadline.saturating_duration_since(Instant::now())).await;
        match result {
            Err(error) if error.is_temporary() && Instant::now() + PAUSE < deadline => sleep(PAUSE).await,
            result => return result,
        }
    }
}

/// After how long without an answer it is said. It is asked every second, and one answer may well be missed.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Silence {
    address: String,
    began: Instant,
    /// Those of before the silence.
    failures: Failures,
    said: bool,
}

impl Silence {
    pub(super) fn of(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            began: Instant::now(),
            failures: Failures::default(),
            said: false,
        }
    }

    /// What is to be said now, if anything.
    pub(super) fn look(&mut self, stats: &Stats) -> Option<String> {
        self.change(stats.answer_age, &stats.failures)
    }

    fn change(&mut self, answer_age: Option<Duration>, failures: &Failures) -> Option<String> {
        let silent = answer_age.unwrap_or_else(|| self.began.elapsed());
        let was_said = std::mem::replace(&mut self.said, silent >= SILENCE_MAX);
        if !self.said {
            self.failures = *failures;
        }
        match (was_said, self.said) {
            (false, true) => {
                let why = self.why(failures);
                let patience =
                    if answer_age.is_none() { "; a new Azure VM may need two minutes" } else { "" };
                let address = &self.address;
                Some(format!(
                    "no answer from {address} for {}{why}; it is asked every second{patience}",
                    duration(silent)
                ))
            }
            (true, false) => Some(format!("{} answers again", self.address)),
            _ => None,
        }
    }

    /// What has gone wrong in the silence, and how often.
    fn why(&self, failures: &Failures) -> String {
        let since = failures.iter().map(|(kind, times)| (kind, times - self.failures.of(kind)));
        let since: Vec<_> = since
            .filter(|(_, times)| *times > 0)
            .map(|(kind, times)| format!("{} {times}x", kind.as_str().replace('_', " ")))
            .collect();
        if since.is_empty() { String::new() } else { format!(" ({})", since.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(metadata_url: &str, vm_name: Option<&str>) -> AtArgs {
        let owned = |text: &str| Some(text.to_owned());
        AtArgs { metadata_url: owned(metadata_url), vm_name: vm_name.and_then(owned), config: None }
    }

    #[test]
    fn flags_mean_what_they_mean_to_a_worker() {
        let at = given("http://127.0.0.1:8169/vm/a_0", Some(" a_0 ")).read().expect("a service and a name");
        assert_eq!((at.client.base(), at.vm_name.as_deref()), ("http://127.0.0.1:8169/vm/a_0", Some("a_0")));
        for (url, name, said) in [
            ("https://host", None, "--metadata-url: its scheme is \"https\""),
            ("", None, "--metadata-url: it is not a complete URL"),
            ("off", None, "--metadata-url: without it there are no events"),
            ("http://host", Some(""), "--vm-name: it is empty"),
        ] {
            let error = given(url, name).read().expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.message().starts_with(said), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_may_pass_is_tried_again_until_the_time_is_over() {
        let busy = || Error::new(ErrorKind::Unavailable, "ask", "busy");
        let began = Instant::now();
        let mut lefts = Vec::new();
        let result = patiently(Duration::from_millis(2_500), async |left| {
            lefts.push(left.as_millis());
            Err::<(), _>(busy())
        })
        .await;
        assert_eq!(result.expect_err("never answered").kind(), ErrorKind::Unavailable);
        assert_eq!((lefts, began.elapsed()), (vec![2_500, 1_500, 500], Duration::from_secs(2)));

        let mut calls = 0;
        let third = patiently(Duration::from_secs(10), async |_| {
            calls += 1;
            if calls < 3 { Err(busy()) } else { Ok(calls) }
        });
        assert_eq!(third.await.expect("the third is answered"), 3);

        let mut calls = 0;
        let refused = patiently(Duration::from_secs(10), async |_| {
            calls += 1;
            Err::<(), _>(Error::new(ErrorKind::Invalid, "ask", "no"))
        });
        refused.await.expect_err("it is refused for good");
        assert_eq!(calls, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_and_its_end_are_said_once() {
        let mut silence = Silence::of("http://host");
        let none = Failures::default();
        let second = Duration::from_secs(1);
        assert_eq!(silence.change(None, &none), None);
        tokio::time::advance(5 * second).await;
        let first = "no answer from http://host for 5s; it is asked every second; a new Azure VM may need two minutes";
        assert_eq!(silence.change(None, &none).as_deref(), Some(first));
        tokio::time::advance(5 * second).await;
        assert_eq!(silence.change(None, &none), None);
        assert_eq!(silence.change(Some(second), &none).as_deref(), Some("http://host answers again"));
        assert_eq!(silence.change(Some(4 * second), &none), None);
        let later = "no answer from http://host for 6s; it is asked every second";
        assert_eq!(silence.change(Some(6 * second), &none).as_deref(), Some(later));
    }
}
