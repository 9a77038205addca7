//! Uncommitted blocks, and the block lists that commit them.
//!
//! <https://learn.microsoft.com/rest/api/storageservices/put-block-list>

use std::collections::HashMap;

use axum::body::Bytes;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::content::{Block, Content};
use crate::storage::refusal::{INVALID_BLOCK, INVALID_BLOCK_LIST, INVALID_QUERY, INVALID_XML, Refusal};
use crate::storage::xml;

/// The longest id of a block, before base64.
const ID_BYTES_MAX: usize = 64;

/// The uncommitted blocks of one blob, by id.
#[derive(Debug, Default)]
pub(crate) struct Uncommitted(HashMap<String, Bytes>);

impl Uncommitted {
    /// Stores a block, and replaces one with the same id.
    pub(crate) fn put(&mut self, id: &str, data: Bytes) -> Result<(), Refusal> {
        let raw = STANDARD.decode(id).map_err(|_| INVALID_QUERY)?;
        if raw.is_empty() || raw.len() > ID_BYTES_MAX {
            return Err(INVALID_QUERY);
        }
        if self.0.keys().next().is_some_and(|other| other.len() != id.len()) {
            return Err(INVALID_BLOCK);
        }
        self.0.insert(id.to_owned(), Block::new(String::new(), data).data);
        Ok(())
    }

    /// Returns the content that this list makes of these blocks and the blob's committed ones.
    pub(crate) fn commit(&self, list: &[u8], committed: Option<&Content>) -> Result<Content, Refusal> {
        let list = xml::read(list)?;
        if list.root != "BlockList" {
            return Err(INVALID_XML);
        }
        let committed = committed.map(Content::by_id).unwrap_or_default();
        let old = |id: &str| committed.get(id).copied().cloned();
        let new = |id: &str| self.0.get(id).cloned();
        let mut blocks = Vec::with_capacity(list.elements.len());
        for (from, id) in list.elements {
            let id = id.trim();
            let data = match from.as_str() {
                "Committed" => old(id),
                "Uncommitted" => new(id),
                "Latest" => new(id).or_else(|| old(id)),
                _ => return Err(INVALID_XML),
            };
            // Blocks without a name belong to a blob that was put in one request.
            let data = data.filter(|_| !id.is_empty()).ok_or(INVALID_BLOCK_LIST)?;
            blocks.push(Block { id: id.to_owned(), data });
        }
        Ok(Content::of(blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(content: &Content) -> String {
        String::from_utf8(content.slice(0..content.bytes()).concat()).unwrap()
    }

    #[test]
    fn a_list_takes_blocks_from_the_named_source() {
        let mut staged = Uncommitted::default();
        staged.put("QQ==", "new a".into()).unwrap();
        staged.put("Qg==", "b".into()).unwrap();
        let committed = Content::of(vec![Block::new("QQ==".into(), "old a".into())]);
        let commit =
            |list: &str| staged.commit(format!("<BlockList>{list}</BlockList>").as_bytes(), Some(&committed));
        let new = commit("<Latest>QQ==</Latest><Latest>Qg==</Latest>").unwrap();
        assert_eq!(text(&new), "new ab");
        let both = commit("<Uncommitted>Qg==</Uncommitted><Committed>QQ==</Committed>").unwrap();
        assert_eq!(text(&both), "bold a");
        assert_eq!(text(&commit("").unwrap()), "");
        for unknown in ["<Committed>Qg==</Committed>", "<Latest>Qw==</Latest>", "<Latest/>"] {
            assert_eq!(commit(unknown).unwrap_err(), INVALID_BLOCK_LIST, "{unknown}");
        }
        assert_eq!(commit("<Newest>QQ==</Newest>").unwrap_err(), INVALID_XML);
    }

    #[test]
    fn ids_are_base64_and_equally_long() {
        let mut staged = Uncommitted::default();
        staged.put("QUE=", Bytes::new()).unwrap();
        assert_eq!(staged.put("QUFBQUFB", Bytes::new()), Err(INVALID_BLOCK));
        let long = STANDARD.encode([0; 65]);
        for bad in ["", "no base64", long.as_str()] {
            assert_eq!(staged.put(bad, Bytes::new()), Err(INVALID_QUERY), "{bad}");
        }
    }
}
