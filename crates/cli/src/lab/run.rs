//! `freshline lab run`: runs one scenario, at all points of its sweep.

mod report;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use freshline_lab::run::{Document, Metric, Point, PointResult, run as run_scenario};
use freshline_report::{Figure, PanelOptions, metric_panels};
use indicatif::ProgressBar;
use miette::{IntoDiagnostic, WrapErr, miette};

use super::chosen::{Chosen, bad};
use super::figure::{FigureArgs, draw_into, format_of};
use super::watch::Watched;
use crate::failure::Failure;
use crate::html::HtmlArg;
use crate::output::{print_json, printed, quoted};

/// Run a scenario in virtual time and print its metrics.
///
/// The same scenario, seed and changes give the same numbers, on any machine and with any number of
/// threads.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES

    freshline lab run one-mm1-queue --runs 2 --set flow.source.updates.rate=700/s
    freshline lab run one-mm1-queue --html report.html --figures figures --format pdf
    freshline lab run six-hops --pcap r1=r1.pcap --pcap r1/reverse=r1.pcap --series out

EXIT CODES

0  the scenario ran
1  a result cannot be written
2  the flags or the scenario cannot be understood")]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,
    /// Print one JSON document on standard output instead of the tables.
    #[arg(long)]
    json: bool,
    /// Write the JSON document to this file.
    #[arg(long, value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// Write the metrics as NAME.csv into this folder.
    #[arg(long, value_name = "DIR")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    watched: Watched,
    /// Draw the metric of --plot over the swept key, a curve per flow, into this file, whose name
    /// ends in .svg, .png or .pdf.
    #[arg(long, value_name = "FILE", requires = "plot")]
    figure: Option<PathBuf>,
    /// Draw this metric, such as age_mean.
    #[arg(long, value_name = "METRIC", requires = "figure")]
    plot: Option<String>,
    #[command(flatten)]
    figures: FigureArgs,
    #[command(flatten)]
    html: HtmlArg,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let (text, points) = args.chosen.points()?;
    refuse_what_does_not_fit(&args, &points)?;
    args.figures.check()?;
    args.figure.as_deref().map(format_of).transpose()?;
    args.watched.run(&text.name, &points[0].scenario)?;
    // The bar hides itself if standard error is not a terminal.
    let bar = ProgressBar::new(points.iter().map(|point| u64::from(point.scenario.runs)).sum());
    let mut results = Vec::new();
    for point in &points {
        let metrics = run_scenario(&point.scenario, || bar.inc(1))
            .map_err(|error| bad(&text.name, &error.into()))?;
        if !args.json {
            bar.suspend(|| print_point(&point.set, &metrics))?;
        }
        results.push(PointResult { set: point.set.clone(), metrics });
    }
    bar.finish_and_clear();
    if let Some(folder) = &args.csv {
        let name = Path::new(&text.name).file_stem().unwrap_or_default();
        write_csv(folder, &name.to_string_lossy(), &results).map_err(Failure::Runtime)?;
    }
    let measured = report::Measured::new(&text.name, &points, &results);
    draw_metric(&args, &measured)?;
    measured.draw(&args.figures)?;
    measured.write(&args.html, &args.figures)?;
    let document = Document::new(&text.name, &points, results);
    if args.json {
        print_json(&document)?;
    }
    let Some(out) = args.json_file else { return Ok(()) };
    let text =
        serde_json::to_string_pretty(&document).into_diagnostic().map_err(Failure::Runtime)?;
    let folder = out.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&out, text + "\n"))
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot write {}", out.display()))
        .map_err(Failure::Runtime)
}

/// Draws the metric of --plot into the file of --figure.
fn draw_metric(args: &Args, measured: &report::Measured<'_>) -> Result<(), Failure> {
    let (Some(file), Some(metric)) = (&args.figure, &args.plot) else { return Ok(()) };
    let options = PanelOptions {
        metric: Some(metric.clone()),
        x: args.figures.scales.x(),
        y: args.figures.scales.y(),
    };
    let panels = metric_panels(std::slice::from_ref(&measured.run), &options);
    if panels.is_empty() {
        return Err(Failure::Usage(miette!(
            "--plot: there is no metric `{metric}`; there is: {}",
            measured.names().join(", ")
        )));
    }
    let title = measured.title().to_owned();
    draw_into(&Figure { title, panels, note: report::INTERVALS.to_owned() }, file)
}

/// Rejects flags that need a sweep, or that need a single point.
fn refuse_what_does_not_fit(args: &Args, points: &[Point]) -> Result<(), Failure> {
    let swept: Vec<_> = points[0].set.keys().map(String::as_str).collect();
    let what = match swept[..] {
        [] if args.figure.is_some() => {
            "--figure draws a metric over a swept key, but the scenario has no [sweep]; add one"
        }
        [_, _, ..] if args.figure.is_some() => {
            "--figure draws over one swept key, but the scenario sweeps several; keep one with \
             --set 'sweep={ \"KEY\" = [VALUES] }'"
        }
        [_, ..] if args.watched.is_wanted() => {
            "--pcap, --series and --epochs watch one run, but the scenario has a [sweep]; leave it out with \
             --set sweep={}, and give its keys with --set"
        }
        _ => return Ok(()),
    };
    Err(Failure::Usage(miette!("{what}")))
}

fn print_point(set: &BTreeMap<String, toml::Value>, metrics: &[Metric]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let mut print = || {
        for (key, value) in set {
            writeln!(out, "{key} = {value}")?;
        }
        for Metric { name, of, value, unit, ci95 } in metrics {
            let interval = ci95.map_or(String::new(), |half| format!(" ± {half:.4}"));
            writeln!(out, "{of:<16} {name:<18} {value:>14.6} {unit}{interval}")?;
        }
        writeln!(out)
    };
    printed(print())
}

/// Writes a line per metric and point, with the swept keys first.
fn write_csv(folder: &Path, name: &str, results: &[PointResult]) -> miette::Result<()> {
    let path = folder.join(name).with_extension("csv");
    let write = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut out = BufWriter::new(File::create(&path)?);
        let keys: Vec<&String> = results.iter().take(1).flat_map(|one| one.set.keys()).collect();
        for key in &keys {
            write!(out, "{},", quoted(key))?;
        }
        writeln!(out, "of,name,value,unit,ci95")?;
        for PointResult { set, metrics } in results {
            for Metric { name, of, value, unit, ci95 } in metrics {
                for key in &keys {
                    // Text as it is, other values in TOML syntax.
                    let value = &set[*key];
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    write!(out, "{},", quoted(&text))?;
                }
                let (of, name, unit) = (quoted(of), quoted(name), quoted(unit));
                let ci95 = ci95.map_or(String::new(), |half| half.to_string());
                writeln!(out, "{of},{name},{value},{unit},{ci95}")?;
            }
        }
        out.flush()
    };
    write().into_diagnostic().wrap_err_with(|| format!("cannot write {}", path.display()))
}
