//! A setting as it was given: the text, and where it came from.

use std::ffi::OsStr;
use std::fmt;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, Command};

/// The unchecked text of one setting.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) text: String,
    pub(crate) by: By,
}

/// Where a setting came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Flag,
    Env,
    File,
    /// Not given.
    Default,
}

impl Given {
    /// Whether the setting was given at all. A unit file or a shell unsets a variable by setting it
    /// to the empty string.
    pub(crate) fn is_set(&self) -> bool {
        self.by == By::Flag || !self.text.is_empty()
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A store's address may be a connection string with its key.
        f.debug_struct("Given").field("by", &self.by).finish_non_exhaustive()
    }
}

/// Accepts any text and notes whether it was on the command line. All settings are checked together
/// later, so that every fault is reported at once.
#[derive(Debug, Clone)]
pub(crate) struct AnyText;

impl TypedValueParser for AnyText {
    type Value = Given;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Given, clap::Error> {
        self.parse_ref_(cmd, arg, value, ValueSource::CommandLine)
    }

    fn parse_ref_(
        &self,
        cmd: &Command,
        _arg: Option<&Arg>,
        value: &OsStr,
        source: ValueSource,
    ) -> Result<Given, clap::Error> {
        let by = if source == ValueSource::EnvVariable { By::Env } else { By::Flag };
        match value.to_str() {
            Some(text) => Ok(Given { text: text.to_owned(), by }),
            None => Err(clap::Error::new(ErrorKind::InvalidUtf8).with_cmd(cmd)),
        }
    }
}
