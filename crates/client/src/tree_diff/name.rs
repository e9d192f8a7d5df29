//! Prints file names, which may hold any byte, so that they do not move the cursor or change the direction of text.

/// A backslash is doubled, so that each name has one form.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                c if c.is_control() || turns_text(c) => text.extend(c.escape_unicode()),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Marks that change the direction of what follows, and separators of lines.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_one_printable_text() {
        for (name, text) in [
            (&b"plain name"[..], "plain name"),
            ("gr\u{fc}n \u{4e2d}".as_bytes(), "gr\u{fc}n \u{4e2d}"),
            (b"a\nb\tc\\d\r", "a\\nb\\tc\\\\d\\r"),
            (b"\x1b[2J", "\\u{1b}[2J"),
            (b"\xff\xfeok", "\\xff\\xfeok"),
            ("txt\u{202e}exe".as_bytes(), "txt\\u{202e}exe"),
        ] {
            assert_eq!(escaped(name), text);
        }
    }
}
