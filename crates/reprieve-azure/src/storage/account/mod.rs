//! A storage account: its address, and the key that signs in to it.

mod address;
mod shared_key;

pub use address::Address;
#[cfg(test)]
pub(crate) use address::DEVELOPMENT_KEY;
pub(crate) use address::{DEVELOPMENT_ACCOUNT, SignIn};
pub(crate) use shared_key::SharedKey;
