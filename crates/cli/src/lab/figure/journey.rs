//! The figure of a journey: a panel per column, a mark with its interval per row.

use freshline_lab::journey::Journey;
use freshline_report::{Axis, Mark, Panel, Row, RowSeries, Rows, Scale, capitalised};

/// A panel per column, all from zero.
pub(in crate::lab) fn journey_panels(journey: &Journey) -> Vec<Panel> {
    let panel = |(column, heading): (usize, &freshline_lab::journey::Heading)| {
        let better = if heading.is_lower_better { "lower is better" } else { "higher is better" };
        let rows = journey.rows.iter().map(|row| {
            let value = row.values[column];
            let mark = Mark { series: 0, value: Some(value.value), half: value.ci95, band: None };
            Row { label: row.name.clone(), is_broken: false, marks: vec![mark] }
        });
        let name = capitalised(&heading.name);
        Panel::Rows(Rows {
            title: format!("{name}: {better}"),
            x: Axis { scale: Scale::Linear, ..Axis::new(name, heading.unit) },
            series: vec![RowSeries::measured("mean")],
            rows: rows.collect(),
        })
    };
    journey.columns.iter().enumerate().map(panel).collect()
}
