//! `freshline explain`: causes and remedies of messages, from `docs/troubleshooting.md`.
//!
//! The page has sections `### E101: Title` with tables of messages. In a message, `…` is a variable
//! part, so the page also gives the code of an error.

use miette::miette;

use crate::failure::Failure;
use crate::output::printed;

const PAGE: &str = include_str!("../troubleshooting.md");

/// A text with fewer bytes besides `…` does not identify an error.
const MIN_TEXT: usize = 8;

/// Print causes and remedies of the messages with a code.
///
/// Errors print their code. Without a code, lists all codes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Examples:

    freshline explain
    freshline explain E101")]
pub(crate) struct Args {
    /// Explain this code, such as E101.
    code: Option<String>,
}

/// A group of messages.
struct Section {
    code: &'static str,
    title: &'static str,
    body: &'static str,
}

/// Messages with one cause.
struct Row {
    messages: Vec<String>,
    cause: String,
    remedy: String,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let Some(code) = args.code else {
        let mut all = sections();
        return printed(all.try_for_each(|it| writeln!(out, "{}  {}", it.code, plain(it.title))));
    };
    let Some(section) = sections().find(|section| section.code.eq_ignore_ascii_case(&code)) else {
        return Err(Failure::Usage(miette!(
            "there is no code {code}; `freshline explain` lists all of them"
        )));
    };
    printed(write(&section, &mut out))
}

fn write(section: &Section, out: &mut impl std::io::Write) -> std::io::Result<()> {
    writeln!(out, "{}: {}", section.code, plain(section.title))?;
    for Row { messages, cause, remedy } in section.rows() {
        writeln!(out)?;
        for message in messages {
            writeln!(out, "{message}")?;
        }
        writeln!(out, "    cause:  {cause}\n    remedy: {remedy}")?;
    }
    Ok(())
}

/// The codes of the sections with this message: those whose longest matching text occurs in it.
/// Several commands may have the same message.
pub(crate) fn codes_of(message: &str) -> Vec<&'static str> {
    // The page leaves out the backticks of messages.
    let message = &message.replace('`', "");
    let known: Vec<_> = sections()
        .filter_map(|section| {
            let texts = section.rows().flat_map(|row| row.messages);
            texts.filter_map(|text| matched(&text, message)).max().map(|len| (len, section.code))
        })
        .collect();
    let longest = known.iter().map(|(len, _)| *len).max();
    known.into_iter().filter(|(len, _)| Some(*len) == longest).map(|(_, code)| code).collect()
}

/// The number of bytes of `text` if all its parts occur in the message, in their order. Both
/// without backticks.
fn matched(text: &str, message: &str) -> Option<usize> {
    let (mut rest, mut len) = (message, 0);
    let text = &text.replace('`', "");
    let is_edge = |it: char| it.is_whitespace() || matches!(it, ':' | ',' | ';' | '.');
    for part in text.split('…').map(|part| part.trim_matches(is_edge)).filter(|it| !it.is_empty())
    {
        let at = rest.find(part)?;
        rest = &rest[at + part.len()..];
        len += part.len();
    }
    (len >= MIN_TEXT).then_some(len)
}

/// The sections with codes.
fn sections() -> impl Iterator<Item = Section> {
    let parts = PAGE.split("\n### ").skip(1);
    parts.filter_map(|part| {
        let (head, body) = part.split_once('\n')?;
        let (code, title) = head.split_once(": ")?;
        let is_code = code.len() == 4
            && code.starts_with('E')
            && code[1..].bytes().all(|it| it.is_ascii_digit());
        let body = body.split("\n## ").next().unwrap_or(body);
        is_code.then_some(Section { code, title, body })
    })
}

impl Section {
    fn rows(&self) -> impl Iterator<Item = Row> {
        let lines = self.body.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
        lines.filter_map(|line| {
            let cells = cells(line);
            let [messages, cause, remedy] = &cells[..] else { return None };
            let messages: Vec<_> = codes(messages).map(str::to_owned).collect();
            (!messages.is_empty()).then(|| Row {
                messages,
                cause: plain(cause),
                remedy: plain(remedy),
            })
        })
    }
}

/// The cells of a row of a table; `\|` is a bar within a cell.
fn cells(line: &str) -> Vec<String> {
    const BAR: &str = "\u{1}";
    let line = line.replace("\\|", BAR);
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner.split('|').map(|cell| cell.trim().replace(BAR, "|")).collect()
}

/// The texts between backticks.
fn codes(cell: &str) -> impl Iterator<Item = &str> {
    let mut rest = cell;
    std::iter::from_fn(move || {
        let begin = rest.find('`')?;
        let ticks = rest[begin..].bytes().take_while(|byte| *byte == b'`').count();
        let fence = &rest[begin..begin + ticks];
        let after = &rest[begin + ticks..];
        let end = after.find(fence)?;
        rest = &after[end + ticks..];
        Some(after[..end].trim())
    })
}

/// Markdown as plain text: links keep their text.
fn plain(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut rest = markdown;
    while let Some(at) = rest.find('[') {
        let Some((label, after)) = rest[at + 1..]
            .split_once("](")
            .and_then(|(label, tail)| tail.split_once(')').map(|(_, after)| (label, after)))
        else {
            break;
        };
        text.push_str(&rest[..at]);
        text.push_str(label);
        rest = after;
    }
    text.push_str(rest);
    text.replace('`', "")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Section, cells, codes, codes_of, matched, plain, sections};

    #[test]
    fn codes_are_unique_and_each_has_messages() {
        let mut seen = HashSet::new();
        for section in sections() {
            assert!(seen.insert(section.code), "{} occurs twice", section.code);
            assert!(section.rows().count() > 0, "{} has no messages", section.code);
        }
        assert!(seen.len() > 20, "{}", seen.len());
    }

    #[test]
    fn each_message_of_the_page_leads_to_its_section() {
        let strays: Vec<_> = sections()
            .flat_map(|section| {
                let Section { code, .. } = section;
                let texts: Vec<_> = section.rows().flat_map(|row| row.messages).collect();
                texts.into_iter().map(move |text| (code, text))
            })
            .map(|(code, text)| (code, text.replace('`', "").replace('…', "17"), text))
            .filter(|(_, message, text)| matched(text, message).is_some())
            .filter(|(code, message, _)| !codes_of(message).contains(code))
            .map(|(code, message, _)| format!("{code}: {message}: {:?}", codes_of(&message)))
            .collect();
        assert!(strays.is_empty(), "{strays:#?}");
    }

    #[test]
    fn a_text_that_is_not_there_has_no_code() {
        assert!(codes_of("the moon is full").is_empty());
        assert!(codes_of("").is_empty());
        assert_eq!(codes_of("`ftp://a` is neither `udp` nor `quic`"), ["E101"]);
    }

    #[test]
    fn tables_and_links_are_read() {
        assert_eq!(cells(r"| `a \| b` | c | d |"), ["`a | b`", "c", "d"]);
        assert_eq!(codes("`one`, ``two ` ``").collect::<Vec<_>>(), ["one", "two `"]);
        assert_eq!(plain("see [the page](a.md#b) and `x`"), "see the page and x");
        assert_eq!(plain("a [b"), "a [b");
    }
}
