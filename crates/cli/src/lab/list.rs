//! `freshline lab list`: lists the bundled scenarios.

use std::io::{self, Write};

use freshline_lab::library;
use freshline_lab::scenario::Scenario;
use serde::Serialize;

use super::chosen::bad;
use crate::failure::Failure;
use crate::output::{print_json, printed};

/// List the bundled scenarios, and the figures that they reproduce.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLE

    freshline lab list")]
pub(crate) struct Args {
    /// Print one JSON document on standard output.
    #[arg(long)]
    json: bool,
}

/// `docs/lab.md` describes each key.
#[derive(Serialize)]
struct Listed {
    name: String,
    title: String,
    reproduces: Option<String>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let listed: Result<Vec<_>, Failure> = library::all()
        .into_iter()
        .map(|text| {
            let scenario =
                Scenario::parse(text.source()).map_err(|error| bad(&text.name, &error.into()))?;
            let reproduces = scenario.reproduce.map(|reproduction| reproduction.of);
            Ok(Listed { name: text.name, title: scenario.title, reproduces })
        })
        .collect();
    let listed = listed?;
    if args.json {
        return print_json(&listed);
    }
    let mut out = io::stdout().lock();
    printed(listed.iter().try_for_each(|one| {
        let of = one.reproduces.as_deref().unwrap_or("-");
        writeln!(out, "{:<34} {:<50} {of}", one.name, one.title)
    }))
}
