//! Keys of scenarios and names of metrics in words, for axes and tables.

/// Words for metrics, by the name without its statistic.
const METRICS: &[(&str, &str)] = &[
    ("age", "age"),
    ("source_age", "age at the source"),
    ("weighted_age", "weighted age of all topics"),
    ("peak_age", "peak age"),
    ("rtt", "round-trip time"),
    ("goodput", "goodput"),
    ("throughput", "throughput"),
    ("throughput_model", "throughput, as the model has it"),
    ("backlog", "unacknowledged updates"),
    ("updates", "update rate"),
    ("packets", "packet rate"),
    ("drops", "dropped packets"),
    ("reverse_drops", "dropped packets, reverse direction"),
    ("sojourn", "sojourn time"),
    ("reverse_sojourn", "sojourn time, reverse direction"),
    ("queue", "queue length"),
    ("reverse_queue", "queue length, reverse direction"),
    ("utilisation", "utilisation"),
    ("reverse_utilisation", "utilisation, reverse direction"),
    ("load", "offered load over the capacity"),
    ("reverse_load", "offered load over the capacity, reverse direction"),
    ("overload", "overload"),
    ("reverse_overload", "overload, reverse direction"),
    ("completion", "completion time"),
    ("retransmitted", "retransmitted fraction"),
    ("loss", "loss"),
    ("delay", "delay"),
    ("level", "packets per frame"),
    ("round", "interval between reports"),
    ("retries", "retries per transmission"),
    ("collisions", "collisions per transmission"),
    ("airtime", "fraction of airtime"),
    ("response", "response time"),
    ("responses", "response rate"),
    ("never_delivered", "flows that delivered nothing"),
    ("unfinished", "unfinished transfers"),
    ("slowest", "slowest flow over the mean"),
    ("overflows", "overflowing queues"),
    ("period", "period of a node"),
    ("settling_time", "settling time"),
    ("frames_f1", "F1 score of frames"),
    ("located", "correctly located"),
    ("located_f1", "F1 score of locations"),
    ("bitrate", "bitrate"),
    ("stall_time", "stall time"),
    ("reorder", "reordering delay"),
    ("page", "page load time"),
    ("generated", "generated states"),
    ("delivered", "delivered states"),
    ("replaced", "replaced states"),
    ("withheld", "withheld states"),
    ("refused", "refused states"),
    ("delivery", "delivery time"),
    ("stale", "stale topics"),
];

/// The meaning of the ending of a metric's name, before or after the words.
const STATISTICS: &[(&str, &str, &str)] = &[
    ("_mean", "mean ", ""),
    ("_p50", "median ", ""),
    ("_p95", "95th percentile of the ", ""),
    ("_p99", "99th percentile of the ", ""),
    ("_max", "maximum ", ""),
    ("_sum", "total ", ""),
    ("_jain", "Jain's index of the ", ""),
    ("_deviation", "standard deviation of the ", ""),
    ("_rmse", "root-mean-square error of the ", ""),
    ("_accuracy", "accuracy of the ", ""),
    ("_time_constant", "time constant of the ", ""),
];

/// A metric in words: `age_p99` is the 99th percentile of the age.
pub fn metric_in_words(metric: &str) -> String {
    let base = |name: &str| METRICS.iter().find(|(known, _)| *known == name).map(|it| it.1);
    if let Some(words) = base(metric) {
        return words.to_owned();
    }
    for (ending, before, behind) in STATISTICS {
        let Some(name) = metric.strip_suffix(ending).filter(|name| !name.is_empty()) else {
            continue;
        };
        let words = base(name).map_or_else(|| name.replace('_', " "), str::to_owned);
        return format!("{before}{words}{behind}");
    }
    metric.replace('_', " ")
}

/// The quantity of a metric, without its statistic, for an axis: `age_p99` is an age, `age_jain` an
/// index.
pub fn quantity_in_words(metric: &str) -> String {
    if METRICS.iter().any(|(known, _)| *known == metric) {
        return metric_in_words(metric);
    }
    let quantities = [("_jain", "Jain's index"), ("_accuracy", "accuracy")];
    if let Some((_, words)) = quantities.iter().find(|(ending, _)| metric.ends_with(ending)) {
        return (*words).to_owned();
    }
    let base = STATISTICS.iter().find_map(|(ending, ..)| metric.strip_suffix(ending));
    metric_in_words(base.filter(|base| !base.is_empty()).unwrap_or(metric))
}

/// A key of a scenario in words: `flow.source.count` is the number of flows `source`.
pub fn key_in_words(key: &str) -> String {
    let parts: Vec<_> = key.split('.').collect();
    let last = parts.last().copied().unwrap_or_default();
    let of = (parts.len() > 2).then(|| parts[1]);
    let name = match (last, of) {
        ("count", Some(of)) => return format!("number of flows “{of}”"),
        ("rate", _) => "rate".to_owned(),
        ("aoi_share", _) => return "share of the AoI class, γ".to_owned(),
        ("adoption", _) => return "fraction of links with the new queue".to_owned(),
        ("updates" | "tcp", _) => "traffic".to_owned(),
        (last, _) => last.replace('_', " "),
    };
    of.map_or(name.clone(), |of| format!("{name} of “{of}”"))
}

/// A number with a unit as scenarios have it, in base units: `6mbit` is 6e6 bit/s, `20ms` 0.02 s.
pub fn number_with_unit(text: &str) -> Option<(f64, &'static str)> {
    const UNITS: &[(&str, f64, &str)] = &[
        ("", 1.0, ""),
        ("bit", 1.0, "bit/s"),
        ("kbit", 1e3, "bit/s"),
        ("mbit", 1e6, "bit/s"),
        ("gbit", 1e9, "bit/s"),
        ("ns", 1e-9, "s"),
        ("us", 1e-6, "s"),
        ("µs", 1e-6, "s"),
        ("ms", 1e-3, "s"),
        ("s", 1.0, "s"),
        ("min", 60.0, "s"),
        ("/s", 1.0, "1/s"),
        ("p", 1.0, "packets"),
        ("B", 1.0, "B"),
        ("kB", 1e3, "B"),
        ("MB", 1e6, "B"),
        ("MHz", 1.0, "MHz"),
        ("%", 1.0, "%"),
    ];
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '-');
    let end = end.unwrap_or(text.len());
    let known = |end: usize| {
        let (number, unit) = text.split_at(end);
        let (_, factor, unit) = UNITS.iter().find(|(name, ..)| *name == unit)?;
        Some((number.parse::<f64>().ok()? * factor, *unit))
    };
    known(end)
}

/// With a capital letter in front.
pub fn capitalised(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or(String::new(), |first| first.to_uppercase().chain(rest).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_and_keys_are_words_and_what_is_unknown_has_no_underscores() {
        for (metric, words) in [
            ("age_p99", "99th percentile of the age"),
            ("source_age_mean", "mean age at the source"),
            ("goodput_jain", "Jain's index of the goodput"),
            ("located_set_after", "located set after"),
            ("new_thing_max", "maximum new thing"),
        ] {
            assert_eq!(metric_in_words(metric), words);
        }
        assert_eq!(quantity_in_words("source_age_p95"), "age at the source");
        assert_eq!(quantity_in_words("goodput_jain"), "Jain's index");
        assert_eq!(key_in_words("flow.source.count"), "number of flows “source”");
        assert_eq!(key_in_words("duration"), "duration");
        assert_eq!(key_in_words("link.up.forward.delay"), "delay of “up”");
    }

    #[test]
    fn numbers_of_scenarios_are_in_base_units() {
        for (text, expected) in [
            ("6mbit", Some((6e6, "bit/s"))),
            ("2.5ms", Some((0.0025, "s"))),
            ("530/s", Some((530.0, "1/s"))),
            ("acp+d", None),
            ("7zebras", None),
            ("", None),
            ("1.2.3s", None),
        ] {
            assert_eq!(number_with_unit(text), expected, "{text}");
        }
    }
}
