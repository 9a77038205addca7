//! The ports with responses that Azurite does not give: refusals, lost responses, messages of other
//! programs. The storage double gives them on request.

// On each module, so that the lints treat all of it as tests.
#[cfg(test)]
mod ambiguous;
#[cfg(test)]
mod answers;
#[cfg(test)]
mod attached;
#[cfg(test)]
mod bodies;
#[cfg(test)]
mod directories;
#[cfg(test)]
mod expiring;
#[cfg(test)]
mod lists;
mod owners;
#[cfg(test)]
mod parts;
#[cfg(test)]
mod records;
#[cfg(test)]
mod roster;
#[cfg(test)]
mod support;
