//! Names of sources and topics, and keys.

use alloc::string::String;
use core::fmt::{self, Display, Formatter, Write};

/// The maximum length of a key in bytes.
pub(super) const MAX_KEY: usize = 64;

/// The maximum length of a name in bytes.
pub(super) const MAX_NAME: usize = 63;

/// Whether a character is invisible: a control character (C0, DEL, C1), or one that changes the
/// direction of the text around it (Unicode Standard Annex 9, section 2).
pub fn is_control(character: char) -> bool {
    let is_bidirectional = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || is_bidirectional
}

/// Text with an escape, as in `\u{1b}`, for characters that [control](is_control) how text is
/// shown.
pub fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match is_control(character) {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

/// A key, which may be any bytes, as printable text: bytes that are not UTF-8, characters that
/// [control](is_control) how text is shown, and the backslash as `\xNN` each, so that no two keys
/// look the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyText<'a>(pub &'a [u8]);

impl Display for KeyText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let escape = |f: &mut Formatter<'_>, bytes: &[u8]| {
            bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
        };
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match is_control(character) || character == '\\' {
                    true => escape(f, character.encode_utf8(&mut [0; 4]).as_bytes())?,
                    false => f.write_char(character)?,
                }
            }
            escape(f, chunk.invalid())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn text_that_controls_how_it_is_shown_is_escaped() {
        assert_eq!(escaped("a\u{1b}[m\n\u{202e}ö\\"), "a\\u{1b}[m\\n\\u{202e}ö\\");
    }

    #[test]
    fn a_key_is_shown_without_what_could_harm_a_terminal_and_without_a_twin() {
        for (key, text) in [
            (&b"base_link"[..], "base_link"),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            (b"a\tb\x1b[2J", "a\\x09b\\x1b[2J"),
            (b"\xff\x00", "\\xff\\x00"),
            (b"a\\x09", "a\\x5cx09"),
            ("\u{202e}x".as_bytes(), "\\xe2\\x80\\xaex"),
        ] {
            assert_eq!(KeyText(key).to_string(), text);
        }
    }
}
