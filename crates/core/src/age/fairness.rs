//! Fairness of a division.

/// Jain's index of fairness, (Σx)² / (n · Σx²): 1 if all shares are equal, 1/n if one has all.
///
/// `None` for no shares at all, and if a share is negative, infinite or NaN. Where every share is
/// zero all are equal, and the index is 1.
///
/// Jain, Chiu, Hawe, "A Quantitative Measure of Fairness and Discrimination for Resource
/// Allocation in Shared Computer Systems", DEC-TR-301, 1984.
pub fn jain_index<I>(shares: I) -> Option<f64>
where
    I: IntoIterator<Item = f64>,
    I::IntoIter: Clone,
{
    let shares = shares.into_iter();
    let mut largest = 0.0;
    for share in shares.clone() {
        if !share.is_finite() || share < 0.0 {
            return None;
        }
        largest = f64::max(largest, share);
    }
    // The index does not depend on the scale: dividing by the largest keeps the squares in range,
    // and shares that are all zero stand for equal ones.
    let (mut count, mut sum, mut sum_of_squares) = (0.0, 0.0, 0.0);
    for share in shares {
        let scaled = if largest > 0.0 { share / largest } else { 1.0 };
        count += 1.0;
        sum += scaled;
        sum_of_squares += scaled * scaled;
    }
    (count > 0.0).then(|| sum * sum / (count * sum_of_squares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_shares_are_fair_and_one_taker_is_not() {
        assert_eq!(jain_index([3.0; 5]), Some(1.0));
        assert_eq!(jain_index([0.0, 8.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain_index([1.0, 2.0]), Some(0.9));
    }

    #[test]
    fn the_odd_cases_are_defined() {
        assert_eq!(jain_index([]), None);
        assert_eq!(jain_index([0.0, 0.0]), Some(1.0));
        assert_eq!(jain_index([f64::MAX, f64::MAX]), Some(1.0));
        for odd in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(jain_index([1.0, odd]), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn it_lies_between_one_over_n_and_one(
            shares in prop::collection::vec(0.0f64..=f64::MAX, 1..50),
        ) {
            let index = jain_index(shares.iter().copied()).unwrap();
            let lowest = 1.0 / shares.len() as f64;
            prop_assert!((lowest - 1e-12..=1.0 + 1e-12).contains(&index), "{}", index);
        }
    }
}
