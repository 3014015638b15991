//! The rules by which a real cell differs from Bianchi's model, each with a switch.

/// What a busy period does to the counter of those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Countdown {
    /// A slot counts once it has passed idle, as in the DCF: the slot in which somebody starts to
    /// transmit does not count. So nobody who waited comes to zero at the start of that slot's
    /// successor, and the first slot after a busy period belongs to those who just transmitted
    /// (Bianchi, Tinnirello, Scalia: Understanding 802.11e contention-based prioritization
    /// mechanisms, IEEE Network 2005).
    AfterIdleSlot,
    /// A slot counts when it begins, as in EDCA: also the one in which somebody starts to
    /// transmit. Bianchi's model of the DCF (JSAC 2000) counts so.
    AtSlotStart,
}

/// From when on a sender whose frame failed counts its new backoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Recovery {
    /// DIFS (or AIFS) after the end of its frame, as if it knew at once.
    AtOnce,
    /// Once its acknowledgement timeout and DIFS have passed, which run together: the backoff of
    /// the DCF begins with the timeout, and all that it asks of the medium is to have been idle
    /// for DIFS (10.3.4.3). Those who did not take part still wait for EIFS then, so the first
    /// slots after a collision belong to those who collided.
    Timeout,
    /// AIFS after its acknowledgement timeout, as in EDCA (10.22.2.4 c).
    TimeoutThenAifs,
}

/// Rules of contention that can be switched to show what each of them is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Rules {
    /// Whether a slot counts when it begins or once it has passed.
    pub countdown: Countdown,
    /// Whether those who heard a frame that could not be read wait for EIFS (10.3.2.3.7) instead
    /// of DIFS.
    pub eifs: bool,
    /// When a sender whose frame failed contends again.
    pub recovery: Recovery,
    /// After how many attempts a frame is given up, at least 1; for ever if `None`.
    #[cfg_attr(feature = "serde", serde(default))]
    pub retry_limit: Option<u8>,
}

impl Rules {
    /// dot11ShortRetryLimit.
    const RETRY_LIMIT: u8 = 7;

    /// The distributed coordination function.
    pub const DCF: Self = Self {
        countdown: Countdown::AfterIdleSlot,
        eifs: true,
        recovery: Recovery::Timeout,
        retry_limit: Some(Self::RETRY_LIMIT),
    };

    /// Enhanced distributed channel access.
    pub const EDCA: Self = Self {
        countdown: Countdown::AtSlotStart,
        recovery: Recovery::TimeoutThenAifs,
        ..Self::DCF
    };

    /// What Bianchi's model assumes (JSAC 2000, section IV): the same DIFS for all after every
    /// frame, every busy period counting as one slot, and no end to retries.
    pub const BIANCHI: Self = Self {
        countdown: Countdown::AtSlotStart,
        eifs: false,
        recovery: Recovery::AtOnce,
        retry_limit: None,
    };
}
