//! One run, recorded while it runs.
//!
//! Watching has no effect on the run, and without watchers it has no cost: see
//! [`World::run_watched`](crate::world::World::run_watched).

use std::io::{self, Write};

use freshline_core::unit::Time;

use crate::capture::Captures;
use crate::scenario::{Built, Scenario};
use crate::series::{Series, Table};

/// Runs a world from time zero to the end of its scenario, and returns the captures and the world.
///
/// # Errors
/// Errors of the outputs.
pub fn watch<C: Write, T: Table>(
    scenario: &Scenario,
    mut built: Built,
    mut captures: Captures<C>,
    mut series: Option<Series<T>>,
) -> io::Result<(Vec<C>, Built)> {
    let end = Time::ZERO + scenario.duration;
    let world = &mut built.world;
    while world.now() < end {
        let next = series.as_ref().map_or(end, Series::next_at).min(end);
        world.run_watched(next, |left| captures.on_left(left));
        if let Some(series) = &mut series {
            series.on_interval(world)?;
        }
    }
    series.map(Series::finish).transpose()?;
    Ok((captures.finish()?, built))
}
