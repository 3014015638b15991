//! A law that is changed while it runs.

use std::sync::{Arc, Mutex, PoisonError};

use freshline_core::source::{Ack, Fixed, LawConfig, Phase, RateBounds, RateLaw};
use freshline_core::unit::{Time, UpdateRate};
use freshline_lab::scenario::Laws;

/// The state of a dial: the law, and how often it was turned.
#[derive(Debug, Clone, Copy)]
struct Setting {
    law: LawConfig,
    turns: u64,
}

/// Sets the law of all sources of a run while it runs.
#[derive(Debug, Clone)]
pub struct Dial(Arc<Mutex<Setting>>);

impl Dial {
    /// A dial at `law`.
    pub fn new(law: LawConfig) -> Self {
        Self(Arc::new(Mutex::new(Setting { law, turns: 0 })))
    }

    /// Gives all sources another law. Each begins with it at its next event; another rate of the
    /// law `fixed` keeps the pace of its updates.
    pub fn set(&self, law: LawConfig) {
        let mut setting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if setting.law != law {
            *setting = Setting { law, turns: setting.turns + 1 };
        }
    }

    fn setting(&self) -> Setting {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Laws for Dial {
    fn law(&self, _flow: &str, _number: usize) -> Option<Box<dyn RateLaw>> {
        Some(Box::new(Dialled::new(self.clone())))
    }
}

/// The law that a dial shows.
pub struct Dialled {
    dial: Dial,
    turns: u64,
    law: Current,
}

enum Current {
    Fixed(Fixed),
    Adaptive(Box<dyn RateLaw>),
}

impl Current {
    fn of(law: LawConfig) -> Self {
        match law {
            LawConfig::Fixed { rate } => Self::Fixed(Fixed::new(rate)),
            adaptive => Self::Adaptive(adaptive.build()),
        }
    }

    fn get(&self) -> &dyn RateLaw {
        match self {
            Self::Fixed(law) => law,
            Self::Adaptive(law) => law.as_ref(),
        }
    }

    fn get_mut(&mut self) -> &mut dyn RateLaw {
        match self {
            Self::Fixed(law) => law,
            Self::Adaptive(law) => law.as_mut(),
        }
    }
}

impl Dialled {
    /// The law that `dial` shows, which follows it.
    pub fn new(dial: Dial) -> Self {
        let Setting { law, turns } = dial.setting();
        Self { dial, turns, law: Current::of(law) }
    }

    /// Changes to the law that the dial shows by now.
    fn follow(&mut self, now: Time) {
        let setting = self.dial.setting();
        if setting.turns == self.turns {
            return;
        }
        self.turns = setting.turns;
        match (&mut self.law, setting.law) {
            (Current::Fixed(fixed), LawConfig::Fixed { rate }) => fixed.set_rate(rate),
            (law, other) => {
                *law = Current::of(other);
                law.get_mut().restart(now);
                // An update has just left or has just been answered: the next one is due a period
                // from here.
                if let Current::Fixed(fixed) = law {
                    fixed.on_sent(now, 0);
                }
            }
        }
    }
}

impl RateLaw for Dialled {
    fn name(&self) -> &'static str {
        self.law.get().name()
    }

    fn restart(&mut self, now: Time) {
        self.follow(now);
        self.law.get_mut().restart(now);
    }

    fn on_sent(&mut self, now: Time, seq: u64) {
        self.law.get_mut().on_sent(now, seq);
        self.follow(now);
    }

    fn on_ack(&mut self, now: Time, ack: &Ack) {
        self.law.get_mut().on_ack(now, ack);
        self.follow(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.law.get_mut().handle_timeout(now);
        self.follow(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.law.get().poll_timeout()
    }

    fn next_update_at(&self) -> Option<Time> {
        self.law.get().next_update_at()
    }

    fn wants_ack(&self, now: Time) -> bool {
        self.law.get().wants_ack(now)
    }

    fn rate(&self) -> UpdateRate {
        self.law.get().rate()
    }

    fn phase(&self) -> Phase {
        self.law.get().phase()
    }

    fn bounds(&self) -> Option<RateBounds> {
        self.law.get().bounds()
    }

    fn set_bounds(&mut self, bounds: RateBounds) {
        self.law.get_mut().set_bounds(bounds);
    }
}

#[cfg(test)]
mod tests {
    use freshline_core::source::LawName;
    use freshline_core::unit::Span;

    use super::*;

    fn fixed(per_second: f64) -> LawConfig {
        LawConfig::Fixed { rate: UpdateRate::saturating(per_second) }
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    #[test]
    fn another_fixed_rate_counts_from_the_last_update() {
        let dial = Dial::new(fixed(10.0));
        let mut law = Dialled::new(dial.clone());
        law.on_sent(at(1000), 0);
        assert_eq!(law.next_update_at(), Some(at(1100)));
        dial.set(fixed(20.0));
        law.handle_timeout(at(1010));
        assert_eq!(
            (law.rate(), law.next_update_at()),
            (UpdateRate::saturating(20.0), Some(at(1050)))
        );
    }

    #[test]
    fn a_dial_that_is_turned_changes_the_law_of_all_its_sources() {
        let dial = Dial::new(fixed(10.0));
        let mut laws = [(); 2].map(|()| dial.law("source", 0).unwrap());
        for name in LawName::ALL {
            let config = LawConfig::with_defaults(name).unwrap_or(fixed(5.0));
            dial.set(config);
            for law in &mut laws {
                law.on_sent(at(0), 0);
                assert_eq!(law.name(), config.build().name(), "{name}");
                assert_eq!(law.bounds().is_none(), name == LawName::Fixed);
            }
        }
    }
}
