//! Text on a drawing: its estimated width, and lines that fit.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The width of text of `size` pixels, in pixels: of DejaVu Sans, which is wider than most.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let of = |c: char| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.33,
        'f' | 't' | 'r' | 'I' | '(' | ')' | '[' | ']' | '-' | '/' => 0.41,
        'm' | 'M' | 'W' | 'w' | '%' | '@' => 0.93,
        'A'..='Z' => 0.69,
        c if c.is_ascii() => 0.62,
        // Of other scripts, as wide as high at most.
        c if u32::from(c) >= 0x1100 => 1.05,
        _ => 0.7,
    };
    text.chars().map(of).sum::<f64>() * size
}

/// Lines of at most `max` pixels, broken at spaces, and within a word that is longer.
pub(super) fn wrapped(text: &str, size: f64, max: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a line");
        let joined = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if width(&joined, size) <= max {
            *line = joined;
            continue;
        }
        if !line.is_empty() {
            lines.push(String::new());
        }
        for letter in word.chars() {
            let line = lines.last_mut().expect("there is a line");
            let longer = format!("{line}{letter}");
            if width(&longer, size) <= max || line.is_empty() {
                *line = longer;
            } else {
                lines.push(letter.to_string());
            }
        }
    }
    lines
}

/// The text without characters that XML does not allow or that change the direction of text.
pub(crate) fn plain(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
    };
    text.chars().map(|c| if is_hidden(c) { '\u{fffd}' } else { c }).collect()
}

/// The style of text of `size` pixels.
pub(super) fn style(size: f64, color: RGBColor) -> TextStyle<'static> {
    // plotters divides by this factor in its SVG.
    ("sans-serif", size * 1.24).into_font().color(&color)
}

/// The same in bold letters.
pub(super) fn bold(size: f64, color: RGBColor) -> TextStyle<'static> {
    let font = FontDesc::new(FontFamily::SansSerif, size * 1.24, FontStyle::Bold);
    font.color(&color)
}

/// The style with its anchor at the middle of the left or right end, or of the upper edge.
pub(super) fn anchored(style: TextStyle<'static>, at: HPos) -> TextStyle<'static> {
    style.pos(Pos::new(at, VPos::Center))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_lose_no_letter() {
        let text =
            "mean age at 0.53 of the capacity, with a wordthatislongerthanthelinecanbe at all";
        let lines = wrapped(text, 12.0, 120.0);
        assert!(lines.iter().all(|line| width(line, 12.0) <= 120.0), "{lines:?}");
        let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        assert_eq!(letters(&lines.concat()), letters(text));
        assert_eq!(wrapped("", 12.0, 100.0), [""]);
    }

    #[test]
    fn control_characters_and_turns_of_direction_are_marked() {
        assert_eq!(plain("a\u{0}b\u{202e}c\nd<&"), "a\u{fffd}b\u{fffd}c\u{fffd}d<&");
    }
}
