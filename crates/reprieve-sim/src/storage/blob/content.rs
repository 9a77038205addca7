//! The bytes of a blob, in the blocks in which it was written.

use std::collections::HashMap;
use std::ops::Range;

use axum::body::Bytes;

/// The longest block that is copied. A block is a slice of the connection's buffer, and would keep
/// all of it in memory.
const COPY_BYTES_MAX: usize = 64 * 1024;

/// The content of a blob.
#[derive(Debug, Clone, Default)]
pub(crate) struct Content {
    blocks: Vec<Block>,
    bytes: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// The original id in base64. Empty for a blob that was written in one request; no later list
    /// can name it.
    pub(crate) id: String,
    pub(crate) data: Bytes,
}

impl Block {
    pub(crate) fn new(id: String, data: Bytes) -> Self {
        let data = if data.len() <= COPY_BYTES_MAX { Bytes::copy_from_slice(&data) } else { data };
        Self { id, data }
    }
}

impl Content {
    pub(crate) fn of(blocks: Vec<Block>) -> Self {
        let bytes = blocks.iter().map(|block| block.data.len() as u64).sum();
        Self { blocks, bytes }
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn by_id(&self) -> HashMap<&str, &Bytes> {
        self.blocks.iter().map(|block| (block.id.as_str(), &block.data)).collect()
    }

    /// Returns the pieces of this range, which must be within the content. Copies nothing.
    pub(crate) fn slice(&self, range: Range<u64>) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        let mut begins = 0_u64;
        for block in &self.blocks {
            let ends = begins + block.data.len() as u64;
            let within = |at: u64| usize::try_from(at.clamp(begins, ends) - begins).unwrap_or(usize::MAX);
            let (from, to) = (within(range.start), within(range.end));
            if from < to {
                pieces.push(block.data.slice(from..to));
            }
            begins = ends;
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_is_found_across_blocks() {
        let blocks = ["abc", "", "d", "efgh"].map(|data| Block::new(String::new(), data.into()));
        let (content, whole) = (Content::of(blocks.to_vec()), b"abcdefgh");
        assert_eq!(content.bytes(), 8);
        for start in 0..=8_usize {
            for end in start..=8 {
                let pieces = content.slice(start as u64..end as u64);
                assert_eq!(pieces.concat(), &whole[start..end]);
            }
        }
    }
}
