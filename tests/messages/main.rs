//! docs/reports/messages.md has every log line and every text of an error or answer, so that they can be
//! read, and reviewed, in one place.
//!
//! They are taken from the source: each string with a blank in it, outside of comments, attributes and
//! tests. `ORLOP_UPDATE_REPORTS=1` writes the file again.

#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

const CRATES: [&str; 9] =
    ["sys", "model", "pools", "host", "engine", "csi", "router", "client", "orlop"];
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
const REPORT: &str = "docs/reports/messages.md";
const HEAD: &str = "\
# Messages

Every log line (with its level) and every text of errors, answers and help, by file. Generated from the
source by `ORLOP_UPDATE_REPORTS=1 cargo test --package orlop-tests --test messages`; a test compares it.
";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn is_shipped(file: &Path) -> bool {
    const NOT_SHIPPED: [&str; 5] = ["tests", "testbed", "fuzzing", "memory", "testing"];
    let stem = |name: &str| name.trim_end_matches(".rs").to_owned();
    !file.components().any(|part| {
        let name = stem(&part.as_os_str().to_string_lossy());
        NOT_SHIPPED.contains(&&*name) || name.ends_with("_tests")
    })
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// What a file says, in its order.
#[derive(Default)]
struct Messages(Vec<String>);

impl Messages {
    fn add_all(&mut self, tokens: TokenStream, level: &str) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut next = 0;
        while let Some(token) = tokens.get(next) {
            next += 1;
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    let attribute = attribute_at(&tokens, next);
                    next += attribute.length;
                    if attribute.is_test {
                        next = end_of_item(&tokens, next);
                    }
                }
                TokenTree::Ident(name) if is_log_call(&tokens, next, &name.to_string()) => {
                    let TokenTree::Group(arguments) = &tokens[next + 1] else { unreachable!() };
                    self.add_all(arguments.stream(), &name.to_string());
                    next += 2;
                }
                TokenTree::Group(group) => self.add_all(group.stream(), level),
                TokenTree::Literal(literal) => self.add(&literal.to_string(), level),
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }

    fn add(&mut self, literal: &str, level: &str) {
        let Some(text) = literal.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
            return;
        };
        let text = joined_lines(text);
        if text.trim().contains(' ') {
            let level =
                if level.is_empty() { String::new() } else { format!("{} ", level.to_uppercase()) };
            self.0.push(format!("- {level}`{}`", text.trim()));
        }
    }
}

fn is_log_call(tokens: &[TokenTree], after: usize, name: &str) -> bool {
    let is_call =
        matches!(tokens.get(after), Some(TokenTree::Punct(mark)) if mark.as_char() == '!');
    LEVELS.contains(&name) && is_call && matches!(tokens.get(after + 1), Some(TokenTree::Group(_)))
}

struct Attribute {
    length: usize,
    is_test: bool,
}

/// `#[..]` and `#![..]`; doc comments are attributes too.
fn attribute_at(tokens: &[TokenTree], after: usize) -> Attribute {
    let is_inner =
        matches!(tokens.get(after), Some(TokenTree::Punct(mark)) if mark.as_char() == '!');
    let length = 1 + usize::from(is_inner);
    let is_test = match tokens.get(after + length - 1) {
        Some(TokenTree::Group(group)) => group.stream().to_string().replace(' ', "") == "cfg(test)",
        _ => false,
    };
    Attribute { length, is_test }
}

/// Up to and with the semicolon or the braces.
fn end_of_item(tokens: &[TokenTree], from: usize) -> usize {
    let is_end = |token: &TokenTree| match token {
        TokenTree::Punct(mark) => mark.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    };
    let length = tokens[from..].iter().position(is_end).map_or(tokens.len() - from, |end| end + 1);
    from + length
}

/// A backslash at the end of a line swallows the blanks that follow.
fn joined_lines(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts
        .fold(first, |joined, part| joined + part.trim_start())
        .replace("\\\"", "\"")
        .replace('\n', " ")
}

fn report() -> String {
    let mut report = HEAD.to_owned();
    for name in CRATES {
        let mut files = Vec::new();
        sources(&repository().join("crates").join(name).join("src"), &mut files);
        files.sort();
        for file in files {
            let path = file.strip_prefix(repository()).unwrap();
            if !is_shipped(path) {
                continue;
            }
            let mut messages = Messages::default();
            messages.add_all(fs::read_to_string(&file).unwrap().parse().unwrap(), "");
            if !messages.0.is_empty() {
                write!(report, "\n## {}\n\n{}\n", path.display(), messages.0.join("\n")).unwrap();
            }
        }
    }
    report
}

#[test]
fn report_lists_every_message() {
    let path = repository().join(REPORT);
    let report = report();
    if std::env::var_os("ORLOP_UPDATE_REPORTS").is_some() {
        fs::write(&path, &report).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(report.lines()).find(|(old, new)| old != new);
    assert!(
        committed == report,
        "{REPORT} is not up to date; write it again with ORLOP_UPDATE_REPORTS=1; first: {differs:?}"
    );
}
