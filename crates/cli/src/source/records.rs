//! Topics of records: their streams, and the folder in which records survive a restart.

use std::io::Read;
use std::path::Path;

use freshline::driver::framing::Framing;
use freshline::driver::source::sampler::Records;
use freshline::driver::source::spool::{SpoolDir, SpoolError, new_stream};
use freshline::driver::source::{SourceReport, Topic};
use freshline_core::session::TopicKind;
use miette::miette;

use super::topic::TopicArg;
use crate::failure::Failure;

/// The folder for records, if one is given.
pub(super) fn open(dir: Option<&Path>, topics: &[TopicArg]) -> Result<Option<SpoolDir>, Failure> {
    let Some(dir) = dir else { return Ok(None) };
    if !topics.iter().any(|topic| topic.params.kind.is_every()) {
        let message = "--spool is for records: give a topic of them, such as --topic log,kind=every,records=-";
        return Err(Failure::Usage(miette!("{message}")));
    }
    Ok(Some(SpoolDir::open(dir).map_err(failure)?))
}

/// A topic with the records of a stream.
pub(super) fn topic(
    TopicArg { params, stamp, .. }: &TopicArg,
    stream: Box<dyn Read + Send>,
    framing: Framing,
    max_state: usize,
    spools: Option<&SpoolDir>,
) -> Result<Topic, Failure> {
    let mut params = params.clone();
    let TopicKind::Every { stream: id, first, max_bytes } = &mut params.kind else {
        let message = "records=STREAM is for topics of kind every";
        return Err(Failure::Usage(miette!("{message}")));
    };
    let mut records = Records::new(stream, framing, max_state, *max_bytes).stamped(*stamp);
    match spools {
        None => (*id, *first) = (new_stream().map_err(failure)?, 0),
        Some(spools) => {
            let spool = spools.topic(&params.name).map_err(failure)?;
            if spool.cut_bytes() > 0 {
                say!(
                    "topic {}: the last {} bytes of its spool are not a whole record, and are cut off",
                    params.name,
                    spool.cut_bytes()
                );
            }
            params.kind = spool.kind(*max_bytes);
            records = records.with_spool(spool);
        }
    }
    Ok(Topic { params, sampler: Box::new(records) })
}

/// Reports records that were not acknowledged by the end.
pub(super) fn print_waiting(report: &SourceReport, spool: Option<&Path>) {
    for topic in &report.topics {
        let waiting = topic.records.as_ref().map_or(0, |records| records.waiting);
        if waiting == 0 {
            continue;
        }
        let then = match spool {
            Some(dir) => format!("they are in {}, for the next start", dir.display()),
            None => "they are lost (see --spool)".to_owned(),
        };
        say!("topic {}: {waiting} records are not known to have arrived; {then}", topic.topic);
    }
}

fn failure(error: SpoolError) -> Failure {
    match error {
        SpoolError::Random(_) | SpoolError::InUse(_) => {
            Failure::Runtime(miette!("--spool: {error}"))
        }
        _ => Failure::Usage(miette!("--spool: {error}")),
    }
}
