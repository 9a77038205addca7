//! Cuts a text of any length, such as a job's error, to a length for which a record has room.

/// Cuts `text` to at most `bytes_max` bytes in JSON, without its quotes, and marks the cut with an
/// ellipsis, which is not counted. Most control characters take six bytes in JSON.
pub(crate) fn shorten(text: &mut String, bytes_max: usize) {
    let mut bytes = 0;
    for (at, c) in text.char_indices() {
        bytes += json_bytes(c);
        if bytes > bytes_max {
            text.truncate(at);
            text.push('…');
            return;
        }
    }
}

/// How many bytes a character takes in a JSON string, as `serde_json` writes it.
const fn json_bytes(c: char) -> usize {
    match c {
        '"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => 2,
        '\0'..'\u{20}' => 6,
        _ => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn in_json(text: &str) -> usize {
        serde_json::to_string(text).unwrap().len() - 2
    }

    #[test]
    fn every_character_is_counted_as_it_is_written() {
        for c in '\0'..'\u{3000}' {
            assert_eq!(json_bytes(c), in_json(&c.to_string()), "{c:?}");
        }
    }

    proptest! {
        #[test]
        fn a_text_is_as_long_as_it_may_be_and_is_cut_once(text in "[\\x00-\\x30é\u{10348}]{0,40}", bytes_max in 0_usize..80) {
            let mut cut = text.clone();
            shorten(&mut cut, bytes_max);
            prop_assert_eq!(cut == text, in_json(&text) <= bytes_max);
            if let Some(kept) = cut.strip_suffix('…') {
                prop_assert!(text.starts_with(kept) && in_json(kept) <= bytes_max);
                let next = text[kept.len()..].chars().next().unwrap();
                prop_assert!(in_json(kept) + json_bytes(next) > bytes_max);
            }
            let mut again = cut.clone();
            shorten(&mut again, bytes_max);
            prop_assert_eq!(again, cut);
        }
    }
}
