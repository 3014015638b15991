//! Every checker can fail: each planted fault is found by the checker that it is meant for.
//!
//! `cargo test -p freshline-lab --features planted-faults`

use freshline_lab::torture::{Planted, torture_planted};

#[test]
fn every_planted_fault_is_found_by_the_checker_of_its_property() {
    for (fault, property) in Planted::ALL {
        let failures = torture_planted(0..24, fault).failures;
        let of_property = failures.iter().filter(|failed| failed.breach.property == property);
        // Some faults break another property as well, at times before their own.
        let (found, all) = (of_property.count(), failures.len());
        println!("{fault:?}: {found} of {all}");
        assert!(
            found > 0 && found >= all * 3 / 4,
            "{fault:?}: {found} of {all}, {:?}",
            failures.first()
        );
    }
}
