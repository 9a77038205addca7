//! On Azurite, which `cargo xtask test` starts.

use reprieve_azure::storage::Address;
use reprieve_core::conformance::Fixture;

/// Returns the connection string of the test run's shared Azurite.
const VARIABLE: &str = "REPRIEVE_TEST_AZURITE";

async fn fixture() -> Fixture {
    let Some(azurite) = variable(VARIABLE) else {
        assert!(variable("REPRIEVE_TESTS_NEED_AZURITE").is_none(), "{VARIABLE} is not set");
        eprintln!("{VARIABLE} is not set: this saw no Azurite, and ran on the storage double instead");
        return super::double::fixture().await;
    };
    super::fixture(Address::parse(&azurite).expect("a connection string"), ()).await
}

#[expect(clippy::disallowed_methods, reason = "a test run hands its tests what they need by variables")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

reprieve_core::queue_conformance!(fixture);
reprieve_core::records_conformance!(fixture);
reprieve_core::damage_conformance!(fixture);
reprieve_core::blobs_conformance!(fixture);
reprieve_core::roster_conformance!(fixture);
reprieve_core::protocol_conformance!(fixture);
reprieve_core::ledger_conformance!(fixture);
