//! Why a text is no trace.

use std::fmt;

/// A reason why a trace can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceError {
    /// The text has no data.
    Empty,
    /// The trace covers no time.
    NoTime,
    /// No machine left the fleet.
    NoLosses,
    /// The text begins like a series and is none; with what the parser says.
    Series(String),
    /// The time between two samples is zero.
    ZeroGap,
    /// A line has not the columns of its format.
    Columns {
        /// The line, from 1.
        line: usize,
        /// The columns that it should have.
        expected: &'static str,
    },
    /// A value of a line can't be read.
    Value {
        /// The line, from 1.
        line: usize,
        /// The value as it is, shortened.
        value: String,
        /// The form that it should have.
        expected: &'static str,
    },
    /// An event is earlier than the one before it.
    Backwards {
        /// The line, from 1.
        line: usize,
    },
    /// A node is added that is there, or removed that is not.
    Node {
        /// The line, from 1.
        line: usize,
        /// The node, shortened.
        node: String,
        /// Whether it is there.
        present: bool,
    },
    /// The trace is longer than times can be.
    TooLong,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the trace is empty: give a series, fleet events or lifetimes"),
            Self::NoTime => f.write_str("the trace covers no time: it needs events at two moments at least"),
            Self::NoLosses => f.write_str(
                "no machine left the fleet of the trace, so it tells nothing of evictions: give one with losses",
            ),
            Self::Series(fault) => write!(
                f,
                "the trace is no series of the form {{\"metadata\":{{\"gap_seconds\":300}},\"data\":[1,0]}}: {fault}"
            ),
            Self::ZeroGap => {
                f.write_str("gap_seconds of the trace is 0: give the seconds between two samples")
            }
            Self::Columns { line, expected } => write!(f, "line {line} of the trace is not `{expected}`"),
            Self::Value { line, value, expected } => {
                write!(f, "line {line} of the trace has {value:?} where {expected} should be")
            }
            Self::Backwards { line } => {
                write!(f, "line {line} of the trace is earlier than the line before it: sort events by time")
            }
            Self::Node { line, node, present: true } => {
                write!(f, "line {line} of the trace adds {node:?}, which is in the fleet already")
            }
            Self::Node { line, node, present: false } => {
                write!(f, "line {line} of the trace removes {node:?}, which is not in the fleet")
            }
            Self::TooLong => {
                f.write_str("the trace is longer than 500 million years: check its unit of time")
            }
        }
    }
}

impl std::error::Error for TraceError {}
