//! Mean age against the mean number of own updates in the queue, in closed form: the tables of
//! `docs/fresher.md`.

use freshline_core::age::theory::Queues;
use freshline_core::unit::UpdateRate;

/// A service takes 1/μ on average, which is the unit of all ages here.
const SERVICE: f64 = 1.0;

/// Mean numbers of queued updates that a law may aim at.
const WAITING: [f64; 7] = [0.02, 0.05, 0.1, 0.14, 0.25, 0.5, 1.0];

fn main() {
    let service = UpdateRate::saturating(SERVICE);
    let queues = [
        ("M/M/1", Queues::Mm1 { service }),
        ("M/D/1", Queues::Md1 { service }),
        ("D/M/1", Queues::Dm1 { service }),
        ("M/M/1, M/M/1", Queues::TandemMm1 { first: service, second: service }),
    ];
    println!("one source: mean age relative to the minimum, by queued updates");
    head("queue");
    for (name, queues) in queues {
        let age = |rate| queues.mean_age(rate).expect("below capacity").as_secs_f64();
        let best = queues.optimal_rate();
        let waiting = queues.mean_waiting(best).expect("below capacity");
        row(name, waiting, |waiting| age(queues.rate_with_waiting(waiting)) / age(best));
    }
    println!("\nidentical periodic sources at one M/D/1 queue, by queued updates per source");
    head("sources");
    for sources in [1, 2, 6, 12, 24, 48] {
        let crowd = Crowd { queue: Queues::Md1 { service }, sources: f64::from(sources) };
        let best = crowd.best_waiting();
        let least = crowd.age(best);
        row(&sources.to_string(), best, |waiting| crowd.age(waiting) / least);
    }
}

fn head(of: &str) {
    print!("{of:14}{:>10}", "best");
    WAITING.iter().for_each(|waiting| print!("{waiting:>8}"));
    println!();
}

fn row(name: &str, best: f64, over: impl Fn(f64) -> f64) {
    print!("{name:14}{best:10.3}");
    WAITING.iter().for_each(|waiting| print!("{:8.3}", over(*waiting)));
    println!();
}

/// Identical periodic sources: the arrivals of many are close to a Poisson process.
struct Crowd {
    queue: Queues,
    sources: f64,
}

impl Crowd {
    /// The mean age of each source with `waiting` queued updates of its own: half a period, the
    /// queueing delay and the service time.
    fn age(&self, waiting: f64) -> f64 {
        let all = self.queue.rate_with_waiting(waiting * self.sources).per_second();
        let each = all / self.sources;
        0.5 / each + waiting / each + 1.0 / SERVICE
    }

    /// The number of queued updates with the minimum mean age, by a search in small steps.
    fn best_waiting(&self) -> f64 {
        let tried = (1..4_000).map(|step| f64::from(step) * 0.0005);
        tried.min_by(|a, b| self.age(*a).total_cmp(&self.age(*b))).unwrap_or(f64::NAN)
    }
}
