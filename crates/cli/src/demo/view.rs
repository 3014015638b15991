//! The view of the running demonstration: drawn on a terminal, one line per second on standard
//! error otherwise, or hidden.
//!
//! All panels share one logarithmic scale, because the age with the fast fixed rate is many times
//! that of the others.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use freshline_core::unit::{Span, UpdateRate};
use freshline_net::clock::Clock;
use freshline_net::stop::Stop;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType};
use ratatui::{DefaultTerminal, Frame};

use super::lane::{Glance, HISTORY, Lane};

/// The time between two frames: smooth to the eye, at little processor load.
const PAUSE: Duration = Duration::from_millis(100);

/// Where the lanes are shown.
pub(super) enum View {
    Unseen,
    Lines {
        /// Full seconds that were shown.
        shown: u64,
    },
    Screen(DefaultTerminal),
}

impl View {
    /// Draws if both ends are a terminal; otherwise prints lines on standard error, or nothing if
    /// `quiet`.
    pub(super) fn new(quiet: bool) -> io::Result<Self> {
        if quiet {
            return Ok(Self::Unseen);
        }
        if io::stdout().is_terminal() && io::stdin().is_terminal() {
            return Ok(Self::Screen(ratatui::try_init()?));
        }
        Ok(Self::Lines { shown: 0 })
    }

    /// Shows the lanes for one frame. If the user quits, it sets `stop`.
    pub(super) fn show(&mut self, lanes: &[Lane], elapsed: Span, stop: &Stop) {
        let now = Clock::new().now();
        let glances = || lanes.iter().map(|lane| lane.glance(now)).collect::<Vec<_>>();
        match self {
            Self::Unseen => thread::sleep(PAUSE),
            Self::Lines { shown } => {
                let seconds = elapsed.as_nanos() / Span::from_secs(1).as_nanos();
                if seconds > *shown {
                    let is_first = *shown == 0;
                    print_line(seconds, &glances(), is_first);
                    *shown = seconds;
                }
                thread::sleep(PAUSE);
            }
            Self::Screen(terminal) => {
                // A terminal that can neither be drawn on nor read from is gone, so the run ends.
                let drawn = terminal.draw(|frame| draw(frame, &glances(), elapsed));
                if drawn.is_err() || wants_to_quit().unwrap_or(true) {
                    stop.stop();
                }
            }
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if matches!(self, Self::Screen(_)) {
            ratatui::restore();
        }
    }
}

/// The mean ages so far in ms, with the names of the laws above the first line.
fn print_line(seconds: u64, glances: &[Glance], is_first: bool) {
    if is_first {
        let names: String = glances.iter().map(|glance| format!("{:>11}", glance.law)).collect();
        say!("mean age so far, in ms");
        say!("{:>7}{names}", "time");
    }
    let number = |age: Span| format!("{:.1}", age.as_millis_f64());
    let ages = glances.iter().map(|glance| glance.age_mean.map_or("-".to_owned(), number));
    let ages: String = ages.map(|age| format!("{age:>11}")).collect();
    say!("{seconds:>5} s{ages}");
}

/// Waits until the next frame; returns whether q or Ctrl-C was pressed.
fn wants_to_quit() -> io::Result<bool> {
    if !event::poll(PAUSE)? {
        return Ok(false);
    }
    let Event::Key(key) = event::read()? else { return Ok(false) };
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    Ok(interrupt || key.code == KeyCode::Char('q'))
}

fn draw(frame: &mut Frame<'_>, glances: &[Glance], elapsed: Span) {
    let [head, body] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(frame.area());
    let title = format!(
        " age at the monitor, last {} s, one logarithmic scale · {:.0} s · q ends",
        HISTORY.as_secs_f64(),
        elapsed.as_secs_f64()
    );
    frame.render_widget(Line::from(title).bold(), head);
    let scale = Scale::of(glances);
    let pairs = glances.chunks(2);
    let rows = Layout::vertical(vec![Constraint::Fill(1); pairs.len()]).split(body);
    for (pair, row) in pairs.zip(rows.iter()) {
        let cells = Layout::horizontal(vec![Constraint::Fill(1); pair.len()]).split(*row);
        for (glance, cell) in pair.iter().zip(cells.iter()) {
            draw_lane(frame, glance, scale, *cell);
        }
    }
}

/// The scale of all panels: minimum and maximum age in ms.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scale {
    from: f64,
    to: f64,
}

impl Scale {
    /// From the lowest to the highest drawn age, rounded to the next 1, 2 or 5 of a power of ten.
    fn of(glances: &[Glance]) -> Self {
        let ages = || glances.iter().flat_map(|glance| &glance.sawtooth).map(|(_, age)| *age);
        let ages = || ages().filter(|age| *age > 0.0);
        let (min, max) = (ages().fold(f64::INFINITY, f64::min), ages().fold(0.0, f64::max));
        if max == 0.0 {
            return Self { from: 10.0, to: 100.0 };
        }
        let power = |age: f64| 10f64.powf(age.log10().floor());
        let below = [5.0, 2.0, 1.0].map(|part| part * power(min)).into_iter();
        let above = [1.0, 2.0, 5.0, 10.0].map(|part| part * power(max)).into_iter();
        Self {
            from: below.into_iter().find(|it| *it <= min).unwrap_or(power(min)),
            to: above.into_iter().find(|it| *it > max).unwrap_or(10.0 * power(max)),
        }
    }

    fn place(self, age: f64) -> f64 {
        age.max(self.from).log10()
    }

    /// The labels of the lower end, the middle and the upper end.
    fn labels(self) -> [String; 3] {
        let middle = (self.from * self.to).sqrt();
        // Two digits: the resolution of a line of text.
        let digit = 10f64.powf(middle.log10().floor() - 1.0);
        let middle = (middle / digit).round() * digit;
        [self.from, middle, self.to].map(|age| format!("{age:.0} ms"))
    }
}

fn draw_lane(frame: &mut Frame<'_>, glance: &Glance, scale: Scale, area: Rect) {
    // Both lines fit into half of 80 columns.
    let title = Line::from(vec![
        format!(" {}", glance.law).bold(),
        format!("  {}  mean {} ", per_second(glance.rate), ms(glance.age_mean)).into(),
    ]);
    let now = format!(" now {}, backlog {} ", ms(glance.age), glance.backlog);
    let drawn = on_scale(&glance.sawtooth, scale);
    let sawtooth = Dataset::default()
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
        .style(Style::new().fg(Color::Cyan))
        .data(&drawn);
    let ends = [scale.place(scale.from), scale.place(scale.to)];
    let chart = Chart::new(vec![sawtooth])
        .block(Block::bordered().title(title).title_bottom(now))
        .x_axis(Axis::default().bounds([-HISTORY.as_secs_f64(), 0.0]))
        .y_axis(Axis::default().bounds(ends).labels(scale.labels()));
    frame.render_widget(chart, area);
}

/// A sawtooth on the scale, with an extra point in the middle of each rise, which is curved there.
fn on_scale(sawtooth: &[(f64, f64)], scale: Scale) -> Vec<(f64, f64)> {
    let middles = sawtooth.windows(2).map(|ends| {
        let [(from, low), (to, high)] = [ends[0], ends[1]];
        Some(((from + to) / 2.0, (low + high) / 2.0)).filter(|_| to > from)
    });
    let middles = middles.chain([None]);
    let points = sawtooth.iter().zip(middles).flat_map(|(point, middle)| [Some(*point), middle]);
    points.flatten().map(|(at, age)| (at, scale.place(age))).collect()
}

fn ms(span: Option<Span>) -> String {
    span.map_or_else(|| "-".to_owned(), |span| format!("{:.1} ms", span.as_millis_f64()))
}

fn per_second(rate: Option<UpdateRate>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{:.0}/s", rate.per_second()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn glance(law: &'static str, highest: f64) -> Glance {
        Glance {
            law,
            rate: Some(UpdateRate::saturating(228.0)),
            backlog: 12,
            age: Some(Span::from_millis(1031)),
            age_mean: Some(Span::from_millis(1234)),
            sawtooth: vec![(-0.5, 25.0), (-0.1, highest), (-0.1, 30.0), (0.0, 31.0)],
        }
    }

    fn screen(size: (u16, u16), glances: &[Glance]) -> String {
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        terminal.draw(|frame| draw(frame, glances, Span::from_secs(7))).unwrap();
        terminal.backend().to_string()
    }

    const LAWS: [&str; 6] = ["acp+d", "acp+", "tenth", "lazy", "fixed-slow", "fixed-fast"];

    #[test]
    fn all_numbers_fit_into_80_columns_and_24_lines_with_one_scale() {
        let mut glances = LAWS.map(|law| glance(law, 40.0));
        glances[5] = glance("fixed-fast", 410.0);
        let screen = screen((80, 24), &glances);
        for law in LAWS {
            let facts = format!("{law}  228/s  mean 1234.0 ms ");
            assert!(screen.contains(&facts), "{facts} in\n{screen}");
        }
        for (part, count) in [("now 1031.0 ms, backlog 12", 6), ("500 ms", 6), ("20 ms", 6)] {
            assert_eq!(screen.matches(part).count(), count, "{part} in\n{screen}");
        }
        assert!(screen.contains("7 s · q ends"), "{screen}");
    }

    #[test]
    fn a_terminal_of_any_size_is_drawn_on_and_lanes_without_updates_too() {
        let silent = |law| Glance { sawtooth: Vec::new(), ..glance(law, 0.0) };
        for size in [(1, 1), (10, 3), (300, 5), (80, 24)] {
            screen(size, &LAWS.map(|law| glance(law, 40.0)));
            screen(size, &LAWS.map(silent));
        }
    }

    #[test]
    fn rises_are_curved_and_drops_are_not() {
        let scale = Scale { from: 10.0, to: 100.0 };
        let drawn = on_scale(&[(-1.0, 10.0), (0.0, 90.0), (0.0, 10.0)], scale);
        let expected = [(-1.0, 1.0), (-0.5, 50f64.log10()), (0.0, 90f64.log10()), (0.0, 1.0)];
        assert_eq!(drawn, expected);
    }
}
