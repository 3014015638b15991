//! The tokens that may open sessions, with the names and rights of each: the lines of a credentials
//! file.
//!
//! ```text
//! # name-pattern  right      token-digest
//! robot-*         publish    sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! robot-*         receive    sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! wall-display    subscribe  sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
//! ```
//!
//! The file holds digests, so that its reader learns no token. A token may have several lines.
//! Blank lines are skipped, and a field that begins with `#` starts a comment.

mod digest;
mod pattern;
mod reload;
mod rules;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use freshline_core::wire::CloseReason;
use thiserror::Error;

pub use digest::{BadDigest, Digest, NoRandom, Token};
pub use pattern::{BadPattern, Pattern};
pub use reload::{Change, Reloader};
pub(crate) use reload::{Order, Reloads};
pub use rules::Rules;

/// A permission of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// To send states to a monitor.
    Publish,
    /// To receive the states that a monitor sends to its sources.
    Receive,
    /// To join a downlink and receive its packets.
    Subscribe,
}

impl Right {
    /// The right's word in a credentials file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Publish => "publish",
            Self::Receive => "receive",
            Self::Subscribe => "subscribe",
        }
    }
}

/// One line of a file.
#[derive(Debug, Clone)]
struct Grant {
    digest: Digest,
    pattern: Pattern,
    /// `None`: every right, as for tokens without a line.
    right: Option<Right>,
}

impl Grant {
    fn covers(&self, right: Right, name: &str) -> bool {
        self.right.is_none_or(|granted| granted == right) && self.pattern.matches(name)
    }
}

/// The accepted tokens, with the permissions of each.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// By [`Digest::number`]. The table's hash is keyed, so the time of a look-up reveals nothing
    /// about the digests; digests with the same number are compared in constant time.
    grants: HashMap<u64, Vec<Grant>>,
}

/// The maximum size of a file: 100,000 lines and more.
const MAX_FILE: u64 = 16 << 20;

impl Credentials {
    /// Reads a credentials file that must have a line with this right.
    ///
    /// # Errors
    /// [`CredentialsError`] reports the file, the line, the problem and the remedy.
    pub fn read(path: &Path, right: Right) -> Result<Self, CredentialsError> {
        let mut text = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut text));
        let failed = |error| CredentialsError::Read { path: path.into(), error };
        match read {
            Err(error) => return Err(failed(error)),
            Ok(len) if len as u64 > MAX_FILE => {
                return Err(failed(io::Error::other("it is larger than 16 MiB")));
            }
            Ok(_) => {}
        }
        let credentials = Self::parse(&text).map_err(|(line, problem)| CredentialsError::Line {
            path: path.into(),
            line,
            problem,
        })?;
        let mut grants = credentials.grants.values().flatten();
        if grants.any(|grant| grant.right == Some(right)) {
            Ok(credentials)
        } else {
            Err(CredentialsError::Nothing { path: path.into(), right: right.word() })
        }
    }

    /// Reads the text of a credentials file.
    ///
    /// # Errors
    /// The number of the first invalid line, from 1, and the problem.
    pub fn parse(text: &[u8]) -> Result<Self, (usize, LineError)> {
        let mut credentials = Self { grants: HashMap::new() };
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            if let Some(grant) = grant(line).map_err(|problem| (number, problem))? {
                credentials.add(grant);
            }
        }
        Ok(credentials)
    }

    /// Tokens that permit everything, under every name.
    pub fn of_tokens<'a>(tokens: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut credentials = Self { grants: HashMap::new() };
        for token in tokens {
            let digest = Digest::of(token);
            credentials.add(Grant { digest, pattern: Pattern::all(), right: None });
        }
        credentials
    }

    fn add(&mut self, grant: Grant) {
        self.grants.entry(grant.digest.number()).or_default().push(grant);
    }

    /// The number that identifies the token, if it has this right under this name.
    ///
    /// # Errors
    /// [`CloseReason::BadToken`] if the token is unknown, [`CloseReason::NotPermitted`] if only name or
    /// right do not match.
    pub fn check(&self, token: &[u8], right: Right, name: &str) -> Result<u64, CloseReason> {
        let digest = Digest::of(token);
        let candidates = self.grants.get(&digest.number()).map_or(&[][..], Vec::as_slice);
        let mut refusal = CloseReason::BadToken;
        for grant in candidates.iter().filter(|grant| grant.digest.is_equal(&digest)) {
            if grant.covers(right, name) {
                return Ok(digest.number());
            }
            refusal = CloseReason::NotPermitted;
        }
        Err(refusal)
    }

    /// Whether a token that [`Credentials::check`] accepted before, perhaps because of other lines,
    /// still has this right under this name.
    pub fn permits(&self, number: u64, right: Right, name: &str) -> bool {
        let grants = self.grants.get(&number);
        grants.is_some_and(|grants| grants.iter().any(|grant| grant.covers(right, name)))
    }
}

/// The grant of a line; `None` if the line is blank or a comment.
fn grant(line: &[u8]) -> Result<Option<Grant>, LineError> {
    let line = std::str::from_utf8(line).map_err(|_| LineError::NotText)?;
    let fields: Vec<_> =
        line.split_whitespace().take_while(|field| !field.starts_with('#')).take(4).collect();
    let [pattern, right, digest] = fields[..] else {
        return if fields.is_empty() { Ok(None) } else { Err(LineError::Fields) };
    };
    let right = match right {
        "publish" => Right::Publish,
        "receive" => Right::Receive,
        "subscribe" => Right::Subscribe,
        other => return Err(LineError::Right { word: shown(other) }),
    };
    Ok(Some(Grant { digest: digest.parse()?, pattern: pattern.parse()?, right: Some(right) }))
}

/// The beginning of a word, safe to print.
fn shown(word: &str) -> String {
    word.chars().take(32).flat_map(char::escape_debug).collect()
}

/// A problem of a line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LineError {
    /// It is not UTF-8.
    #[error("the line is not UTF-8 text; write it again in a text editor")]
    NotText,
    /// It does not have three fields. The fields are not repeated: one may be a token.
    #[error(
        "a line has three fields, `name-pattern publish|receive|subscribe token-digest`; `freshline token new` \
         prints one"
    )]
    Fields,
    /// The second field is something else.
    #[error("`{word}` is not a right; there are `publish`, `receive` and `subscribe`")]
    Right {
        /// The field.
        word: String,
    },
    /// The third field is something else.
    #[error(transparent)]
    Digest(#[from] BadDigest),
    /// The first field matches no name.
    #[error(transparent)]
    Pattern(#[from] BadPattern),
}

/// Why a credentials file is not used.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// It cannot be read.
    #[error("cannot read the credentials file {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A line is wrong.
    #[error("{}, line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The problem.
        problem: LineError,
    },
    /// No line has the required right: the file is empty, or is for other commands.
    #[error(
        "{} has no `{right}` line, so every peer would be refused; add one (`freshline token new` prints it)",
        path.display()
    )]
    Nothing {
        /// The file.
        path: PathBuf,
        /// The right.
        right: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(pattern: &str, right: &str, token: &str) -> String {
        format!("{pattern} {right} {}\n", Digest::of(token.as_bytes()))
    }

    fn parse(text: &str) -> Credentials {
        Credentials::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_token_may_do_what_its_lines_say_and_strangers_learn_nothing() {
        let text = format!(
            "# robots\n\n{}{}  {}",
            line("robot-*", "publish", "one"),
            line("robot-*\t", "subscribe", "two"),
            line("lidar", "publish", "one").trim_end().to_owned() + "  # the spare one",
        );
        let credentials = parse(&text);
        let check = |token: &str, right, name| credentials.check(token.as_bytes(), right, name);
        for name in ["robot-7", "robot-", "lidar"] {
            assert_eq!(check("one", Right::Publish, name), Ok(Digest::of(b"one").number()));
        }
        let not_permitted = Err(CloseReason::NotPermitted);
        assert_eq!(check("one", Right::Publish, "lidar-3"), not_permitted);
        assert_eq!(check("one", Right::Publish, ""), not_permitted, "a name is asked for");
        assert_eq!(check("one", Right::Subscribe, "robot-7"), not_permitted);
        assert_eq!(check("two", Right::Publish, "robot-7"), not_permitted);
        assert!(check("two", Right::Subscribe, "robot-7").is_ok());
        for name in ["robot-7", "lidar-3", ""] {
            assert_eq!(check("three", Right::Publish, name), Err(CloseReason::BadToken));
        }
    }

    #[test]
    fn a_token_without_lines_of_its_own_may_do_all() {
        let credentials = Credentials::of_tokens([&b"one"[..], b"two"]);
        for right in [Right::Publish, Right::Receive, Right::Subscribe] {
            assert!(credentials.check(b"two", right, "").is_ok());
            assert_eq!(credentials.check(b"", right, "robot"), Err(CloseReason::BadToken));
        }
    }

    #[test]
    fn a_session_is_checked_again_by_the_lines_of_its_token_alone() {
        let number = parse(&line("*", "publish", "one")).check(b"one", Right::Publish, "robot-1");
        let number = number.unwrap();
        for (text, is_permitted) in [
            (line("robot-*", "publish", "one"), true),
            (line("lidar-*", "publish", "one"), false),
            (line("robot-*", "subscribe", "one"), false),
            (line("robot-*", "publish", "two"), false),
            (String::new(), false),
        ] {
            let permits = parse(&text).permits(number, Right::Publish, "robot-1");
            assert_eq!(permits, is_permitted, "{text}");
        }
    }

    #[test]
    fn a_broken_line_is_named_and_no_token_in_it_is_repeated() {
        let secret = "s3cret-that-was-pasted-here";
        let good = line("*", "publish", "one");
        for (bad, said) in [
            ("robot-1 publish", "three fields"),
            (secret, "three fields"),
            ("robot-1 publish sha256:00 extra", "three fields"),
            (
                "robot-1 write 00",
                "`write` is not a right; there are `publish`, `receive` and `subscribe`",
            ),
            (&format!("robot-1 publish {secret}"), "SHA-256"),
            (&line(&"x".repeat(64), "publish", "one"), "matches no name"),
        ] {
            let text = format!("{good}\n{bad}");
            let (number, error) = Credentials::parse(text.as_bytes()).unwrap_err();
            assert_eq!(number, 3, "{bad}");
            let error = error.to_string();
            assert!(error.contains(said) && !error.contains(secret), "{bad}: {error}");
        }
        let not_text = [good.as_bytes(), b"\xff"].concat();
        assert_eq!(Credentials::parse(&not_text).unwrap_err(), (2, LineError::NotText));
    }

    #[test]
    fn a_file_without_a_line_for_this_command_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials");
        for (text, said) in [
            (String::new(), "no `publish` line"),
            (line("*", "subscribe", "one"), "no `publish` line"),
            (line("*", "publish", "one") + "robot", "credentials, line 2: a line has three fields"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Credentials::read(&path, Right::Publish).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let error = Credentials::read(&dir.path().join("none"), Right::Publish).unwrap_err();
        assert!(error.to_string().contains("cannot read the credentials file"), "{error}");
        assert!(Credentials::read(Path::new("/dev/zero"), Right::Publish).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text: Vec<u8>) {
            let _ = Credentials::parse(&text);
        }

        #[test]
        fn any_words_are_read_or_refused(
            words in proptest::collection::vec("[a-z*#\\\\ \t\n:=]{0,12}|publish|receive|subscribe|sha256:[0-9a-fA-F]{62,66}|[A-Za-z0-9+/]{43}=?", 0..24),
            gap in "[ \n\t]",
        ) {
            let text = words.join(&gap);
            if let Ok(credentials) = Credentials::parse(text.as_bytes()) {
                let _ = credentials.check(b"token", Right::Publish, "name");
            }
        }
    }
}
