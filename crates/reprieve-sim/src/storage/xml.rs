//! Reads and writes XML like the services.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, Event};

use super::refusal::{INVALID_XML, Refusal};

/// A document being written.
#[derive(Debug)]
pub(super) struct Xml(String);

impl Xml {
    pub(super) fn new() -> Self {
        Self(String::from(r#"<?xml version="1.0" encoding="utf-8"?>"#))
    }

    /// Adds markup unescaped; the caller must have composed it.
    pub(super) fn raw(&mut self, markup: &str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds `<tag>text</tag>`.
    pub(super) fn element(&mut self, tag: &str, text: &str) -> &mut Self {
        for part in ["<", tag, ">"] {
            self.0.push_str(part);
        }
        self.text(text);
        for part in ["</", tag, ">"] {
            self.0.push_str(part);
        }
        self
    }

    /// Adds escaped text. A carriage return is escaped too, because an XML reader would turn it
    /// into a line feed.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        let mut rest = text;
        while let Some(at) = rest.find(['<', '>', '&', '\r', '"']) {
            self.0.push_str(&rest[..at]);
            self.0.push_str(match rest.as_bytes()[at] {
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'&' => "&amp;",
                b'"' => "&quot;",
                _ => "&#xD;",
            });
            rest = &rest[at + 1..];
        }
        self.0.push_str(rest);
        self
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Returns whether XML 1.0 can hold this text, escaped or not.
/// <https://www.w3.org/TR/xml/#charsets>
pub(super) fn can_hold(text: &str) -> bool {
    text.chars()
        .all(|c| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..))
}

/// A request's document: a root with elements that contain only text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) root: String,
    pub(super) elements: Vec<(String, String)>,
}

/// Reads a document. Accepts characters that XML forbids, as Azurite does; the service's behaviour
/// is not documented.
pub(super) fn read(body: &[u8]) -> Result<Document, Refusal> {
    let text = std::str::from_utf8(body).map_err(|_| INVALID_XML)?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    let mut document = Document { root: String::new(), elements: Vec::new() };
    let mut depth = 0_u32;
    loop {
        match reader.read_event().map_err(|_| INVALID_XML)? {
            Event::Start(tag) => {
                depth += 1;
                begin(&mut document, depth, &name(tag.name().as_ref())?)?;
            }
            Event::Empty(tag) => begin(&mut document, depth + 1, &name(tag.name().as_ref())?)?,
            Event::End(_) => depth -= 1,
            Event::Text(text) if depth == 2 => {
                append(&mut document, &text.decode().map_err(|_| INVALID_XML)?);
            }
            Event::CData(text) if depth == 2 => {
                append(&mut document, &text.decode().map_err(|_| INVALID_XML)?);
            }
            Event::GeneralRef(reference) if depth == 2 => {
                append(&mut document, resolve(&reference)?.encode_utf8(&mut [0; 4]));
            }
            Event::Eof => break,
            // Whitespace between elements, comments and the declaration carry no data.
            _ => {}
        }
    }
    if depth != 0 || document.root.is_empty() {
        return Err(INVALID_XML);
    }
    Ok(document)
}

fn name(bytes: &[u8]) -> Result<String, Refusal> {
    String::from_utf8(bytes.to_vec()).map_err(|_| INVALID_XML)
}

fn begin(document: &mut Document, depth: u32, name: &str) -> Result<(), Refusal> {
    match depth {
        1 if document.root.is_empty() => name.clone_into(&mut document.root),
        2 => document.elements.push((name.to_owned(), String::new())),
        _ => return Err(INVALID_XML),
    }
    Ok(())
}

fn append(document: &mut Document, text: &str) {
    if let Some((_, last)) = document.elements.last_mut() {
        last.push_str(text);
    }
}

fn resolve(reference: &BytesRef<'_>) -> Result<char, Refusal> {
    if let Some(c) = reference.resolve_char_ref().map_err(|_| INVALID_XML)? {
        return Ok(c);
    }
    match &*reference.decode().map_err(|_| INVALID_XML)? {
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "amp" => Ok('&'),
        "quot" => Ok('"'),
        "apos" => Ok('\''),
        _ => Err(INVALID_XML),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn text_of(body: &str) -> String {
        let document = read(body.as_bytes()).unwrap();
        assert_eq!(document.root, "QueueMessage");
        let [(tag, text)] = &document.elements[..] else { panic!("{document:?}") };
        assert_eq!(tag, "MessageText");
        text.clone()
    }

    #[test]
    fn escaped_text_is_read_back_exactly() {
        for text in ["", "a", " a ", "\r\n", "<>&\"'", "]]>", "&#13;", "\t\u{1F980}é\n", "\u{1}\u{fffe}"] {
            let mut xml = Xml::new();
            xml.raw("<QueueMessage>").element("MessageText", text).raw("</QueueMessage>");
            assert_eq!(text_of(&xml.finish()), text);
        }
    }

    #[test]
    fn every_way_to_say_the_same_is_read() {
        let same = [
            "<QueueMessage><MessageText>a&lt;b</MessageText></QueueMessage>",
            "\u{feff}<?xml version='1.0' encoding='utf-8'?>\n<QueueMessage>\n <MessageText>a&#60;b</MessageText>\n</QueueMessage>",
            "<QueueMessage><!-- c --><MessageText><![CDATA[a<b]]></MessageText></QueueMessage>",
            "<QueueMessage><MessageText>a&#x3c;b</MessageText></QueueMessage>",
        ];
        for body in same {
            assert_eq!(text_of(body), "a<b", "{body}");
        }
        assert_eq!(text_of("<QueueMessage><MessageText/></QueueMessage>"), "");
    }

    #[test]
    fn malformed_xml_is_refused() {
        let broken: [&[u8]; 8] = [
            b"",
            b"hello",
            b"<a>",
            b"<a></b>",
            b"<a><b><c/></b></a>",
            b"<a/><b/>",
            b"<a><b>&nbsp;</b></a>",
            b"<a><b>\xff</b></a>",
        ];
        for body in broken {
            assert_eq!(read(body), Err(INVALID_XML), "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn control_characters_and_non_characters_cannot_be_held() {
        assert!(can_hold("\t\r\n é\u{fffd}\u{10ffff}"));
        for bad in ["\0", "\u{1}", "\u{1f}", "\u{fffe}", "\u{ffff}"] {
            assert!(!can_hold(bad), "{bad:?}");
        }
    }
}
