//! What the machines cost, and what regular ones would have cost.
//!
//! | file | concept |
//! |---|---|
//! | `args` | where prices come from |
//! | `book` | [`Book`]: the prices by size and region, Spot by the time |
//! | `file` | the file of `reprieve prices --json` |
//! | `sum` | [`Money`]: the figures, from the lives of machines |
//! | `show` | the figures as text and as HTML |

mod args;
mod book;
mod file;
mod show;
mod sum;

pub(super) use args::MoneyArgs;
pub(super) use show::{section, text};
pub(super) use sum::Money;
