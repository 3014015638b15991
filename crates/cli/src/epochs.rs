//! Logs of control epochs as CSV or JSON: the measurements and decisions of ACP and ACP+ in each
//! epoch.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use freshline_core::source::EpochRecord;
use miette::{IntoDiagnostic, WrapErr, miette};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::quoted;

/// The columns of a CSV file, in the order of [`EpochRecord`].
const COLUMNS: &str = "number,began_s,ended_s,age_s,backlog,inter_delivery_s,srtt_s,action,gamma,\
                       wanted_change,tie,rate_per_s";

/// A log that is written while the law runs.
pub(crate) struct EpochLog {
    path: PathBuf,
    out: BufWriter<File>,
    format: Format,
    records: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    /// One array.
    Json,
    /// One object per line.
    JsonLines,
}

/// A record of one of several flows.
#[derive(Serialize)]
struct OfFlow<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    flow: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<usize>,
    #[serde(flatten)]
    record: &'a EpochRecord,
}

impl EpochLog {
    /// Creates the file; its name ends in `.csv`, `.json` or `.jsonl`. With `of_flows` each record
    /// names the flow and the source that it belongs to.
    pub(crate) fn create(path: &Path, of_flows: bool) -> Result<Self, Failure> {
        let format = match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Format::Csv,
            Some("json") => Format::Json,
            Some("jsonl") => Format::JsonLines,
            _ => {
                return Err(Failure::Usage(miette!(
                    "--epochs {}: the name must end in .csv, .json or .jsonl",
                    path.display()
                )));
            }
        };
        let begin = || {
            let mut out = BufWriter::new(File::create(path)?);
            match format {
                Format::Csv if of_flows => writeln!(out, "flow,source,{COLUMNS}")?,
                Format::Csv => writeln!(out, "{COLUMNS}")?,
                Format::Json => write!(out, "[")?,
                Format::JsonLines => {}
            }
            Ok(out)
        };
        let out = checked(path, begin())?;
        Ok(Self { path: path.to_owned(), out, format, records: 0 })
    }

    /// Adds a record; with a flow and a source if the file was created for flows.
    pub(crate) fn add(
        &mut self,
        of: Option<(&str, usize)>,
        record: &EpochRecord,
    ) -> io::Result<()> {
        let (flow, source) = of.unzip();
        let object = OfFlow { flow, source, record };
        self.records += 1;
        let Self { out, .. } = self;
        match self.format {
            Format::Csv => {
                if let Some((flow, source)) = of {
                    write!(out, "{},{source},", quoted(flow))?;
                }
                let EpochRecord { number, began_s, ended_s, age_s, backlog, .. } = record;
                let EpochRecord { inter_delivery_s, srtt_s, action, gamma, .. } = record;
                let EpochRecord { wanted_change, tie, rate_per_s, .. } = record;
                writeln!(
                    out,
                    "{number},{began_s},{ended_s},{age_s},{backlog},{inter_delivery_s},{srtt_s},\
                     {action},{gamma},{wanted_change},{tie},{rate_per_s}"
                )
            }
            Format::Json => {
                write!(out, "{}\n  ", if self.records > 1 { "," } else { "" })?;
                Ok(serde_json::to_writer(out, &object)?)
            }
            Format::JsonLines => {
                serde_json::to_writer(&mut *out, &object)?;
                writeln!(out)
            }
        }
    }

    /// Closes the JSON array and flushes the buffer.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let mut end = || {
            if self.format == Format::Json {
                writeln!(self.out, "\n]")?;
            }
            self.out.flush()
        };
        let done = end();
        checked(&self.path, done)
    }
}

fn checked<T>(path: &Path, result: io::Result<T>) -> Result<T, Failure> {
    let result = result.into_diagnostic();
    result.wrap_err_with(|| format!("cannot write {}", path.display())).map_err(Failure::Runtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> EpochRecord {
        EpochRecord {
            number,
            began_s: 1.0,
            ended_s: 1.5,
            age_s: 0.03,
            backlog: 2.5,
            inter_delivery_s: 0.01,
            srtt_s: 0.02,
            action: "mdec",
            gamma: 2,
            wanted_change: -1.875,
            tie: false,
            rate_per_s: 75.0,
        }
    }

    fn written(name: &str, of: Option<(&str, usize)>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        let Ok(mut log) = EpochLog::create(&path, of.is_some()) else { panic!("{name}") };
        for number in 1..=2 {
            log.add(of, &record(number)).unwrap();
        }
        assert!(log.finish().is_ok());
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_log_is_csv_or_json_by_the_name_of_its_file() {
        let csv = written("log.csv", None);
        let lines: Vec<_> = csv.lines().collect();
        assert_eq!(lines[0], COLUMNS);
        assert_eq!(lines[1], "1,1,1.5,0.03,2.5,0.01,0.02,mdec,2,-1.875,false,75");
        assert_eq!(lines.len(), 3);
        assert!(written("log.csv", Some(("robot", 3))).contains("\nrobot,3,2,1,1.5,"));
        assert!(written("log.csv", Some(("a, b", 3))).contains("\n\"a, b\",3,2,1,1.5,"));

        let array: Vec<serde_json::Value> =
            serde_json::from_str(&written("log.json", Some(("robot", 3)))).unwrap();
        assert_eq!((array.len(), &array[1]["number"]), (2, &2.into()));
        assert_eq!(array[0]["flow"], "robot");
        let lines = written("log.jsonl", None);
        let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
        assert_eq!((&last["action"], &last["gamma"]), (&"mdec".into(), &2.into()));
        assert!(EpochLog::create(Path::new("log.txt"), false).is_err());
    }
}
