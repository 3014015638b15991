//! `freshline token`: makes tokens, and prints their lines for a credentials file.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use freshline::driver::credentials::{Digest, Pattern, Right, Token};
use miette::{IntoDiagnostic, WrapErr, miette};

use crate::failure::Failure;
use crate::output::printed;

/// Make tokens for sources and clients, and print their lines for --credentials.
///
/// A token is a secret that its holder shows to open a session (--token-file of `freshline source`
/// and `freshline wlan receive`). The far end keeps only its SHA-256 digest, in a line with the
/// names and the right for which the token may be used.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

A token for the robots, and a monitor that accepts it:

    freshline token new robots.token --name 'robot-*' >> credentials
    freshline monitor quic://0.0.0.0:3774 --credentials credentials

A robot, which has a copy of robots.token:

    freshline source quic://monitor.example --pin sha256:… --name robot-7 \\
        --token-file robots.token --read pose

EXIT CODES

0  the line was printed
1  the token cannot be written
2  the flags or the file cannot be understood, or the file of a new token exists already")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Make a token, write it to a new file that only its owner can read, and print its line.
    New(Line),
    /// Print the line of an existing token.
    Line(Line),
}

#[derive(Debug, clap::Args)]
struct Line {
    /// Write or read the token in this file.
    file: PathBuf,
    /// Permit these names: a name, or a pattern in which `*` matches any characters.
    #[arg(long, value_name = "PATTERN")]
    name: Pattern,
    /// Permit this: to send states to a monitor (publish), to receive the states that a monitor
    /// sends to its sources (receive), or to join a downlink and receive its packets (subscribe). A
    /// source with --receive needs a line with publish and one with receive.
    #[arg(long, value_enum, default_value = "publish")]
    right: RightName,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RightName {
    Publish,
    Receive,
    Subscribe,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::New(line) => {
            let token = Token::generate().into_diagnostic().map_err(Failure::Runtime)?;
            write_new(&line.file, &token)?;
            line.print(token.secret().as_bytes())?;
            say!(
                "the token is in {}; keep it secret, and give it to its holder only",
                line.file.display()
            );
            Ok(())
        }
        What::Line(line) => line.print(&read(&line.file)?),
    }
}

impl Line {
    fn print(&self, token: &[u8]) -> Result<(), Failure> {
        let right = match self.right {
            RightName::Publish => Right::Publish,
            RightName::Receive => Right::Receive,
            RightName::Subscribe => Right::Subscribe,
        };
        printed(writeln!(io::stdout(), "{} {} {}", self.name, right.word(), Digest::of(token)))
    }
}

fn write_new(file: &Path, token: &Token) -> Result<(), Failure> {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .and_then(|mut out| writeln!(out, "{}", token.secret()).and_then(|()| out.sync_all()));
    match written {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Failure::Usage(miette!(
            "{} exists already; choose another file, or print the line of its token by `freshline \
             token line`",
            file.display()
        ))),
        written => written
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot write the token file {}", file.display()))
            .map_err(Failure::Runtime),
    }
}

/// The token in a file, which holds a single token.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    match &freshline::read_tokens(file)?[..] {
        [token] => Ok(token.clone()),
        _ => Err(Failure::Usage(miette!(
            "the token file {} has several lines; a peer shows one token",
            file.display()
        ))),
    }
}
