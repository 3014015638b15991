//! A finding in plain words.

use freshline_core::wire::escaped;

use super::finding::{Direction, Fault, Finding};

/// The fault in one or two sentences, with the numbers.
pub(super) fn summary(finding: &Finding) -> String {
    let bottleneck = &finding.bottleneck;
    let queue = milliseconds(bottleneck.queue);
    let base = milliseconds(bottleneck.base_rtt);
    let at = mbit(bottleneck.bps);
    let on = finding.interface.as_deref().unwrap_or("this host");
    match (finding.fault, finding.direction) {
        (Fault::SourceOverload, _) => format!(
            "A program sends UDP through {on} faster than the capacity, and does not adapt: packets queue for \
             {queue} and are dropped."
        ),
        (Fault::SendBuffer, _) => format!(
            "Programs send through {on} with a send buffer that is smaller than the path holds \
             ({at}, base RTT {base})."
        ),
        (Fault::HostQueue, _) => format!(
            "Packets spend {queue} in this host's own queue of {on}, which drains at {at}. This delays \
             every outgoing packet, however small its flow is."
        ),
        (Fault::ForwardingQueue, _) => format!(
            "This host is a router, and packets spend {queue} in its queue of {on}, which drains at {at}."
        ),
        (Fault::UpstreamQueue, Direction::Both) => format!(
            "Round trips over {on} take {queue} more than their base RTT of {base}, and neither this \
             host's uploads nor its downloads cause that: other hosts fill a queue on the path."
        ),
        (Fault::UpstreamQueue, _) => format!(
            "Uploads through {on} ({at}) keep a queue beyond this host: {queue} on top of a base RTT of \
             {base}. All other outgoing packets share it."
        ),
        (Fault::DownstreamQueue, _) => format!(
            "Downloads over {on} ({at}) keep a queue on their path to this host: {queue} on top of a base \
             RTT of {base}. All other incoming packets share it."
        ),
        (Fault::AckCongestion, _) => format!(
            "The queue of outgoing packets of {on} ({at}) beyond this host also delays the acks of \
             downloads: {queue} on top of a base RTT of {base}. Downloads are slower than their direction allows."
        ),
        (Fault::Loss, direction) => format!(
            "The path over {on} loses about {:.1} % of the packets ({direction}) without a queue: a link \
             loses them, not a full buffer.",
            bottleneck.loss * 100.0
        ),
        (Fault::LongPath, _) => format!(
            "The base RTT over {on} is {base}, and there is no queue: time is lost by distance or by the \
             technology of the link."
        ),
        (Fault::RouteChange, _) => route_change(finding, on),
        (Fault::ReceiveWindow, Direction::Up) => format!(
            "Uploads through {on} wait for the window of their receiver, at {at} with a base RTT of {base}: \
             the path has capacity for more."
        ),
        (Fault::ReceiveWindow, _) => format!(
            "A download over {on} fills the window of {:.0} kB that this host offers, at {at} with a base \
             RTT of {base}: the path has capacity for more.",
            bottleneck.window / 1e3
        ),
        (Fault::SlowReader, _) => {
            "A program on this host does not read received data in time.".to_owned()
        }
    }
}

fn route_change(finding: &Finding, on: &str) -> String {
    let value =
        |name| finding.evidence.iter().find(|one| one.name == name).map_or(0.0, |it| it.value);
    let (before, after) = (value("rtt_before_ms"), value("rtt_after_ms"));
    match before > 0.0 {
        true => format!(
            "The round trip over {on} changed from {before:.0} ms to {after:.0} ms at once and stayed \
             there, without more traffic: the route changed."
        ),
        false => {
            format!("Packets over {on} got another next hop: the route changed.")
        }
    }
}

pub(super) fn milliseconds(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1e3)
}

pub(super) fn mbit(bps: f64) -> String {
    format!("{:.2} Mbit/s", bps / 1e6)
}

/// Text without control characters of terminals.
pub(super) fn printable(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// A word of a shell's command line, quoted if necessary.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "._:@-".contains(one);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A number of the lab with its unit.
pub(super) fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "s" => format!("{:.1} ms", value * 1e3),
        "bit/s" => mbit(value),
        _ => format!("{value:.2} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_command() {
        for (name, word) in [
            ("wlan0.7@if2", "wlan0.7@if2"),
            ("$(reboot)", "'$(reboot)'"),
            ("a;b", "'a;b'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(name), word);
        }
    }

    #[test]
    fn what_is_printed_does_not_control_the_terminal() {
        assert_eq!(printable("eth\u{1b}[2J\n"), "eth\\u{1b}[2J\n");
    }
}
