//! Columns of time series in words, with their units.

use freshline_report::metric_in_words;

/// Columns whose names in words do not follow from those of a metric.
const COLUMNS: &[(&str, &str, &str)] = &[
    ("cwnd_packets", "congestion window", "packets"),
    ("srtt_s", "smoothed round-trip time", "s"),
    ("queued_bytes", "data queued at the sender", "B"),
    ("buffer_bytes", "receive buffer", "B"),
    ("queue_packets", "queue length", "packets"),
    ("reverse_queue_packets", "queue length, reverse direction", "packets"),
    ("ap_queue_packets", "queue length at the access point", "packets"),
    ("station_queue_packets", "queue length at the stations", "packets"),
    ("backlog", "unacknowledged updates", "updates"),
    ("rate_bps", "sending rate", "bit/s"),
    ("level", "packets per frame", "packets"),
    ("target", "target of packets per frame", "packets"),
    ("overhead_s", "estimated overhead of a frame", "s"),
];

/// A column in words, and its unit: `goodput_bps` is the goodput in bit/s.
pub(super) fn column_in_words(column: &str) -> (String, &'static str) {
    if let Some((_, words, unit)) = COLUMNS.iter().find(|(known, ..)| *known == column) {
        return ((*words).to_owned(), unit);
    }
    let endings = [
        ("_per_s", "1/s"),
        ("_bps", "bit/s"),
        ("_bytes", "B"),
        ("_packets", "packets"),
        ("_s", "s"),
    ];
    for (ending, unit) in endings {
        if let Some(name) = column.strip_suffix(ending) {
            return (metric_in_words(name), unit);
        }
    }
    (metric_in_words(column), "1")
}

#[cfg(test)]
mod tests {
    use super::column_in_words;

    #[test]
    fn columns_are_words_with_units() {
        for (column, words, unit) in [
            ("age_s", "age", "s"),
            ("updates_per_s", "update rate", "1/s"),
            ("goodput_bps", "goodput", "bit/s"),
            ("queue_packets", "queue length", "packets"),
            ("retries", "retries per transmission", "1"),
        ] {
            assert_eq!(column_in_words(column), (words.to_owned(), unit));
        }
    }
}
