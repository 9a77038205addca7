//! A setting as it was given: the text, and where it came from.

use std::ffi::OsStr;
use std::fmt;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, Command};

/// The unchecked text of one setting. Boxed in the arguments, because programs put those into
/// enums.
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
    type Value = Box<Given>;

    fn parse_ref(&self, cmd: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Box<Given>, clap::Error> {
        self.parse_ref_(cmd, arg, value, ValueSource::CommandLine)
    }

    fn parse_ref_(
        &self,
        cmd: &Command,
        _arg: Option<&Arg>,
        value: &OsStr,
        source: ValueSource,
    ) -> Result<Box<Given>, clap::Error> {
        let by = if source == ValueSource::EnvVariable { By::Env } else { By::Flag };
        match value.to_str() {
            Some(text) => Ok(Box::new(Given { text: text.to_owned(), by })),
            None => Err(clap::Error::new(ErrorKind::InvalidUtf8).with_cmd(cmd)),
        }
    }
}
