//! Just enough of a Rust tokenizer for the house rules: it blanks comments, strings and character
//! literals (every byte stays at its offset), finds attributes, items and functions by matching
//! delimiters, and knows which spans are tests. It judges text, so macros are what they look like.

use std::ops::Range;

/// A source file.
pub(crate) struct Source {
    /// Path from the root of the workspace, separated by `/`.
    pub(crate) path: String,
    /// The text as it stands.
    pub(crate) text: String,
    /// The text with comments and literals blanked, byte for byte.
    pub(crate) code: String,
    tests: Vec<Range<usize>>,
}

/// An attribute, `#[...]` or `#![...]`.
pub(crate) struct Attribute {
    /// Its bytes.
    pub(crate) span: Range<usize>,
    /// True for `#![...]`.
    pub(crate) inner: bool,
}

impl Source {
    /// A file; `whole_test` says that all of it is a test.
    pub(crate) fn new(path: &str, text: &str, whole_test: bool) -> Self {
        let code = blank(text);
        let tests =
            if whole_test { std::iter::once(0..code.len()).collect() } else { test_spans(&code) };
        Self { path: path.to_owned(), text: text.to_owned(), code, tests }
    }

    /// True if the byte belongs to a test.
    pub(crate) fn in_test(&self, at: usize) -> bool {
        self.tests.iter().any(|span| span.contains(&at))
    }

    /// Line number of a byte, from 1.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        1 + self.text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count()
    }

    /// Every identifier and keyword with its offset.
    pub(crate) fn words(&self) -> Vec<(usize, &str)> {
        words(&self.code)
    }

    /// Every attribute.
    pub(crate) fn attributes(&self) -> Vec<Attribute> {
        attributes(&self.code)
    }

    /// The functions that have a body, from `fn` to the closing brace.
    pub(crate) fn functions(&self) -> Vec<Range<usize>> {
        let bytes = self.code.as_bytes();
        let starts = self.words().into_iter().filter(|(_, word)| *word == "fn");
        // `fn` before a parenthesis is a type, not an item.
        let items = starts.filter(|(at, _)| peek(bytes, at + 2).is_some_and(|(_, b)| b != b'('));
        items
            .map(|(at, _)| at..item_end(&self.code, at))
            .filter(|span| bytes[span.end - 1] == b'}')
            .collect()
    }

    /// Paths, without the extension, of the modules that are declared under `#[cfg(test)]` and
    /// live in files of their own.
    pub(crate) fn test_modules(&self) -> Vec<String> {
        let (dir, file) = self.path.rsplit_once('/').unwrap_or_default();
        let stem = file.trim_end_matches(".rs");
        let owns_dir = ["lib", "main", "mod"].contains(&stem);
        let below = if owns_dir { dir.to_owned() } else { format!("{dir}/{stem}") };
        let mut paths = Vec::new();
        for span in self.tests.iter().filter(|span| self.code[..span.end].ends_with(';')) {
            let item = words(&self.code[span.clone()]);
            let named = item.iter().position(|(_, word)| *word == "mod");
            let Some((_, name)) = named.and_then(|at| item.get(at + 1)) else { continue };
            let text = &self.text[span.clone()];
            // `#[path = "x.rs"]` counts from the directory of the file that declares it.
            let given = text.split_once("#[path = \"").and_then(|(_, p)| p.split_once(".rs\"]"));
            paths.push(
                given.map_or_else(|| format!("{below}/{name}"), |(p, _)| format!("{dir}/{p}")),
            );
        }
        paths
    }
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The next byte at or behind `at` that is not blank, with its offset.
pub(crate) fn peek(bytes: &[u8], at: usize) -> Option<(usize, u8)> {
    (at..bytes.len()).map(|i| (i, bytes[i])).find(|(_, b)| !b.is_ascii_whitespace())
}

/// The last byte before `at` that is not blank.
pub(crate) fn peek_back(bytes: &[u8], at: usize) -> Option<u8> {
    bytes[..at].iter().rev().copied().find(|b| !b.is_ascii_whitespace())
}

fn words(code: &str) -> Vec<(usize, &str)> {
    let bytes = code.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + bytes[at..].iter().take_while(|b| is_word(**b)).count();
        if end > at && !bytes[at].is_ascii_digit() {
            found.push((at, &code[at..end]));
        }
        at = end.max(at + 1);
    }
    found
}

fn attributes(code: &str) -> Vec<Attribute> {
    let bytes = code.as_bytes();
    let mut found: Vec<Attribute> = Vec::new();
    for at in (0..bytes.len()).filter(|at| bytes[*at] == b'#') {
        let inner = bytes.get(at + 1) == Some(&b'!');
        let open = at + 1 + usize::from(inner);
        if bytes.get(open) == Some(&b'[') {
            found.push(Attribute { span: at..matching(bytes, open), inner });
        }
    }
    found
}

/// Offset behind the delimiter that closes the one at `open`.
fn matching(bytes: &[u8], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    bytes.len()
}

/// Offset behind the item that starts at `at`: its semicolon, or the brace that closes its body.
fn item_end(code: &str, at: usize) -> usize {
    let bytes = code.as_bytes();
    let mut at = at;
    while at < bytes.len() {
        match bytes[at] {
            b'(' | b'[' => at = matching(bytes, at),
            b'{' => return matching(bytes, at),
            b';' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Spans under `#[cfg(test)]` and `#[test]`, from the attribute to the end of the item.
fn test_spans(code: &str) -> Vec<Range<usize>> {
    let attributes = attributes(code);
    let marks = attributes.iter().filter(|a| {
        let names: Vec<_> = words(&code[a.span.clone()]).into_iter().map(|(_, w)| w).collect();
        match names.first() {
            Some(&"cfg") => names.contains(&"test") && !names.contains(&"not"),
            Some(&"test") => true,
            _ => false,
        }
    });
    marks
        .map(|mark| {
            // `#![cfg(test)]` covers the rest of the file.
            let end = if mark.inner { code.len() } else { item_end(code, mark.span.end) };
            mark.span.start..end
        })
        .collect()
}

/// Blanks comments and literals; other bytes outside ASCII become `?`.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let in_word = at > 0 && is_word(bytes[at - 1]);
        if let Some(end) = skipped(bytes, at, in_word) {
            code.extend(bytes[at..end].iter().map(|b| if *b == b'\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            code.push(if bytes[at].is_ascii() { char::from(bytes[at]) } else { '?' });
            at += 1;
        }
    }
    code
}

/// End of the comment or literal that starts at `at`, if one does.
fn skipped(bytes: &[u8], at: usize, in_word: bool) -> Option<usize> {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return Some(at + rest.iter().take_while(|b| **b != b'\n').count());
    }
    if rest.starts_with(b"/*") {
        return Some(comment_end(bytes, at));
    }
    match rest[0] {
        b'"' => Some(string_end(bytes, at)),
        b'\'' => char_end(bytes, at),
        b'b' | b'c' | b'r' if !in_word => raw_end(bytes, at),
        _ => None,
    }
}

/// Block comments nest.
fn comment_end(bytes: &[u8], at: usize) -> usize {
    let (mut at, mut depth) = (at, 0usize);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (at, depth) = (at + 2, depth + 1);
        } else if bytes[at..].starts_with(b"*/") {
            (at, depth) = (at + 2, depth - 1);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// A character literal, as opposed to a lifetime.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    let close = |from: usize| {
        (from..bytes.len().min(from + 12)).find(|i| bytes[*i] == b'\'').map(|i| i + 1)
    };
    match bytes.get(at + 1)? {
        b'\\' => close(at + 3),
        first if first.is_ascii() => (bytes.get(at + 2) == Some(&b'\'')).then_some(at + 3),
        _ => close(at + 2),
    }
}

/// A raw string: `r`, `br` or `cr`, then hashes, then the quote.
fn raw_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut open = at + usize::from(bytes[at] != b'r');
    if bytes.get(open) != Some(&b'r') {
        return None;
    }
    open += 1;
    let hashes = bytes[open..].iter().take_while(|b| **b == b'#').count();
    open += hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut closing = vec![b'"'];
    closing.resize(hashes + 1, b'#');
    let found = bytes[open + 1..].windows(closing.len()).position(|w| w == closing);
    Some(found.map_or(bytes.len(), |n| open + 1 + n + closing.len()))
}
