//! Lists of blobs, in pages.
//!
//! <https://learn.microsoft.com/rest/api/storageservices/list-blobs>

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::container::{Blob, Container};
use crate::storage::answer::Answer;
use crate::storage::refusal::{INVALID_QUERY, Refusal};
use crate::storage::request::Request;
use crate::storage::xml::{self, Xml};

/// The most blobs in one page, and the default.
const PAGE_MAX: usize = 5000;

pub(crate) fn answer(container: &Container, request: &Request) -> Result<Answer, Refusal> {
    for unknown in ["delimiter", "startFrom"] {
        if request.query(unknown).is_some_and(|value| !value.is_empty()) {
            return Err(Refusal::not_implemented(&format!("a list with {unknown}")));
        }
    }
    let prefix = request.query("prefix").unwrap_or_default();
    let page = request.integer("maxresults", 1..=i64::from(i32::MAX))?;
    let page = page.and_then(|page| usize::try_from(page).ok()).map_or(PAGE_MAX, |page| page.min(PAGE_MAX));
    let with_metadata = match request.query("include").unwrap_or_default() {
        "" => false,
        "metadata" => true,
        other => return Err(Refusal::not_implemented(&format!("a list that includes {other}"))),
    };
    let start = match request.query("marker").filter(|marker| !marker.is_empty()) {
        None => prefix.to_owned(),
        Some(marker) => name_in(marker)?,
    };

    let from_start = container.blobs.range::<String, _>(start.max(prefix.to_owned())..);
    let mut blobs = from_start.take_while(|(name, _)| name.starts_with(prefix));
    let mut xml = Xml::new();
    xml.raw("<EnumerationResults ContainerName=\"").text(&request.key.name).raw("\">");
    if xml::can_hold(prefix) {
        xml.element("Prefix", prefix);
    }
    xml.element("MaxResults", &page.to_string()).raw("<Blobs>");
    for (name, blob) in blobs.by_ref().take(page) {
        entry(&mut xml, name, blob, with_metadata);
    }
    let next = blobs.next().map(|(name, _)| URL_SAFE_NO_PAD.encode(name)).unwrap_or_default();
    xml.raw("</Blobs>").element("NextMarker", &next).raw("</EnumerationResults>");
    Ok(Answer::xml(200, xml.finish()))
}

/// Decodes a marker: the name with which the page begins, in a form that is not mistaken for a
/// name.
fn name_in(marker: &str) -> Result<String, Refusal> {
    let name = URL_SAFE_NO_PAD.decode(marker).map_err(|_| INVALID_QUERY)?;
    String::from_utf8(name).map_err(|_| INVALID_QUERY)
}

fn entry(xml: &mut Xml, name: &str, blob: &Blob, with_metadata: bool) {
    xml.raw("<Blob>");
    if xml::can_hold(name) {
        xml.element("Name", name);
    } else {
        let encoded = utf8_percent_encode(name, NON_ALPHANUMERIC).to_string();
        xml.raw("<Name Encoded=\"true\">").raw(&encoded).raw("</Name>");
    }
    xml.raw("<Properties>")
        .element("Creation-Time", &blob.created.http_date())
        .element("Last-Modified", &blob.stamp.modified.http_date())
        // Without the quotes that a header has.
        .element("Etag", blob.stamp.etag.trim_matches('"'))
        .element("Content-Length", &blob.content.bytes().to_string());
    for (property, value) in blob.properties.iter() {
        xml.element(property, value);
    }
    xml.raw("<BlobType>BlockBlob</BlobType><LeaseStatus>unlocked</LeaseStatus>")
        .raw("<LeaseState>available</LeaseState><ServerEncrypted>true</ServerEncrypted></Properties>");
    if with_metadata {
        xml.raw("<Metadata>");
        for (key, value) in &blob.metadata {
            xml.element(key, value);
        }
        xml.raw("</Metadata>");
    }
    xml.raw("</Blob>");
}
