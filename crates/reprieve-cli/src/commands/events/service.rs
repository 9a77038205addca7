//! The metadata service: its address and this VM's name from a worker's settings, retries, and the
//! report of an outage.

use std::time::Duration;

use clap::builder::Resettable;
use clap::{Arg, Args, FromArgMatches};
use reprieve::checkup::Checkup;
use reprieve::{Error, ErrorKind, Result, WorkerArgs};
use reprieve_azure::scheduled_events::{Client, FailureKind, METADATA_URL, Stats};
use tokio::time::{Instant, sleep};

use crate::format::{duration, plain};
use crate::out::print_stderr;

/// The timeout of one request for this VM's name, and the pause after its failure. Unlike the
/// events, it has no slow first answer.
const NAME_TIMEOUT: Duration = Duration::from_secs(3);
const NAME_PAUSE: Duration = Duration::from_secs(1);

/// The settings of a worker for the metadata service, as text. The worker's own code parses them
/// and reads them from the environment and the file when a flag is missing.
#[derive(Debug, Args)]
#[expect(clippy::doc_markdown, reason = "the fields' docs are --help, which is no Markdown")]
pub(super) struct ServiceArgs {
    /// The instance metadata service, which announces events [default: http://169.254.169.254]
    ///
    /// The default is its address in every Azure VM.
    ///
    /// [env: REPRIEVE_METADATA_URL]
    #[arg(long, value_name = "URL")]
    metadata_url: Option<String>,

    /// The api-version of scheduled events [default: auto, the newest and the documented one]
    ///
    /// [env: REPRIEVE_METADATA_VERSION]
    #[arg(long, value_name = "VERSION")]
    metadata_version: Option<String>,

    /// This VM's name in Azure [default: from the metadata service]
    ///
    /// Events that name another VM are not this VM's.
    ///
    /// [env: REPRIEVE_VM_NAME]
    #[arg(long, value_name = "NAME")]
    vm_name: Option<String>,

    /// The settings file, for the three above [default: reprieve.toml, if there is one]
    ///
    /// [env: REPRIEVE_CONFIG]
    #[arg(long, value_name = "PATH")]
    config: Option<String>,
}

/// A metadata service, and this VM's name from the settings.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) client: Client,
    /// `None`: the service knows it.
    pub(super) vm_name: Option<String>,
}

impl Service {
    /// The service's address for messages.
    pub(super) fn address(&self) -> &str {
        self.client.base().trim_end_matches('/')
    }

    /// This VM's name, requested for no longer than `within`.
    pub(super) async fn vm(&self, within: Duration) -> Result<String> {
        match &self.vm_name {
            Some(name) => Ok(name.clone()),
            None => retry(within, async |left| self.client.compute(left.min(NAME_TIMEOUT)).await)
                .await
                .map(|vm| vm.name),
        }
    }

    /// This VM's name, requested until the service answers. The first failure is reported.
    pub(super) async fn vm_when_known(&self) -> String {
        if let Some(name) = &self.vm_name {
            return name.clone();
        }
        let mut reported = false;
        loop {
            match self.client.compute(NAME_TIMEOUT).await {
                Ok(vm) => return vm.name,
                Err(error) if !reported => {
                    reported = true;
                    print_stderr(&plain(&format!(
                        "failed to read this VM's name, trying again every second: {}; a new Azure VM may need two \
                         minutes; --vm-name gives the name",
                        error.message()
                    )));
                }
                Err(_) => {}
            }
            sleep(NAME_PAUSE).await;
        }
    }
}

impl ServiceArgs {
    pub(super) fn read(&self) -> Result<Service> {
        let checkup = Checkup::read(&self.as_a_workers()?)?;
        let Some(client) = checkup.metadata else {
            let place = checkup.origins.into_iter().find(|setting| setting.name == "metadata-url");
            let place = place.and_then(|setting| setting.from).unwrap_or_default();
            let message = format!(
                "{place}: events need the metadata service; give its address, such as {METADATA_URL}"
            );
            return Err(Error::new(ErrorKind::Invalid, "read the settings", message));
        };
        Ok(Service { client, vm_name: checkup.vm_name })
    }

    /// The arguments of a worker with these flags and no others. Its other settings are not read
    /// from the environment: an invalid queue, for example, must not prevent watching events.
    fn as_a_workers(&self) -> Result<WorkerArgs> {
        let ours = [
            ("metadata-url", &self.metadata_url),
            ("metadata-version", &self.metadata_version),
            ("vm-name", &self.vm_name),
            ("config", &self.config),
        ];
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

/// The pause after a failure: all processes of a VM share five requests a second.
/// <https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service#rate-limiting>
const PAUSE: Duration = Duration::from_secs(1);

/// Calls until the call succeeds, fails permanently, or `within` has passed, and returns the last
/// result. Each call gets the time that is left.
pub(super) async fn retry<T>(
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

/// The time without an answer after which an outage is reported. There is a request every second,
/// and one may fail.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(5);

/// The number of failed polls by kind, since the watch began.
type Failures = Vec<(FailureKind, u64)>;

/// Reports an outage of the metadata service and its end.
#[derive(Debug)]
pub(super) struct OutageLog {
    address: String,
    began: Instant,
    looked: Instant,
    /// The failures before the outage.
    failures: Failures,
    reported: bool,
}

impl OutageLog {
    pub(super) fn of(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            began: Instant::now(),
            looked: Instant::now(),
            failures: Failures::new(),
            reported: false,
        }
    }

    /// The line to print now, if any.
    pub(super) fn look(&mut self, stats: &Stats) -> Option<String> {
        self.change(stats.answer_age, &stats.failures.iter().collect())
    }

    fn change(&mut self, answer_age: Option<Duration>, failures: &Failures) -> Option<String> {
        let silent = answer_age.unwrap_or_else(|| self.began.elapsed());
        let was_reported = std::mem::replace(&mut self.reported, silent >= SILENT_AFTER);
        // Only an answer ends what went wrong before: every failure since then explains the outage.
        if answer_age.is_some_and(|age| age < self.looked.elapsed()) {
            self.failures.clone_from(failures);
        }
        self.looked = Instant::now();
        match (was_reported, self.reported) {
            (false, true) => {
                let why = self.why(failures);
                let hint = if answer_age.is_none() { "; a new Azure VM may need two minutes" } else { "" };
                let address = &self.address;
                Some(format!(
                    "no answer from {address} for {}{why}; trying again every second{hint}",
                    duration(silent)
                ))
            }
            (true, false) => Some(format!("{} answers again", self.address)),
            _ => None,
        }
    }

    /// The failures since the last answer, with their counts.
    fn why(&self, failures: &Failures) -> String {
        let before =
            |kind| self.failures.iter().find(|(known, _)| *known == kind).map_or(0, |(_, times)| *times);
        let since = failures.iter().map(|(kind, times)| (*kind, times - before(*kind)));
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

    fn given(metadata_url: &str, vm_name: Option<&str>) -> ServiceArgs {
        let owned = |text: &str| Some(text.to_owned());
        ServiceArgs {
            metadata_url: owned(metadata_url),
            metadata_version: None,
            vm_name: vm_name.and_then(owned),
            config: None,
        }
    }

    #[test]
    fn flags_mean_what_they_mean_to_a_worker() {
        let at = given("http://127.0.0.1:8169/vm/a_0", Some(" a_0 ")).read().expect("a service and a name");
        assert_eq!((at.client.base(), at.vm_name.as_deref()), ("http://127.0.0.1:8169/vm/a_0", Some("a_0")));
        for (url, name, expected) in [
            ("https://host", None, "--metadata-url: its scheme is \"https\""),
            ("", None, "--metadata-url: it is not a complete URL"),
            ("off", None, "--metadata-url: events need the metadata service"),
            ("http://host", Some(""), "--vm-name: it is empty"),
        ] {
            let error = given(url, name).read().expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.message().starts_with(expected), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_transient_failure_is_retried_until_the_time_has_passed() {
        let busy = || Error::new(ErrorKind::Unavailable, "ask", "busy");
        let began = Instant::now();
        let mut lefts = Vec::new();
        let result = retry(Duration::from_millis(2_500), async |left| {
            lefts.push(left.as_millis());
            Err::<(), _>(busy())
        })
        .await;
        assert_eq!(result.expect_err("never answered").kind(), ErrorKind::Unavailable);
        assert_eq!((lefts, began.elapsed()), (vec![2_500, 1_500, 500], Duration::from_secs(2)));

        let mut calls = 0;
        let third = retry(Duration::from_secs(10), async |_| {
            calls += 1;
            if calls < 3 { Err(busy()) } else { Ok(calls) }
        });
        assert_eq!(third.await.expect("the third is answered"), 3);

        let mut calls = 0;
        let refused = retry(Duration::from_secs(10), async |_| {
            calls += 1;
            Err::<(), _>(Error::new(ErrorKind::Invalid, "ask", "no"))
        });
        refused.await.expect_err("it is refused for good");
        assert_eq!(calls, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_and_its_end_are_reported_once() {
        let mut silence = OutageLog::of("http://host");
        let none = Failures::new();
        let second = Duration::from_secs(1);
        assert_eq!(silence.change(None, &none), None);
        tokio::time::advance(5 * second).await;
        let first = "no answer from http://host for 5s; trying again every second; a new Azure VM may need two minutes";
        assert_eq!(silence.change(None, &none).as_deref(), Some(first));
        tokio::time::advance(5 * second).await;
        assert_eq!(silence.change(None, &none), None);
        assert_eq!(silence.change(Some(second), &none).as_deref(), Some("http://host answers again"));
        assert_eq!(silence.change(Some(4 * second), &none), None);
        let later = "no answer from http://host for 6s; trying again every second";
        assert_eq!(silence.change(Some(6 * second), &none).as_deref(), Some(later));
    }

    #[tokio::test(start_paused = true)]
    async fn every_failure_since_the_last_answer_explains_the_outage() {
        let mut outage = OutageLog::of("http://host");
        let second = Duration::from_secs(1);
        let failed = |times| vec![(FailureKind::TimedOut, 2), (FailureKind::Server, times)];
        tokio::time::advance(second).await;
        assert_eq!(outage.change(Some(second / 2), &failed(1)), None);
        for (age, times) in [(1, 2), (2, 3), (3, 4), (4, 4)] {
            tokio::time::advance(second).await;
            assert_eq!(outage.change(Some(age * second + second / 2), &failed(times)), None);
        }
        tokio::time::advance(second).await;
        // None failed since the last look.
        let line = outage.change(Some(5 * second + second / 2), &failed(4)).expect("an outage");
        assert!(line.contains(" (server 3x); "), "{line}");
    }
}
