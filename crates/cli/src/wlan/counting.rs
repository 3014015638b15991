//! The counters of packets per frame, and how their weights are read.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use freshline_core::wlan::estimator::{
    FRAMES, FrameWeights, KernelCounterParams, LEVELS, LevelWeights,
};
use freshline_core::wlan::{Aggregation, AggregationParams, LevelCounter};
use miette::{Report, miette};
use serde::de::DeserializeOwned;

use crate::failure::Failure;

/// The built-in weights have about 100 kB.
const MAX_FILE: u64 = 4 << 20;

/// The method of counting packets per frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Counting {
    /// Count by the frames of a capture: needs --capture.
    Mac,
    /// Count by the kernel's times: a model of the last 20 gaps.
    Logistic,
    /// Like logistic, corrected by support vectors under high load.
    Svm,
    /// Count by the kernel's times: a single gap, the baseline.
    Threshold,
}

/// Flags of counting by the kernel's times.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Counting")]
pub(super) struct CountingArgs {
    /// Count packets per frame by this method. Default: mac with a capture, otherwise logistic.
    #[arg(long, value_name = "HOW")]
    counting: Option<Counting>,
    /// Use these weights of logistic, svm or threshold instead of the built-in ones: a frames.toml,
    /// as `make train` writes it.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Use these support vectors of svm instead of the built-in ones: a levels.toml.
    #[arg(long, value_name = "FILE")]
    level_weights: Option<PathBuf>,
    /// Assume at most N packets per frame: 64, or 128 if the access point puts two into an MPDU.
    /// svm accepts no more than its support vectors were trained with: 64 for the built-in ones.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_packets: Option<u32>,
}

impl CountingArgs {
    /// The counter of a client with or without a capture.
    pub(super) fn counter(&self, has_capture: bool) -> Result<Box<dyn LevelCounter>, Failure> {
        self.build(has_capture).map_err(Failure::Usage)
    }

    fn build(&self, has_capture: bool) -> Result<Box<dyn LevelCounter>, Report> {
        let how = self.counting.unwrap_or(match has_capture {
            true => Counting::Mac,
            false => Counting::Logistic,
        });
        match (how, has_capture) {
            (Counting::Mac, false) => {
                return Err(miette!(
                    "--counting mac counts the frames of a capture: give --capture"
                ));
            }
            (Counting::Mac, true) => {}
            (_, true) => {
                return Err(miette!(
                    "a capture shows the packets of each frame: give --capture without \
                     --counting, or --counting mac"
                ));
            }
            _ => {}
        }
        if how == Counting::Mac {
            let kernels = [
                (self.weights.is_some(), "--weights"),
                (self.max_packets.is_some(), "--max-packets"),
                (self.level_weights.is_some(), "--level-weights"),
            ];
            if let Some((_, flag)) = kernels.iter().find(|(is_given, _)| *is_given) {
                return Err(miette!(
                    "{flag} is for counting by the kernel's times; a capture needs none"
                ));
            }
            return Ok(Box::new(Aggregation::new(AggregationParams::default())));
        }
        if self.level_weights.is_some() && how != Counting::Svm {
            return Err(miette!("--level-weights belongs to --counting svm"));
        }
        let usual = KernelCounterParams::default();
        let params = KernelCounterParams { most: self.max_packets.unwrap_or(usual.most), ..usual };
        let frames: FrameWeights = weights(self.weights.as_deref(), FRAMES)?;
        let counter = match how {
            Counting::Threshold => params.threshold(&frames),
            Counting::Svm => {
                let levels: LevelWeights = weights(self.level_weights.as_deref(), LEVELS)?;
                params.svm(&frames, &levels)
            }
            Counting::Logistic | Counting::Mac => params.logistic(&frames),
        };
        let counter = counter.map_err(|error| {
            let files = [&self.weights, &self.level_weights].map(Option::as_deref);
            let names = files.into_iter().flatten().map(|file| file.display().to_string());
            let names = names.collect::<Vec<_>>().join(", ");
            let by = if names.is_empty() { "so".to_owned() } else { format!("by {names}") };
            miette!("cannot count {by}: {error}")
        })?;
        Ok(Box::new(counter))
    }
}

/// The weights from a file, or the built-in ones.
fn weights<T: DeserializeOwned>(file: Option<&Path>, shipped: &str) -> Result<T, Report> {
    let Some(file) = file else { return toml::from_str(shipped).map_err(Report::msg) };
    let mut text = String::new();
    let read = File::open(file).and_then(|open| open.take(MAX_FILE).read_to_string(&mut text));
    read.map_err(|error| miette!("cannot read the weights {}: {error}", file.display()))?;
    toml::from_str(&text)
        .map_err(|error| miette!("the weights {} cannot be understood: {error}", file.display()))
}
