//! The flag for the length of a run or a measurement.

use freshline_core::unit::Span;

/// The length of a measurement.
pub(crate) fn run_length(text: &str) -> Result<Span, String> {
    let length: Span = text.parse().map_err(|error| format!("{error}"))?;
    let range = Span::from_millis(100)..=Span::from_secs(86_400);
    match range.contains(&length) {
        true => Ok(length),
        false => Err("give a time from 100ms to 24h, such as 4s".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_from_100_ms_to_a_day() {
        assert_eq!(run_length("20s"), Ok(Span::from_secs(20)));
        assert_eq!(run_length("24h"), Ok(Span::from_secs(86_400)));
        for wrong in ["0s", "99ms", "25h"] {
            assert!(run_length(wrong).unwrap_err().contains("give a time from 100ms"), "{wrong}");
        }
        assert!(run_length("20").is_err(), "without a unit");
    }
}
