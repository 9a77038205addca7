//! The ports on answers that Azurite does not give: refusals, lost answers, messages of other
//! programs. The storage double gives them on demand.

// Said of each, so that the lints know that all of it is tests.
#[cfg(test)]
mod ambiguous;
#[cfg(test)]
mod answers;
#[cfg(test)]
mod bodies;
#[cfg(test)]
mod owners;
#[cfg(test)]
mod records;
#[cfg(test)]
mod support;
