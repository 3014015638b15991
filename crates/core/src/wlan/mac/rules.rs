//! The rules in which a real cell differs from Bianchi's model, each with a switch.

/// How a busy period affects the backoff counters of waiting stations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Countdown {
    /// A slot counts once it has passed idle, as in the DCF: the slot in which a transmission
    /// starts does not count. So no waiting station reaches zero in the first slot after a busy
    /// period; only a station that just transmitted can use it (Bianchi, Tinnirello, Scalia:
    /// Understanding 802.11e contention-based prioritization mechanisms, IEEE Network 2005).
    AfterIdleSlot,
    /// A slot counts when it begins, as in EDCA, even the one in which a transmission starts.
    /// Bianchi's model of the DCF (JSAC 2000) assumes this.
    AtSlotStart,
}

/// When the sender of a failed frame starts to count its new backoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Recovery {
    /// DIFS (or AIFS) after the end of its frame, as if it detected the failure at once.
    AtOnce,
    /// When both its acknowledgement timeout and DIFS have passed, which run in parallel: the
    /// backoff of the DCF begins with the timeout, and only requires that the medium was idle for
    /// DIFS (10.3.4.3). Stations that did not take part still wait for EIFS then, so only the
    /// colliding stations can use the first slots after a collision.
    Timeout,
    /// AIFS after its acknowledgement timeout, as in EDCA (10.22.2.4 c).
    TimeoutThenAifs,
}

/// Rules of contention, each of which can be switched to show its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Rules {
    /// Whether a slot counts when it begins or once it has passed.
    pub countdown: Countdown,
    /// Whether stations wait for EIFS (10.3.2.3.7) instead of DIFS after an unreadable frame.
    pub eifs: bool,
    /// When a sender whose frame failed contends again.
    pub recovery: Recovery,
    /// The number of attempts after which a frame is given up, at least 1; `None` for no limit.
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

    /// The assumptions of Bianchi's model (JSAC 2000, section IV): the same DIFS for all stations
    /// after every frame, every busy period counted as one slot, and unlimited retries.
    pub const BIANCHI: Self = Self {
        countdown: Countdown::AtSlotStart,
        eifs: false,
        recovery: Recovery::AtOnce,
        retry_limit: None,
    };
}
