//! Units that people read.

/// What a number of `unit` is divided by, and the unit that it then has, for numbers up to `most`.
pub(in crate::lab) fn scale(unit: &str, most: f64) -> (f64, &str) {
    match unit {
        "s" if most < 1e-3 => (1e-6, "µs"),
        "s" if most < 1.0 => (1e-3, "ms"),
        "bit/s" if most >= 1e6 => (1e6, "Mbit/s"),
        "bit/s" if most >= 1e3 => (1e3, "kbit/s"),
        "1" => (1.0, ""),
        unit => (1.0, unit),
    }
}

/// What stands at an axis: a name, with its unit where it has one.
pub(super) fn axis(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.to_owned() } else { format!("{name} ({unit})") }
}
