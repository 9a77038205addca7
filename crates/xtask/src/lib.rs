//! What the developer commands share with the whole-system tests: running Azurite, the storage
//! emulator.

pub use reprieve_azurite as azurite;

use std::path::Path;

/// The root of the repository.
#[must_use]
pub fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package)
}
