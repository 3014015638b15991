//! Generation times that the application writes in front of the states of a stream.
//!
//! ```text
//! state or record   TIME TAB STATE
//! state of a key    KEY TAB TIME TAB STATE
//! TIME              1 to 20 digits, then perhaps a dot and 1 to 9 digits: seconds since 1970, as of
//!                   CLOCK_REALTIME
//! ```
//!
//! The monotonic clock and the wall clock are read together with the state, so setting the wall
//! clock between two states changes no generation time. A state is worth more than its stamp: a
//! state with a missing or implausible stamp counts as generated when it was read. A state whose
//! stamp is plausible and older than the bound counts as old as the bound, so the receiver sees
//! that it is stale.

use std::mem::{discriminant, take};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use freshline_core::unit::Span;

/// Follows a stamp.
const TAB: u8 = b'\t';

/// The longest stamp with its tab, in bytes: 20 digits, a dot, and 9 digits.
const MAX_LEN: usize = 31;

/// By how much a stamp may be ahead of this host's wall clock: it then counts as now. Clocks that
/// NTP synchronises over the Internet are within some tens of ms of each other (RFC 5905, section
/// 1).
const MAX_AHEAD: Span = Span::from_millis(100);

/// The maximum age by a stamp, 30 days: a writer that was blocked during an outage writes old
/// records.
pub(super) const MAX_AGE: Span = Span::from_secs(30 * 86_400);

/// Stamps before this are not dates: the first moment of 2000, since 1970. A clock that was never
/// set has such values, and so has a stamp in seconds since boot; a stamp in ms or ns is far in the
/// future.
const FIRST_DATE: Duration = Duration::from_secs(946_684_800);

/// How a generation time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampFormat {
    /// In seconds since 1970 by `CLOCK_REALTIME`, with up to 9 decimals.
    Unix,
}

impl StampFormat {
    /// The generation time in front of a state, since 1970, and the state behind it. A time beyond
    /// the range of [`Duration`] becomes its maximum.
    ///
    /// # Errors
    /// [`StampError::NoTab`] and [`StampError::NoTime`] if there is no time.
    pub fn split(self, text: &[u8]) -> Result<(Duration, &[u8]), StampError> {
        let Self::Unix = self;
        let Some(tab) = text.iter().take(MAX_LEN).position(|byte| *byte == TAB) else {
            return Err(if text.contains(&TAB) { StampError::NoTime } else { StampError::NoTab });
        };
        let time = time(&text[..tab]).ok_or(StampError::NoTime)?;
        Ok((time, &text[tab + 1..]))
    }
}

/// Not a stamp format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown format of generation times; use `unix` for seconds since 1970, such as 1732712345.25"
)]
pub struct UnknownStampFormat;

impl FromStr for StampFormat {
    type Err = UnknownStampFormat;

    fn from_str(name: &str) -> Result<Self, UnknownStampFormat> {
        if name == "unix" { Ok(Self::Unix) } else { Err(UnknownStampFormat) }
    }
}

/// Why the stamp of a state was not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StampError {
    /// There is no tab.
    #[error(
        "a state has no tab, and so no generation time: write a time, a tab, then the state; the time is in \
         seconds since 1970, such as 1732712345.25"
    )]
    NoTab,
    /// The text in front of the tab is not a time.
    #[error(
        "the text before the tab of a state is no generation time: write seconds since 1970 with at most 9 \
         decimals, such as 1732712345.25"
    )]
    NoTime,
    /// It is in the future.
    #[error(
        "a generation time is {by} in the future: write seconds since 1970, not ms or ns, and synchronise the \
         clock from which it is"
    )]
    Ahead {
        /// By how much.
        by: Span,
    },
    /// It is too long ago to be a date of this century, and so counts as now.
    #[error(
        "a generation time is {age} ago, more than {max}: write seconds since 1970, not since boot, and \
         synchronise the clock from which it is"
    )]
    Old {
        /// How long ago it is.
        age: Span,
        /// The maximum age, 30 days.
        max: Span,
    },
    /// It is a date, and more than the greatest age ago: the state counts as that old.
    #[error(
        "a generation time is {age} ago, more than {max}: its state counts as {max} old; synchronise the clock \
         from which the time is"
    )]
    Stale {
        /// How long ago it is.
        age: Span,
        /// The maximum age, 30 days.
        max: Span,
    },
}

/// The stamps of a stream, if it has any. Clones share their counts: the reading thread has one.
#[derive(Debug, Clone, Default)]
pub(super) struct Stamps(Option<Rule>);

#[derive(Debug, Clone)]
struct Rule {
    format: StampFormat,
    max_age: Span,
    tally: Arc<Mutex<Tally>>,
}

/// Stamps that were not used.
#[derive(Debug, Default)]
struct Tally {
    count: u64,
    /// The first of each kind.
    firsts: Vec<StampError>,
    /// The ones of these that have not been reported.
    news: Vec<StampError>,
}

impl Stamps {
    /// Each state has a stamp, which is at most `max_age` old; without a format, no state has one.
    pub(super) fn new(format: Option<StampFormat>, max_age: Span) -> Self {
        Self(format.map(|format| Rule { format, max_age, tally: Arc::default() }))
    }

    /// The extra length of a state in its stream, in bytes.
    pub(super) fn max_len(&self) -> usize {
        if self.0.is_some() { MAX_LEN } else { 0 }
    }

    /// Removes the stamp of a state, and returns its generation time; the state was read when the
    /// wall clock showed `wall`. Both times are since 1970.
    pub(super) fn take_off(&self, wall: Duration, state: &mut Vec<u8>) -> Duration {
        let Some(rule) = &self.0 else { return wall };
        let split = rule.format.split(state).map(|(stamp, rest)| (stamp, state.len() - rest.len()));
        let judged = match split {
            Ok((stamp, before)) => {
                state.drain(..before);
                judge(stamp, wall, rule.max_age)
            }
            Err(why) => Err(why),
        };
        judged.unwrap_or_else(|why| {
            rule.tally().count(why);
            match why {
                StampError::Stale { max, .. } => wall.saturating_sub(max.into()),
                _ => wall,
            }
        })
    }

    /// How many stamps were not used; `None` without a format.
    pub(super) fn invalid(&self) -> Option<u64> {
        self.0.as_ref().map(|rule| rule.tally().count)
    }

    /// Why stamps were not used: the first of each kind, each reported once.
    pub(super) fn take_news(&self) -> Vec<StampError> {
        self.0.as_ref().map_or_else(Vec::new, |rule| take(&mut rule.tally().news))
    }
}

/// Whether the age of a record that an earlier process has read is known when the wall clock shows
/// `wall`: the clock may have gone back since, or may have been set for the first time.
pub(super) fn is_age_known(generated_at: Duration, wall: Duration) -> bool {
    // A clock that is never set restarts at each boot.
    generated_at >= FIRST_DATE && generated_at.saturating_sub(wall) <= Duration::from(MAX_AHEAD)
}

impl Rule {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    fn count(&mut self, why: StampError) {
        self.count += 1;
        if !self.firsts.iter().any(|known| discriminant(known) == discriminant(&why)) {
            self.firsts.push(why);
            self.news.push(why);
        }
    }
}

/// Parses `1732712345.25`, since 1970. A value beyond the range becomes the maximum.
fn time(text: &[u8]) -> Option<Duration> {
    let dot = text.iter().position(|byte| *byte == b'.');
    let (whole, decimals) = match dot {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &b"0"[..]),
    };
    if decimals.len() > 9 {
        return None;
    }
    let nanos = number(decimals)? * 10_u64.pow(9 - decimals.len() as u32);
    Some(Duration::new(number(whole)?, nanos as u32))
}

fn number(digits: &[u8]) -> Option<u64> {
    let are_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    are_digits.then(|| digits.iter().fold(0, add))
}

/// The generation time by a stamp, not later than now.
fn judge(stamp: Duration, wall: Duration, max_age: Span) -> Result<Duration, StampError> {
    // Whole ms, for readability.
    let rounded =
        |span: Duration| Span::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    let (ahead, age) = (stamp.saturating_sub(wall), wall.saturating_sub(stamp));
    if ahead > Duration::from(MAX_AHEAD) {
        return Err(StampError::Ahead { by: rounded(ahead) });
    }
    if age > Duration::from(max_age) {
        let (age, max) = (rounded(age), max_age);
        let is_date = stamp >= FIRST_DATE;
        return Err(match is_date {
            true => StampError::Stale { age, max },
            false => StampError::Old { age, max },
        });
    }
    Ok(stamp.min(wall))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The wall clock when the states are read.
    const WALL: Duration = Duration::new(1_732_712_345, 250_000_000);

    fn stamps() -> Stamps {
        Stamps::new(Some(StampFormat::Unix), MAX_AGE)
    }

    /// The age of a state, and the state without its stamp.
    fn taken(stamps: &Stamps, text: &[u8]) -> (Duration, Vec<u8>) {
        let mut state = text.to_vec();
        let at = stamps.take_off(WALL, &mut state);
        (WALL - at, state)
    }

    #[test]
    fn a_state_is_as_old_as_its_stamp_says() {
        let stamps = stamps();
        for (text, millis, rest) in [
            (&b"1732712344.75\tup"[..], 500, &b"up"[..]),
            (b"1732712344\tx\ty", 1_250, b"x\ty"),
            (b"1732712344.250000000\t", 1_000, b""),
            (b"0001730120345.25\t\x00\xff", 30 * 86_400_000, b"\x00\xff"),
            // Ahead by less than the bound.
            (b"1732712345.35\tnow", 0, b"now"),
        ] {
            let expected = (Duration::from_millis(millis), rest.to_vec());
            assert_eq!(taken(&stamps, text), expected, "{:?}", text.escape_ascii().to_string());
        }
        assert_eq!((stamps.invalid(), stamps.take_news()), (Some(0), vec![]));
        let nanos = taken(&stamps, b"1732712345.249999999\t").0;
        assert_eq!(nanos, Duration::from_nanos(1));
    }

    #[test]
    fn a_state_without_a_plausible_stamp_counts_as_read_now_and_the_first_of_each_kind_is_news() {
        let stamps = stamps();
        let no_times: [&[u8]; 9] = [
            b"left\tup",
            b"\tup",
            b".5\tup",
            b"1732712345.\tup",
            b"-1.5\tup",
            b"17327e5\tup",
            b"1.2.3\tup",
            b"1732712345.0123456789\tup",
            b"0000000000000000000001732712345\tup",
        ];
        let implausible: [(&[u8], &[u8]); 4] = [
            (b"1732712345.351\tahead", b"ahead"),
            (b"1732712345250\tin ms", b"in ms"),
            (b"99999999999999999999\tbeyond the range", b"beyond the range"),
            (b"0\tunset", b"unset"),
        ];
        let no_tabs: [&[u8]; 2] = [b"", b"1732712345.25"];
        let whole = no_tabs.into_iter().chain(no_times).map(|text| (text, text));
        for (text, rest) in whole.chain(implausible) {
            let expected = (Duration::ZERO, rest.to_vec());
            assert_eq!(taken(&stamps, text), expected, "{:?}", text.escape_ascii().to_string());
        }
        assert_eq!(stamps.invalid(), Some(15));
        let age = Span::from_millis(1_732_712_345_250);
        let firsts = [
            StampError::NoTab,
            StampError::NoTime,
            StampError::Ahead { by: Span::from_millis(101) },
            StampError::Old { age, max: MAX_AGE },
        ];
        assert_eq!(stamps.take_news(), firsts);
        assert_eq!(stamps.take_news(), []);
    }

    #[test]
    fn a_state_that_is_older_than_the_bound_is_not_taken_for_a_new_one() {
        let month = Duration::from(MAX_AGE);
        for (text, age) in [
            // 30 days and a nanosecond, a year, and the first second of 2000.
            (&b"1730120345.249999999\told"[..], month),
            (b"1701176345.25\told", month),
            (b"946684800\told", month),
            // Seconds since boot, or a time that was never set.
            (b"946684799.999999999\told", Duration::ZERO),
            (b"86400\told", Duration::ZERO),
        ] {
            let stamps = stamps();
            let text = (text, text.escape_ascii().to_string());
            assert_eq!(taken(&stamps, text.0), (age, b"old".to_vec()), "{}", text.1);
            assert_eq!(stamps.invalid(), Some(1), "{}", text.1);
        }
    }

    #[test]
    fn the_age_of_a_record_of_an_earlier_process_is_known_unless_the_clock_was_set_since() {
        let boot = Duration::from_secs(86_400);
        assert!(
            is_age_known(WALL - boot, WALL) && is_age_known(WALL + Duration::from_millis(99), WALL)
        );
        assert!(!is_age_known(WALL + boot, WALL) && !is_age_known(boot, WALL));
        assert!(!is_age_known(boot, 2 * boot), "a time since another boot");
    }

    #[test]
    fn a_stream_without_stamps_is_left_as_it_is() {
        let stamps = Stamps::default();
        assert_eq!(taken(&stamps, b"0\tup"), (Duration::ZERO, b"0\tup".to_vec()));
        assert_eq!((stamps.invalid(), stamps.max_len()), (None, 0));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_and_none_of_the_state_is_lost(
            state in proptest::collection::vec(any::<u8>(), 0..80),
            looks_like_one in "[0-9.\\-]{0,24}\t?[0-9.\t]{0,9}",
            wall in 0..u64::MAX,
        ) {
            let wall = Duration::from_nanos(wall);
            for text in [state.clone(), [looks_like_one.as_bytes(), &state[..]].concat()] {
                let mut rest = text.clone();
                let at = stamps().take_off(wall, &mut rest);
                prop_assert!(at <= wall && wall - at <= Duration::from(MAX_AGE));
                prop_assert!(text.ends_with(&rest));
                let taken = &text[..text.len() - rest.len()];
                prop_assert!(taken.is_empty() || (taken.len() <= MAX_LEN && taken.ends_with(b"\t")));
            }
        }

        #[test]
        fn a_time_that_is_written_is_the_time_that_is_read(
            secs: u64,
            nanos in 0..1_000_000_000_u32,
            state in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let text = [format!("{secs}.{nanos:09}\t").as_bytes(), &state[..]].concat();
            let (time, rest) = StampFormat::Unix.split(&text).unwrap();
            prop_assert_eq!((time, rest), (Duration::new(secs, nanos), &state[..]));
            prop_assert!(text.len() - rest.len() <= MAX_LEN);
        }
    }
}
