//! Splits Rust source into the tokens that paths and items are made of.
//!
//! A tokenizer and no parser: it also reads the bodies of macros, which a syntax tree holds unread,
//! and it needs no dependency.

/// One token. Comments are dropped; a literal keeps its place, without its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) line: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// An identifier or a keyword.
    Word(&'a str),
    /// `::`
    Colons,
    /// Any other single character.
    Sign(char),
    /// A string, a character, a number or a lifetime.
    Literal,
}

/// The tokens of `source`.
pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut rest = source;
    let mut line = 1;
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (kind, length) = next(rest, first);
        if let Some(kind) = kind {
            tokens.push(Token { kind, line });
        }
        let (token, after) = rest.split_at(length);
        line += token.matches('\n').count();
        rest = after;
    }
    tokens
}

/// The token that `rest` begins with, none for a space or a comment, and how many bytes it has.
fn next(rest: &str, first: char) -> (Option<Kind<'_>>, usize) {
    if rest.starts_with("//") {
        return (None, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (None, block_comment(rest));
    }
    if let Some(length) = string(rest) {
        return (Some(Kind::Literal), length);
    }
    if rest.starts_with("::") {
        return (Some(Kind::Colons), 2);
    }
    if first == '\'' {
        return (Some(Kind::Literal), character(rest));
    }
    if let Some(raw) = rest.strip_prefix("r#") {
        let length = word(raw);
        return (Some(Kind::Word(&raw[..length])), 2 + length);
    }
    if first.is_ascii_digit() {
        return (Some(Kind::Literal), word(rest));
    }
    if first.is_alphabetic() || first == '_' {
        let length = word(rest);
        return (Some(Kind::Word(&rest[..length])), length);
    }
    let kind = (!first.is_whitespace()).then_some(Kind::Sign(first));
    (kind, first.len_utf8())
}

/// The length of the word that `rest` begins with.
fn word(rest: &str) -> usize {
    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
}

/// The length of a comment, with the comments inside it.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let step = if rest[at..].starts_with("/*") {
            depth += 1;
            2
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of the string that `rest` begins with: plain, of bytes or of C, raw or not.
fn string(rest: &str) -> Option<usize> {
    let prefix = usize::from(rest.starts_with(['b', 'c']));
    let raw = rest[prefix..].strip_prefix('r');
    if let Some(raw) = raw {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let body = raw[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let length = body.find(&end).map_or(body.len(), |at| at + end.len());
        return Some(prefix + 1 + hashes + 1 + length);
    }
    let body = rest[prefix..].strip_prefix('"')?;
    Some(prefix + 1 + until(body, '"'))
}

/// The length of a character, or of the lifetime that begins like one.
fn character(rest: &str) -> usize {
    let body = &rest[1..];
    let mut chars = body.chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => 1 + until(body, '\''),
        _ => 1 + word(body),
    }
}

/// The number of bytes up to and with the first `end` that is not escaped.
fn until(body: &str, end: char) -> usize {
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == end => return at + c.len_utf8(),
            _ => {}
        }
    }
    body.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tokens in one line; `_` is a literal.
    fn shown(source: &str) -> String {
        let shown = tokens(source).into_iter().map(|token| match token.kind {
            Kind::Word(word) => word.to_owned(),
            Kind::Colons => "::".to_owned(),
            Kind::Sign(sign) => sign.to_string(),
            Kind::Literal => "_".to_owned(),
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn source_is_split_into_words_signs_and_literals() {
        for (source, expected) in [
            ("use a::b::{self, c};", "use a :: b :: { self , c } ;"),
            ("a // use b;\nc", "a c"),
            ("a /* b /* c */ d */ e", "a e"),
            (r#"f("use \" x", b"y", c"z")"#, "f ( _ , _ , _ )"),
            (r##"f(r#"use "x"#, br"y", 1)"##, "f ( _ , _ , _ )"),
            ("'a' '\\'' b'x' &'a str 'é'", "_ _ b _ & _ str _"),
            ("0..crate::MAX 1.5e3 0x_ff", "_ . . crate :: MAX _ . _ _"),
            ("r#type::r#x", "type :: x"),
        ] {
            assert_eq!(shown(source), expected, "{source}");
        }
    }

    #[test]
    fn a_token_knows_its_line() {
        let lines = tokens("a\n/* \n */ \"\n\" b").into_iter().map(|token| token.line);
        assert_eq!(lines.collect::<Vec<_>>(), [1, 3, 4]);
    }
}
