//! Finds the value of a key that minimises a metric.

/// The minimum of the least-squares parabola through the lowest point and its two neighbours on
/// either side; the lowest point itself if the parabola has no minimum or has it outside.
pub(super) fn lowest(points: &[(f64, f64)]) -> f64 {
    let Some(least) = (0..points.len()).min_by(|&a, &b| points[a].1.total_cmp(&points[b].1)) else {
        return f64::NAN;
    };
    let near = &points[least.saturating_sub(2)..(least + 3).min(points.len())];
    let (centre, _) = points[least];
    let [first, .., last] = near else { return centre };
    // Normal equations for y = c₀ + c₁·x + c₂·x², x from the centre, by Cramer's rule.
    let mut power = [0.0; 5];
    let mut moment = [0.0; 3];
    for (x, y) in near.iter().map(|(x, y)| (x - centre, y)) {
        for (exponent, sum) in power.iter_mut().enumerate() {
            *sum += x.powi(exponent as i32);
        }
        for (exponent, sum) in moment.iter_mut().enumerate() {
            *sum += y * x.powi(exponent as i32);
        }
    }
    let [s0, s1, s2, s3, s4] = power;
    let [m0, m1, m2] = moment;
    let linear = s0 * (m1 * s4 - m2 * s3) - m0 * (s1 * s4 - s2 * s3) + s2 * (s1 * m2 - s2 * m1);
    let square = s0 * (s2 * m2 - s3 * m1) - s1 * (s1 * m2 - s2 * m1) + m0 * (s1 * s3 - s2 * s2);
    let bottom = centre - linear / (2.0 * square);
    let is_bowl = square
        * (s0 * (s2 * s4 - s3 * s3) - s1 * (s1 * s4 - s2 * s3) + s2 * (s1 * s3 - s2 * s2))
        > 0.0;
    if is_bowl && (first.0..=last.0).contains(&bottom) { bottom } else { centre }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_point_of_a_bowl_is_found_between_its_values() {
        let bowl = |lowest: f64| -> Vec<(f64, f64)> {
            (0..10)
                .map(|x| f64::from(x) / 10.0)
                .map(|x| (x, 2.0 + 3.0 * (x - lowest).powi(2)))
                .collect()
        };
        for at in [0.23, 0.5, 0.61] {
            assert!((lowest(&bowl(at)) - at).abs() < 1e-9, "{at}: {}", lowest(&bowl(at)));
        }
        assert_eq!(lowest(&[(1.0, 1.0), (2.0, 2.0), (3.0, 4.0)]), 1.0, "the end of a slope");
        assert_eq!(lowest(&[(1.0, 1.0)]), 1.0);
    }
}
