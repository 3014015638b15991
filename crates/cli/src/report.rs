//! `freshline report`: compares saved runs of the lab.

use std::io::{self, Write};
use std::path::PathBuf;

use freshline_report::{Comparison, PanelOptions, SavedRun};
use miette::{IntoDiagnostic, miette};

use crate::failure::Failure;
use crate::html::{HtmlArg, facts};
use crate::output::printed;

/// Compare saved runs of the lab: differences with their 95 % intervals, and figures with all runs.
///
/// Each file in the folder whose name ends in .json is a run saved by
/// `freshline lab run --json-file`. The run of --baseline, or else the first one in the order of
/// names, is compared with all others. The interval of a difference is by Welch's t-test.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLE

Two laws of the source on the same path, each with 10 runs:

    freshline lab run six-hops --runs 10 --json-file runs/acp+.json
    freshline lab run six-hops --runs 10 --set flow.source.updates.law=lazy \\
        --json-file runs/lazy.json
    freshline report runs --html comparison.html

EXIT CODES

0  compared, whatever the differences
1  the report cannot be written
2  the folder has no run, a file is no run, or the flags cannot be understood")]
pub(crate) struct Args {
    /// Read the saved runs in this folder.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Compare the others with this run: the name of its file without .json.
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Compare only this metric, such as age_mean.
    #[arg(long, value_name = "METRIC")]
    metric: Option<String>,
    #[command(flatten)]
    html: HtmlArg,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let runs = SavedRun::read_folder(&args.folder).into_diagnostic().map_err(Failure::Usage)?;
    let mut comparison = Comparison::new(ordered(runs, &args)?);
    if let Some(metric) = &args.metric {
        comparison = comparison.only(metric);
    }
    if comparison.differences().is_empty() {
        let which =
            args.metric.as_ref().map_or("a metric".to_owned(), |it| format!("the metric {it}"));
        return Err(Failure::Usage(miette!(
            "{}: no two runs have {which} of the same flow at the same point of a sweep",
            args.folder.display()
        )));
    }
    printed(write!(io::stdout(), "{}", comparison.text()))?;
    let options = PanelOptions { metric: args.metric.clone(), ..PanelOptions::default() };
    args.html.write(|| {
        let folder = args.folder.display().to_string();
        comparison.page(facts(&[("Folder", folder)]), &options)
    })
}

/// The runs, with the baseline first.
fn ordered(mut runs: Vec<SavedRun>, args: &Args) -> Result<Vec<SavedRun>, Failure> {
    let folder = args.folder.display();
    if let Some(name) = &args.baseline {
        let place = runs.iter().position(|run| run.name == *name).ok_or_else(|| {
            let known: Vec<_> = runs.iter().map(|run| run.name.as_str()).collect();
            Failure::Usage(miette!(
                "--baseline {name}: {folder} has no {name}.json; there is: {}",
                known.join(", ")
            ))
        })?;
        let baseline = runs.remove(place);
        runs.insert(0, baseline);
    }
    if let [run] = &runs[..] {
        let name = &run.name;
        return Err(Failure::Usage(miette!(
            "{folder} has a single run, {name}; save another one there to compare with it"
        )));
    }
    Ok(runs)
}
