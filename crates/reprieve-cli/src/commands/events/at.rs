//! Which metadata service is asked, and as which VM: read as a worker reads it.

use std::time::Duration;

use clap::builder::Resettable;
use clap::{Arg, Args, FromArgMatches};
use reprieve::checkup::Checkup;
use reprieve::{Error, ErrorKind, Result, WorkerArgs};
use reprieve_azure::scheduled_events::{Client, METADATA_URL};
use tokio::time::sleep;

use super::patience::patiently;
use crate::out::{plain, say};

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
}
