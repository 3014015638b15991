//! Forty keys of one topic, with states at mixed rates, over a low-rate path with losses: each is
//! as fresh as in the best static schedule found by a search.

#[path = "common/session.rs"]
mod driven;
#[path = "common/keyed_run.rs"]
mod run;
#[path = "common/wire.rs"]
mod wire;

use std::collections::BTreeMap;

use freshline_core::source::{Fixed, Limits, RateLaw, Tenth};
use freshline_core::state::schedule::HEADERS;
use freshline_core::unit::{BitRate, Span, Time, UpdateRate};
use rand_pcg::Pcg32;
use rand_pcg::rand_core::{Rng, SeedableRng};
use run::{Age, DATAGRAM, Mirror, World, secs};

/// Keys of one kind: how many, the period of their samples in s, and the length of their states.
type Class = (usize, f64, usize);

/// Frames of robots: wheels and arms, a body, a map, and fixed frames.
const CLASSES: [Class; 4] = [(10, 0.02, 72), (10, 0.05, 72), (10, 0.2, 72), (10, 1.0, 90)];
const RATE: f64 = 256e3 / 8.0;
const DELAY: f64 = 0.1;
const LOSS: f64 = 0.02;

fn key_of(class: usize, place: usize) -> Vec<u8> {
    format!("robot/{class}/link_{place}").into_bytes()
}

/// When the first state of a key is sampled: they are spread.
fn phase(place: usize, (count, period, _): Class) -> f64 {
    period * (place as f64 + 0.37) / count as f64
}

/// The mean age of each key in a static schedule: a datagram leaves `rate` times a second with those keys whose
/// own period is over and that have a new state.
fn ages_of_schedule(rate: f64, periods: &[f64], duration: f64) -> Vec<f64> {
    struct Key {
        class: Class,
        period: f64,
        phase: f64,
        due: f64,
        sent: f64,
        age: Age,
    }
    let mut keys = Vec::new();
    for (class, period) in CLASSES.into_iter().zip(periods) {
        keys.extend((0..class.0).map(|place| Key {
            class,
            period: *period,
            phase: phase(place, class),
            due: period * place as f64 / class.0 as f64,
            sent: -1.0,
            age: Age { newest: 0.0, since: 0.0, area: 0.0 },
        }));
    }
    let (mut random, mut busy_until) = (Pcg32::seed_from_u64(1), 0.0_f64);
    for slot in 1..(duration * rate) as u64 {
        let (now, mut bytes, mut carried) = (slot as f64 / rate, HEADERS, Vec::new());
        for key in &mut keys {
            let (_, interval, len) = key.class;
            let sampled = key.phase + ((now - key.phase) / interval).floor() * interval;
            // Kind, length, number, behind and age.
            let frame = len + 9;
            let fits = bytes + frame <= DATAGRAM + 28;
            if key.due <= now && sampled >= 0.0 && sampled > key.sent && fits {
                bytes += frame;
                key.sent = sampled;
                key.due = (key.due + key.period).max(now - key.period);
                carried.push((sampled, &mut key.age));
            }
        }
        if carried.is_empty() {
            continue;
        }
        busy_until = busy_until.max(now) + bytes as f64 / RATE;
        if f64::from(random.next_u32()) >= LOSS * f64::from(u32::MAX) {
            carried.into_iter().for_each(|(at, age)| age.on_arrival(busy_until + DELAY, at));
        }
    }
    let mean = |key: &Key| key.age.area / key.age.since;
    keys.iter().map(mean).collect()
}

/// The schedule with the minimum sum of mean ages, by random search over the periods of the classes
/// and the rate of datagrams; returns its ages.
fn best_static() -> Vec<f64> {
    let mut random = Pcg32::seed_from_u64(1);
    let sum =
        |rate: f64, periods: &[f64]| ages_of_schedule(rate, periods, 20.0).iter().sum::<f64>();
    // The optimum without delays, and as often as there are states.
    let start: Vec<f64> = CLASSES.iter().map(|(_, period, _)| period.max(0.13)).collect();
    let mut best = (sum(40.0, &start), 40.0, start);
    for _ in 0..1_000 {
        let mut factor = || match random.next_u32() % 3 {
            0 => 0.7 + 0.6 * f64::from(random.next_u32()) / f64::from(u32::MAX),
            _ => 1.0,
        };
        let rate = best.1 * factor();
        let periods: Vec<f64> = best.2.iter().map(|period| period * factor()).collect();
        let ages = sum(rate, &periods);
        if ages < best.0 {
            best = (ages, rate, periods);
        }
    }
    let (_, rate, periods) = best;
    println!("best static schedule: {rate:.1} datagrams/s, periods {periods:.3?} s");
    ages_of_schedule(rate, &periods, 120.0)
}

/// Runs the path with this law within `limits`; returns the mean age of each key in s. No newest
/// state is missing at the end.
fn ages_by(law: Box<dyn RateLaw>, limits: Limits) -> BTreeMap<Vec<u8>, f64> {
    let mut world = World::with_law(5, law, limits, 64);
    world.rate = Some(BitRate::from_bps(256_000));
    world.delay = Span::from_secs_f64(DELAY);
    world.loss = (LOSS * f64::from(u32::MAX)) as u32;
    let mut samples: Vec<(f64, Class, Vec<u8>)> = Vec::new();
    for (number, class) in CLASSES.into_iter().enumerate() {
        let key = |place| (phase(place, class), class, key_of(number, place));
        samples.extend((0..class.0).map(key));
    }
    let (begin, end) = (20.0, 140.0);
    let mut newest = Mirror::new();
    loop {
        let next = samples.iter_mut().min_by(|one, other| one.0.total_cmp(&other.0));
        let (at, (_, period, len), key) = next.expect("there are some");
        let (due, key, len) = (*at, key.clone(), *len);
        *at += *period;
        if due >= end {
            break;
        }
        if due >= begin && world.ages.is_empty() {
            let known =
                |key: &Vec<u8>| (key.clone(), Age { newest: begin, since: begin, area: 0.0 });
            world.ages = world.mirror.keys().map(known).collect();
            assert_eq!(world.ages.len(), 40, "each has arrived");
        }
        world.run((Time::ZERO + Span::from_secs_f64(due)).since(world.now));
        let number = world.put(&key, len).expect("there is room");
        newest.insert(key, number);
        world.send();
    }
    let now = secs(world.now);
    let ours = |(key, age): (&Vec<u8>, &Age)| {
        let mut age = *age;
        age.on_arrival(now, age.newest);
        (key.clone(), age.area / (now - begin))
    };
    let ours = world.ages.iter().map(ours).collect();
    world.run(Span::from_secs(3));
    assert_eq!(world.held(), newest, "no newest state is missing");
    ours
}

/// Prints the ages and those of the best schedule; returns the ratio of their sums, and the maximum
/// ratio of a key.
fn compare(ours: &BTreeMap<Vec<u8>, f64>, best: &[f64]) -> (f64, f64) {
    let mut best = best.iter();
    let (mut sums, mut worst) = ((0.0, 0.0), 0.0_f64);
    for (number, class) in CLASSES.into_iter().enumerate() {
        let ages: Vec<f64> = best.by_ref().take(class.0).copied().collect();
        let best = ages.iter().sum::<f64>() / ages.len() as f64;
        let ages: Vec<f64> = (0..class.0).map(|place| ours[&key_of(number, place)]).collect();
        println!("a state each {} s: best static {best:.3} s, ours {ages:.3?} s", class.1);
        for age in ages {
            worst = worst.max(age / best);
            sums = (sums.0 + age, sums.1 + best);
        }
    }
    println!("sums: ours {:.2} s, best static {:.2} s; at worst {worst:.3} of it", sums.0, sums.1);
    (sums.0 / sums.1, worst)
}

#[test]
fn forty_keys_are_as_fresh_as_in_the_best_static_schedule() {
    let best = best_static();
    // A limit just below the path's capacity avoids a standing queue.
    let limit = BitRate::from_bps(250_000);
    let limits = Limits { max_bandwidth: Some(limit), ..Limits::NONE };
    let fixed = Box::new(Fixed::new(UpdateRate::saturating(1_000.0)));
    println!("within --max-bandwidth {limit}:");
    let (sum, worst) = compare(&ages_by(fixed, limits), &best);
    assert!(sum <= 1.05 && worst <= 1.1, "{sum}, {worst}");
    // One that has to find the rate leaves some of it free.
    println!("by tenth:");
    let (sum, _) = compare(&ages_by(Box::new(Tenth::new(Default::default())), Limits::NONE), &best);
    assert!(sum <= 1.15, "{sum}");
}
