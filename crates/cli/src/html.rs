//! Reports as HTML: the flag, and how a report was made.

use std::env;
use std::path::{Path, PathBuf};

use freshline_net::clock::wall_clock;
use freshline_report::{Fact, Page, utc};
use miette::IntoDiagnostic;

use crate::failure::Failure;

/// The flag of commands that write a report.
#[derive(Debug, clap::Args)]
pub(crate) struct HtmlArg {
    /// Write a report into this file: one HTML page with a summary, figures and tables. It loads
    /// nothing and has no script.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl HtmlArg {
    /// Whether the flag was given.
    pub(crate) fn is_wanted(&self) -> bool {
        self.html.is_some()
    }

    /// The file, if the flag was given.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.html.as_deref()
    }

    /// Writes the page, if the flag was given.
    pub(crate) fn write(&self, page: impl FnOnce() -> Page) -> Result<(), Failure> {
        let Some(path) = &self.html else { return Ok(()) };
        page().write(path).into_diagnostic().map_err(Failure::Runtime)
    }
}

/// How a report was made: command, version and date, and the facts in `more`.
pub(crate) fn facts(more: &[(&str, String)]) -> Vec<Fact> {
    let own = [
        ("Command", command()),
        ("Version", format!("freshline {}", env!("CARGO_PKG_VERSION"))),
        ("Date", utc(wall_clock())),
    ];
    let all = own.iter().chain(more).filter(|(_, value)| !value.is_empty());
    all.map(|(name, value)| Fact { name: (*name).to_owned(), value: value.clone() }).collect()
}

/// The command line, quoted for a shell.
fn command() -> String {
    let arguments = env::args_os().skip(1).map(|argument| quoted(&argument.to_string_lossy()));
    ["freshline".to_owned()].into_iter().chain(arguments).collect::<Vec<_>>().join(" ")
}

fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn arguments_are_quoted_as_a_shell_needs_it() {
        for (argument, expected) in [
            ("--set=flow.robot.count=3", "--set=flow.robot.count=3"),
            ("sweep={ runs = [1] }", "'sweep={ runs = [1] }'"),
            ("it's", "'it'\\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(argument), expected);
        }
    }
}
