//! Names of sources and topics.

/// The longest name in bytes.
pub(super) const MAX_NAME: usize = 63;

/// Whether a character is none to see: a control character (C0, DEL, C1), or one that changes the
/// direction of the text around it (Unicode Standard Annex 9, section 2).
pub fn is_control(character: char) -> bool {
    let is_bidirectional = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || is_bidirectional
}
