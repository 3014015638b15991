//! Units and numbers that people read.

/// Differences below this fraction are those of rounding.
pub(crate) const NOISE: f64 = 1e-9;

/// The divisor for numbers of `unit` up to `max`, and the unit of the quotient.
pub fn scaled(unit: &str, max: f64) -> (f64, &str) {
    match unit {
        "s" if max < 1e-3 => (1e-6, "µs"),
        "s" if max < 1.0 => (1e-3, "ms"),
        "bit/s" if max >= 1e9 => (1e9, "Gbit/s"),
        "bit/s" if max >= 1e6 => (1e6, "Mbit/s"),
        "bit/s" if max >= 1e3 => (1e3, "kbit/s"),
        "1" => (1.0, ""),
        unit => (1.0, unit),
    }
}

/// Four significant digits, without trailing zeros; a dash if it is not a number.
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    if !(-4..15).contains(&magnitude) {
        return minus(format!("{value:.3e}"));
    }
    minus(trimmed(format!("{value:.*}", usize::try_from(3 - magnitude).unwrap_or(0))))
}

/// A value with half the width of its interval, in a unit that suits it: `31.2 ± 0.4 ms`.
pub fn interval(value: f64, half: Option<f64>, unit: &str) -> String {
    let (factor, unit) = scaled(unit, value.abs());
    let half = half.map_or(String::new(), |half| {
        // Equal runs differ by their rounding.
        let half = if half < NOISE * value.abs() { 0.0 } else { half };
        format!(" ± {}", half_of(value / factor, half / factor))
    });
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    format!("{}{half}{unit}", short(value / factor))
}

/// Half the width of the interval of a value: two digits at most, and none behind those of the value, but one digit
/// at least.
fn half_of(value: f64, half: f64) -> String {
    let magnitude = |number: f64| if number > 0.0 { number.log10().floor() as i32 } else { 0 };
    let digits = (1 - magnitude(half)).min(3 - magnitude(value.abs())).max(-magnitude(half));
    trimmed(format!("{half:.*}", usize::try_from(digits).unwrap_or(0)))
}

fn trimmed(text: String) -> String {
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// With a minus sign in place of the hyphen.
fn minus(text: String) -> String {
    match text.strip_prefix('-') {
        Some("0") => "0".to_owned(),
        Some(rest) => format!("−{rest}"),
        None => text,
    }
}

/// Round numbers from `from` to `to`, about `count` of them.
pub(crate) fn linear_ticks(from: f64, to: f64, count: usize) -> Vec<f64> {
    let rough = (to - from) / count.max(1) as f64;
    if !(rough > 0.0 && rough.is_finite()) {
        return vec![from];
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|it| it * power);
    let step = step.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(10.0 * power);
    let first = (from / step - 1e-9).ceil() as i64;
    let last = (to / step + 1e-9).floor() as i64;
    (first..=last).map(|tick| tick as f64 * step).collect()
}

/// Powers of ten from `from` to `to`, above zero, with 2 and 5 between them where they are few.
pub(crate) fn log_ticks(from: f64, to: f64, count: usize) -> Vec<f64> {
    let (first, last) = (from.log10().floor() as i32, to.log10().ceil() as i32);
    let within = |tick: &f64| *tick >= from * 0.999 && *tick <= to * 1.001;
    let ticks = |parts: &[f64], every: usize| -> Vec<f64> {
        let powers = (first..=last).step_by(every).map(|power| 10f64.powi(power));
        powers.flat_map(|power| parts.iter().map(move |part| part * power)).filter(within).collect()
    };
    let all = ticks(&[1.0, 2.0, 5.0], 1);
    if all.len() <= count.max(3) {
        return if all.len() < 3 { linear_ticks(from, to, count) } else { all };
    }
    let powers = ticks(&[1.0], 1);
    if powers.len() < 3 {
        return ticks(&[1.0, 3.0], 1);
    }
    let every = powers.len().div_ceil(count.max(1));
    ticks(&[1.0], every)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits_and_no_zeros_behind_them() {
        let cases = [
            (0.0, "0"),
            (12.5, "12.5"),
            (0.1 + 0.2, "0.3"),
            (123_456.0, "123456"),
            (0.012_346, "0.01235"),
            (-3.0, "−3"),
            (-1e-20, "−1.000e-20"),
            (f64::NAN, "–"),
        ];
        for (value, expected) in cases {
            assert_eq!(short(value), expected);
        }
    }

    #[test]
    fn an_interval_has_the_unit_of_its_value() {
        assert_eq!(interval(0.031_23, Some(0.000_42), "s"), "31.23 ± 0.42 ms");
        assert_eq!(interval(2.5e6, None, "bit/s"), "2.5 Mbit/s");
        assert_eq!(interval(0.98, Some(0.0), "1"), "0.98 ± 0");
        assert_eq!(interval(34.41, Some(0.058), "packets"), "34.41 ± 0.06 packets");
        assert_eq!(interval(8.66, Some(0.000_11), "1"), "8.66 ± 0.0001");
        assert_eq!(interval(12.0, Some(182.4), "1"), "12 ± 182");
        assert_eq!(interval(112.7, Some(4.2e-14), "1"), "112.7 ± 0");
    }

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        assert_eq!(linear_ticks(0.0, 1.0, 5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(linear_ticks(-3.0, 12.0, 4), [0.0, 5.0, 10.0]);
        assert_eq!(log_ticks(1.0, 1e6, 8), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
        assert_eq!(log_ticks(20.0, 100.0, 8), [20.0, 50.0, 100.0]);
        assert_eq!(log_ticks(30.0, 45.0, 4), [30.0, 35.0, 40.0, 45.0]);
        assert_eq!(log_ticks(0.95, 4.2, 8), [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0]);
        assert!(log_ticks(1e-3, 1e9, 6).len() <= 7);
    }
}
