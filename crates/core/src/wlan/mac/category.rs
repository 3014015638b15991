//! Access categories: the priority of the channel access.
//!
//! DSCP → user priority → access category. IEEE 802.11-2016: Table 10-1 (user priorities),
//! Table 9-137 (default EDCA parameters), 17.4.4 (CWmin 15, CWmax 1023); Shreedhar, PhD thesis,
//! IIIT-Delhi, Table 5.1 (service classes).

use crate::unit::Span;

/// An access category, from the lowest priority to the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Category {
    /// AC_BK.
    Background,
    /// AC_BE.
    #[default]
    BestEffort,
    /// AC_VI.
    Video,
    /// AC_VO.
    Voice,
}

impl Category {
    /// The number of categories.
    pub const COUNT: usize = 4;
    /// From the lowest priority to the highest.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Background, Self::BestEffort, Self::Video, Self::Voice];

    /// The category of a user priority from 0 to 7; larger ones count as 7.
    pub const fn of_user_priority(priority: u8) -> Self {
        match priority {
            1 | 2 => Self::Background,
            0 | 3 => Self::BestEffort,
            4 | 5 => Self::Video,
            _ => Self::Voice,
        }
    }

    /// The category of packets with a DSCP from 0 to 63.
    pub const fn of_dscp(dscp: u8) -> Self {
        Self::of_user_priority(user_priority(dscp))
    }
}

/// The user priority of packets with a DSCP from 0 to 63.
///
/// The service classes of the thesis have the priorities of its Table 5.1: CS6 and CS7 → 7, CS5 →
/// 5, AF3x and AF4x → 4, AF1x → 3, CS1 → 1. Expedited forwarding goes to voice (6), as RFC 8325
/// section 4.2.1 recommends. All other values are mapped by their class bits, the default of access
/// points.
pub const fn user_priority(dscp: u8) -> u8 {
    const CS1: u8 = 8;
    const CS6: u8 = 48;
    const EXPEDITED: u8 = 46;
    match dscp & 0x3f {
        CS1 => 1,
        10 | 12 | 14 => 3,
        26 | 28 | 30 | 34 | 36 | 38 => 4,
        EXPEDITED => 6,
        high if high >= CS6 => 7,
        other => other >> 3,
    }
}

/// How a category contends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CategoryParams {
    /// The number of slots after SIFS for which the medium must be idle.
    pub aifsn: u8,
    /// The minimum contention window: backoff is drawn from 0 to this many slots.
    pub cw_min: u32,
    /// The maximum contention window.
    pub cw_max: u32,
    /// For how long a station may send once it has the medium; zero means one frame.
    pub txop_limit: Span,
}

impl CategoryParams {
    /// The mean of the first backoff, in slots of this length.
    pub fn mean_backoff(&self, slot: Span) -> Span {
        slot * u64::from(self.cw_min) / 2
    }

    /// The standard deviation of the first backoff: that of CWmin + 1 equally likely slots.
    pub fn backoff_deviation(&self, slot: Span) -> Span {
        let window = f64::from(self.cw_min) + 1.0;
        slot.mul_f64(libm::sqrt((window * window - 1.0) / 12.0))
    }
}

/// How the stations of a cell contend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// All packets with the same priority, by the distributed coordination function.
    Dcf(CategoryParams),
    /// Each category by its parameters, in the order of [`Category::ALL`].
    Edca([CategoryParams; Category::COUNT]),
}

impl Access {
    /// The distributed coordination function: DIFS, windows from 15 to 1023.
    pub const DCF: Self =
        Self::Dcf(CategoryParams { aifsn: 2, cw_min: 15, cw_max: 1023, txop_limit: Span::ZERO });

    /// The default EDCA parameters of stations (Table 9-137 with CWmin 15 and CWmax 1023).
    pub const EDCA: Self = Self::Edca([
        CategoryParams { aifsn: 7, cw_min: 15, cw_max: 1023, txop_limit: Span::ZERO },
        CategoryParams { aifsn: 3, cw_min: 15, cw_max: 1023, txop_limit: Span::ZERO },
        CategoryParams { aifsn: 2, cw_min: 7, cw_max: 15, txop_limit: Span::from_micros(3_008) },
        CategoryParams { aifsn: 2, cw_min: 3, cw_max: 7, txop_limit: Span::from_micros(1_504) },
    ]);

    /// The category in which packets of `category` contend: without EDCA there is only one.
    pub(super) fn category(&self, category: Category) -> Category {
        match self {
            Self::Dcf(_) => Category::BestEffort,
            Self::Edca(_) => category,
        }
    }

    /// How `category` contends.
    pub fn params(&self, category: Category) -> &CategoryParams {
        match self {
            Self::Dcf(params) => params,
            Self::Edca(params) => &params[category as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_of_16_slots_deviates_by_41_us() {
        let slot = Span::from_micros(9);
        let best_effort = Access::EDCA.params(Category::BestEffort);
        assert_eq!(best_effort.mean_backoff(slot).as_nanos(), 67_500);
        // √(255/12) · 9 µs.
        assert_eq!(best_effort.backoff_deviation(slot).as_nanos(), 41_488);
    }

    #[test]
    fn service_classes_have_the_categories_of_the_thesis() {
        use Category::{Background, BestEffort, Video, Voice};
        for (dscp, priority, category) in [
            (56, 7, Voice),
            (48, 7, Voice),
            (40, 5, Video),
            (34, 4, Video),
            (38, 4, Video),
            (26, 4, Video),
            (30, 4, Video),
            (10, 3, BestEffort),
            (14, 3, BestEffort),
            (8, 1, Background),
            (0, 0, BestEffort),
            (46, 6, Voice),
        ] {
            assert_eq!(user_priority(dscp), priority, "DSCP {dscp}");
            assert_eq!(Category::of_dscp(dscp), category, "DSCP {dscp}");
        }
    }
}
