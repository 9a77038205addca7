//! On the storage double as an account with a hierarchical namespace, where directories are blobs. Such an
//! account can't have the blobs `a` and `a/b`, as the suite for blobs does.

use reprieve_core::conformance::Fixture;
use reprieve_sim::storage::Config;

async fn fixture() -> Fixture {
    super::double::fixture_of(Config { has_directories: true, ..Config::default() }).await
}

reprieve_core::records_conformance!(fixture);
reprieve_core::roster_conformance!(fixture);
reprieve_core::protocol_conformance!(fixture);
reprieve_core::ledger_conformance!(fixture);
