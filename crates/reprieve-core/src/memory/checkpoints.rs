//! Checkpoints in memory.

use std::collections::HashMap;
use std::sync::Mutex;

use async_trait::async_trait;

use super::lock;
use crate::error::{Error, ErrorKind, Result};
use crate::ports::{CheckpointStore, Stored, Version};

/// Checkpoints in memory.
#[derive(Debug, Default)]
pub struct MemoryCheckpoints {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    values: HashMap<String, Stored>,
    /// The last version given; shared by all keys, so that clearing one does not make it start again.
    last_version: u64,
}

impl MemoryCheckpoints {
    /// A new, empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl CheckpointStore for MemoryCheckpoints {
    async fn load(&self, key: &str) -> Result<Option<Stored>> {
        Ok(lock(&self.state).values.get(key).cloned())
    }

    async fn save(&self, key: &str, expected: Option<&Version>, bytes: Vec<u8>) -> Result<Version> {
        let mut state = lock(&self.state);
        if state.values.get(key).map(|stored| &stored.version) != expected {
            return Err(Error::new(
                ErrorKind::Conflict,
                "save a checkpoint",
                "somebody else saved or cleared it: load it again",
            ));
        }
        state.last_version += 1;
        let version = Version::new(state.last_version.to_string());
        state.values.insert(key.to_owned(), Stored { bytes, version: version.clone() });
        Ok(version)
    }

    async fn clear(&self, key: &str) -> Result<()> {
        lock(&self.state).values.remove(key);
        Ok(())
    }
}
