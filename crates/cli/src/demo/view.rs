//! The demonstration while it runs: drawn on a terminal, a line a second elsewhere, or unseen.

use std::io::{self, IsTerminal, Write};
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

/// Between two looks: smooth to the eye, next to nothing for the processor.
const PAUSE: Duration = Duration::from_millis(100);

/// Somewhere to look at the lanes.
pub(super) enum View {
    Unseen,
    Lines {
        /// Full seconds that were shown.
        shown: u64,
    },
    Screen(DefaultTerminal),
}

impl View {
    /// Draws where both ends are a terminal, prints lines elsewhere, and nothing if `quiet`.
    pub(super) fn new(quiet: bool) -> io::Result<Self> {
        if quiet {
            return Ok(Self::Unseen);
        }
        if io::stdout().is_terminal() && io::stdin().is_terminal() {
            return Ok(Self::Screen(ratatui::try_init()?));
        }
        Ok(Self::Lines { shown: 0 })
    }

    /// Shows the lanes, and takes a moment for it. A user who has enough pulls `stop`.
    pub(super) fn show(&mut self, lanes: &[Lane], elapsed: Span, stop: &Stop) {
        let now = Clock::new().now();
        let glances = || lanes.iter().map(|lane| lane.glance(now)).collect::<Vec<_>>();
        match self {
            Self::Unseen => thread::sleep(PAUSE),
            Self::Lines { shown } => {
                let seconds = elapsed.as_nanos() / Span::from_secs(1).as_nanos();
                if seconds > *shown {
                    *shown = seconds;
                    // Who has stopped reading will miss the table too, and hears of it there.
                    let _ = print_line(seconds, &glances());
                }
                thread::sleep(PAUSE);
            }
            Self::Screen(terminal) => {
                // A terminal that cannot be drawn on or read from has gone: nobody looks on.
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

fn print_line(seconds: u64, glances: &[Glance]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{seconds:>4} s")?;
    for glance in glances {
        write!(out, "  {} {} ({})", glance.law, ms(glance.age_mean), per_second(glance.rate))?;
    }
    writeln!(out)
}

/// Waits for the next picture's turn; whether q or Ctrl-C was pressed meanwhile.
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
        " age at the monitor, the last {} s · {:.0} s so far · q ends",
        HISTORY.as_secs_f64(),
        elapsed.as_secs_f64()
    );
    frame.render_widget(Line::from(title).bold(), head);
    let pairs = glances.chunks(2);
    let rows = Layout::vertical(vec![Constraint::Fill(1); pairs.len()]).split(body);
    for (pair, row) in pairs.zip(rows.iter()) {
        let cells = Layout::horizontal(vec![Constraint::Fill(1); pair.len()]).split(*row);
        for (glance, cell) in pair.iter().zip(cells.iter()) {
            draw_lane(frame, glance, *cell);
        }
    }
}

fn draw_lane(frame: &mut Frame<'_>, glance: &Glance, area: Rect) {
    let facts = format!(
        " {}   backlog {}   age {}   mean {} ",
        per_second(glance.rate),
        glance.backlog,
        ms(glance.age),
        ms(glance.age_mean)
    );
    let title = Line::from(vec![format!(" {}", glance.law).bold(), facts.into()]);
    let highest = glance.sawtooth.iter().map(|(_, age)| *age).fold(0.0, f64::max);
    let top = (highest / 20.0).ceil().max(1.0) * 20.0;
    let sawtooth = Dataset::default()
        .marker(Marker::Braille)
        .graph_type(GraphType::Line)
        .style(Style::new().fg(Color::Cyan))
        .data(&glance.sawtooth);
    let chart = Chart::new(vec![sawtooth])
        .block(Block::bordered().title(title))
        .x_axis(Axis::default().bounds([-HISTORY.as_secs_f64(), 0.0]))
        .y_axis(
            Axis::default().bounds([0.0, top]).labels(["0".to_owned(), format!("{top:.0} ms")]),
        );
    frame.render_widget(chart, area);
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

    #[test]
    fn the_screen_shows_each_law_with_its_numbers() {
        let glance = |law| Glance {
            law,
            rate: Some(UpdateRate::saturating(50.0)),
            backlog: 3,
            age: Some(Span::from_millis(31)),
            age_mean: None,
            sawtooth: vec![(-0.5, 10.0), (-0.1, 410.0)],
        };
        let glances = ["acp+d", "acp+", "tenth", "lazy", "fixed-slow", "fixed-fast"].map(glance);
        let mut terminal = Terminal::new(TestBackend::new(100, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &glances, Span::from_secs(7))).unwrap();
        let screen = terminal.backend().to_string();
        for part in ["7 s so far", "acp+d 50/s   backlog 3   age 31.0 ms   mean -", "420 ms"] {
            assert!(screen.contains(part), "{part} in\n{screen}");
        }
        assert!(glances.iter().all(|glance| screen.contains(glance.law)), "{screen}");
        // A terminal of any size is drawn on without a panic.
        for size in [(1, 1), (10, 3), (300, 5)] {
            let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
            terminal.draw(|frame| draw(frame, &glances, Span::ZERO)).unwrap();
        }
    }
}
