//! The flags that mark packets with a code point (DSCP), and the messages about marks.

use freshline::driver::marks::{DirectionMarks, MarkReport};
use freshline_core::dscp::Dscp;
use freshline_core::wire::AckMark;

/// Marks of a source's updates and of their acks.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct MarkArgs {
    /// Mark updates with this code point (DSCP), by name or number: EF, AF41, CS5, 46. Openings,
    /// parts of a state that does not fit into one datagram, and the handshake of quic:// are never
    /// marked.
    #[arg(
        long,
        value_name = "CODE",
        default_value = "0",
        hide_default_value = true,
        help_heading = "Marks"
    )]
    pub(crate) dscp: Dscp,
    /// Ask the monitor to mark acks with this code point, or with `echo` for the code point with
    /// which the update arrived.
    #[arg(long, value_name = "CODE|echo", help_heading = "Marks")]
    pub(crate) ack_dscp: Option<AckMark>,
}

impl MarkArgs {
    /// Whether any mark is set.
    pub(crate) fn are_given(&self) -> bool {
        self.dscp != Dscp::DEFAULT || self.ack_dscp.is_some()
    }
}

/// A warning for each direction in which the path changes code points; `packets` and `answers` name
/// the packets of each direction. Unmarked packets that arrive marked are not reported.
pub(crate) fn changed(report: &MarkReport, [packets, answers]: [&str; 2]) -> Vec<String> {
    let changed =
        |marks: &DirectionMarks| marks.received_dscp.filter(|_| marks.is_preserved == Some(false));
    let sent = report.dscp;
    let forward = changed(&report.forward).filter(|_| sent != Dscp::DEFAULT);
    let forward =
        forward.map(|seen| format!("{packets} leave with DSCP {sent} and arrive with {seen}"));
    let sent = report.reverse.sent_as.filter(|sent| *sent != Dscp::DEFAULT);
    let reverse = changed(&report.reverse).zip(sent);
    let reverse = reverse
        .map(|(seen, sent)| format!("{answers} leave with DSCP {sent} and arrive with {seen}"));
    forward.into_iter().chain(reverse).collect()
}

/// How marked packets arrive, for the end of a line: `, DSCP EF`, `, DSCP EF -> CS0`, or with `?`
/// if the receiver does not report it.
pub(crate) fn shown(report: &MarkReport) -> String {
    let sent = report.dscp;
    match report.forward.received_dscp {
        _ if sent == Dscp::DEFAULT => String::new(),
        None => format!(", DSCP {sent} -> ?"),
        Some(seen) if seen == sent => format!(", DSCP {sent}"),
        Some(seen) => format!(", DSCP {sent} -> {seen}"),
    }
}

/// The code point with which packets arrive, for the end of a line; empty if they are not marked.
pub(crate) fn arrived_as(dscp: Option<Dscp>) -> String {
    let marked = dscp.filter(|dscp| *dscp != Dscp::DEFAULT);
    marked.map_or_else(String::new, |dscp| format!(", DSCP {dscp}"))
}

#[cfg(test)]
mod tests {
    use freshline_core::session::PathMarks;

    use super::*;

    #[test]
    fn changed_marks_are_told_by_direction() {
        let [ef, cs0] = [46, 0].map(|number| Dscp::new(number).unwrap());
        let mut marks = PathMarks::default();
        let told = |marks: &PathMarks| {
            let report = MarkReport::of(ef, marks);
            (changed(&report, ["updates", "acks"]), shown(&report))
        };
        assert_eq!(told(&marks), (vec![], ", DSCP EF -> ?".into()));
        (0..3).for_each(|_| marks.forward.record(ef, ef));
        assert_eq!(told(&marks), (vec![], ", DSCP EF".into()));
        (0..3).for_each(|_| marks.forward.record(ef, cs0));
        (0..3).for_each(|_| marks.reverse.record(cs0, ef));
        assert_eq!(told(&marks).0.len(), 1, "unmarked acks that arrive marked are no news");
        (0..3).for_each(|_| marks.reverse.record(ef, cs0));
        let (warnings, arrives) = told(&marks);
        assert_eq!(arrives, ", DSCP EF -> CS0");
        assert_eq!(
            warnings,
            [
                "updates leave with DSCP EF and arrive with CS0",
                "acks leave with DSCP EF and arrive with CS0",
            ]
        );
        let unmarked = MarkReport::of(cs0, &PathMarks { reverse: Default::default(), ..marks });
        assert_eq!((changed(&unmarked, ["", ""]), shown(&unmarked)), (vec![], String::new()));
        assert_eq!(
            (arrived_as(Some(ef)), arrived_as(Some(cs0))),
            (", DSCP EF".into(), String::new())
        );
    }
}
