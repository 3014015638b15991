//! Reports and figures of real runs: valid HTML that loads nothing, and drawings with units and
//! legends.

#[path = "common/browser.rs"]
mod browser;
#[path = "common/lines.rs"]
mod lines;
#[path = "common/monitor.rs"]
mod monitor;
#[path = "common/process.rs"]
mod process;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use lines::lines;
use monitor::{PATIENCE, freshline, monitor};

/// A title that would break a page that does not escape it, and two flows.
const SCENARIO: &str = r#"
title = "A <b>robot</b> & \"its\" log"
duration = "5s"
warm_up = "1s"
runs = 3

[[link]]
name = "uplink"
forward = { rate = "4mbit", delay = "5ms", queue = "20p" }

[[flow]]
name = "robot"
path = ["uplink"]
updates = { law = "acp+d", payload = "500B" }

[[flow]]
name = "download"
path = ["uplink"]
tcp = { control = "cubic" }
"#;

fn run(words: &[&str]) -> Output {
    let done = freshline(words).output().unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{words:?}: {errors}");
    done
}

fn refused(words: &[&str]) -> String {
    let done = freshline(words).output().unwrap();
    assert_eq!(done.status.code(), Some(2), "{words:?}");
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    text.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ")
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

/// Checks a report, and returns its text.
fn checked(page: &Path) -> String {
    let html = fs::read_to_string(page).unwrap();
    assert_has(&html, &["default-src 'none'", "<h1>", "<caption>", "<th scope=\"col\"", "Command"]);
    assert_has(&html, &["Version", "Date"]);
    for loaded in ["<script", "src=", "href=", "url(", "@import"] {
        assert!(!html.contains(loaded), "{loaded} in {}", page.display());
    }
    assert!(!html.contains("NaN"), "{}", page.display());
    browser::is_valid(page);
    browser::opened(page);
    html
}

struct Bench {
    folder: PathBuf,
    scenario: String,
}

impl Bench {
    fn new(name: &str, more: &str) -> Self {
        let folder = browser::folder().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let scenario = folder.join("s.toml");
        fs::write(&scenario, format!("{SCENARIO}{more}")).unwrap();
        Self { folder, scenario: scenario.display().to_string() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap()
    }

    fn checked(&self, name: &str) -> String {
        checked(&self.folder.join(name))
    }
}

#[test]
fn a_run_has_a_report_with_metrics_time_series_and_distributions() {
    let bench = Bench::new("run", "");
    let (html, figures) = (bench.path("run.html"), bench.path("figures"));
    run(&["lab", "run", &bench.scenario, "--html", &html, "--figures", &figures]);
    let page = bench.checked("run.html");
    assert_has(
        &page,
        &[
            "A &lt;b&gt;robot&lt;/b&gt; &amp; &quot;its&quot; log",
            "The lowest mean age is ",
            "<dt>Seed</dt><dd>1</dd>",
            "Distribution of the age (CDF)",
            "Congestion window over time",
        ],
    );
    assert_has(&page, &["95th percentile of the age", "Goodput (Mbit/s)", "Fraction of the time"]);
    let metrics = bench.read("figures/s.svg");
    assert_has(
        &metrics,
        &["Mean age\n", "Age (ms", "robot\n", "download\n", "Bars are 95 % intervals"],
    );
    assert_has(
        &metrics,
        &["A &lt;b&gt;robot&lt;/b&gt; &amp; &quot;its&quot; log\n", "<title>robot"],
    );
    assert_has(
        &bench.read("figures/s-time.svg"),
        &["Time (s)", "Queue length (packets)", "uplink\n"],
    );
    assert_has(&bench.read("figures/s-cdf.svg"), &["Fraction of the time", "Age (ms", "robot\n"]);
}

#[test]
fn a_sweep_is_drawn_as_curves_in_every_format_and_on_the_scale_that_was_asked_for() {
    let bench = Bench::new(
        "sweep",
        "[sweep]\n\"link.uplink.forward.rate\" = ['1mbit', '2mbit', '4mbit']\n",
    );
    let html = bench.path("sweep.html");
    let short = ["lab", "run", &bench.scenario, "--set", "duration=2s", "--runs", "2"];
    for format in ["svg", "png", "pdf"] {
        let figures = bench.path("figures");
        let flags =
            ["--figures", &figures, "--format", format, "--x-scale", "log", "--html", &html];
        run(&[&short[..], &flags].concat());
    }
    assert_has(
        &bench.checked("sweep.html"),
        &["Metrics, rate of “uplink” 2mbit", "Rate of “uplink”"],
    );
    assert_has(
        &bench.read("figures/s.svg"),
        &["Rate of “uplink” (Mbit/s, logarithmic)", "robot\n"],
    );
    let starts = |name: &str, start: &[u8]| {
        let bytes = fs::read(bench.folder.join(name)).unwrap();
        assert!(bytes.starts_with(start) && bytes.len() > 1_000, "{name}");
    };
    starts("figures/s.png", b"\x89PNG");
    starts("figures/s.pdf", b"%PDF");
    let figure = bench.path("age.pdf");
    run(&[&short[..], &["--figure", &figure, "--plot", "age_mean"]].concat());
    starts("age.pdf", b"%PDF");
    let unknown = bench.path("age.gif");
    let refused = refused(&[&short[..], &["--figure", &unknown, "--plot", "age_mean"]].concat());
    assert_has(&refused, &["age.gif", ".svg, .png or .pdf"]);
}

const REPRODUCTION: &str = r#"
[reproduce]
of = "Shreedhar-et-al Figure 9"
[[reproduce.row]]
what = "6 robots: age <as printed>"
set = { "flow.robot.count" = 6 }
metric = "age_mean"
of = "robot"
expected = 0.05
tolerance = 0.5
[[reproduce.row]]
what = "1 robot: age <as printed>"
set = { "flow.robot.count" = 1 }
metric = "age_mean"
of = "robot"
expected = 0.03
tolerance = 10.0
[[reproduce.row]]
what = "3 robots: age <as printed>"
set = { "flow.robot.count" = 3 }
metric = "age_mean"
of = "robot"
[[reproduce.row]]
id = "goodput"
what = "goodput of the log"
metric = "goodput"
of = "download"
at_least = 1e9
[[reproduce.trend]]
what = "one is in order"
rising = ["goodput"]
"#;

#[test]
fn a_reproduction_has_curves_beside_the_papers_points_and_no_axis_for_two_quantities() {
    let bench = Bench::new("reproduce", REPRODUCTION);
    let (html, figures) = (bench.path("reproduce.html"), bench.path("figures"));
    let short = ["--set", "duration=2s", "--runs", "2"];
    run(&[
        &["lab", "reproduce", &bench.scenario, "--html", &html, "--figures", &figures],
        &short[..],
    ]
    .concat());
    let page = bench.checked("reproduce.html");
    assert_has(&page, &["6 robots: age &lt;as printed&gt;", "Orders among numbers", "broken"]);
    let svg = bench.read("figures/s.svg");
    assert_has(
        &svg,
        &[
            "Number of flows “robot”",
            "Age (ms",
            "lab\n",
            "paper\n",
            "Goodput (Gbit/s",
            "goodput of the log (broken)",
            "Orders among numbers: ",
        ],
    );
    assert!(
        !svg.contains("Shreedhar-et-al") && svg.contains("Shreedhar, Kaul, Yates, Figure 9"),
        "papers go by name: {svg}"
    );
}

#[test]
fn a_journey_has_a_report() {
    let bench = Bench::new("journey", "");
    let (html, figures) = (bench.path("journey.html"), bench.path("figures"));
    let short = ["--set", "duration=4s", "--set", "warm_up=1s", "--runs", "2"];
    let journey = ["lab", "journey", "journey/home", "--html", &html, "--figures", &figures];
    run(&[&journey[..], &short].concat());
    assert_has(
        &bench.checked("journey.html"),
        &["journey/home", "is better", "up to 5 % worse holds"],
    );
    assert_has(&bench.read("figures/home.svg"), &["(ms", "is better"]);
}

#[test]
fn a_probe_has_a_report_with_the_age_over_the_rate() {
    let bench = Bench::new("probe", "");
    let (_monitor, _states, url) = monitor(&[]);
    let html = bench.path("probe.html");
    let rates = ["probe", &url, "--rates", "20/s,80/s,200/s", "--refine", "0", "--html", &html];
    let times = ["--duration-per-rate", "0.4s", "--duration", "0.6s", "--rounds", "2"];
    run(&[&rates[..], &times].concat());
    let page = bench.checked("probe.html");
    assert_has(
        &page,
        &["Update rate (1/s, logarithmic)", "fixed rates\n", "acp+d", "has the lowest mean age"],
    );
}

#[test]
fn captures_and_emulated_paths_have_reports() {
    let bench = Bench::new("paths", "");
    let (pcap, age) = (bench.path("up.pcap"), bench.path("age.html"));
    let captures = [format!("uplink={pcap}"), format!("uplink/reverse={pcap}")];
    let captures = ["--pcap", &captures[0], "--pcap", &captures[1]];
    run(&[&["lab", "run", &bench.scenario, "--runs", "1"], &captures[..]].concat());
    run(&["age", &pcap, "--html", &age]);
    assert_has(
        &bench.checked("age.html"),
        &["Age in the capture", "95th percentile", "packets in ", "Age (ms"],
    );
    let (_monitor, _states, url) = monitor(&[]);
    let html = bench.path("emulate.html");
    let hops = ["--hop", "rate=2mbit,delay=20ms", "--reverse-hop", "delay=20ms", "--seed", "7"];
    let to = url.strip_prefix("udp://").unwrap();
    let emulate = ["emulate", "udp", "--listen", "127.0.0.1:0", "--to", to];
    let words = [&emulate[..], &hops, &["--duration", "3s", "--html", &html]].concat();
    let mut child = freshline(&words).spawn().unwrap();
    let said = lines(child.stderr.take().unwrap());
    let line = said.recv_timeout(PATIENCE).unwrap();
    let near = format!("udp://{}", line.split(" -> ").next().unwrap());
    run(&[
        "source",
        &near,
        "--size",
        "900",
        "--law",
        "fixed",
        "--rate",
        "200/s",
        "--duration",
        "1s",
    ]);
    assert!(child.wait().unwrap().success());
    let page = bench.checked("emulate.html");
    assert_has(
        &page,
        &["<dt>Seed</dt><dd>7</dd>", "forward 1", "reverse 1", "rate=2mbit", "Sojourn time (ms"],
    );
}

#[test]
fn saved_runs_are_compared_as_text_and_as_a_page() {
    let bench = Bench::new("compare", "");
    for (name, rate) in [("slow", "2mbit"), ("wide", "8mbit")] {
        let file = bench.path(&format!("runs/{name}.json"));
        let rate = format!("link.uplink.forward.rate={rate}");
        run(&["lab", "run", &bench.scenario, "--set", &rate, "--json-file", &file]);
    }
    let (runs, html) = (bench.path("runs"), bench.path("compare.html"));
    let done = run(&["report", &runs, "--baseline", "wide", "--html", &html]);
    let text = String::from_utf8(done.stdout).unwrap();
    assert_has(
        &text,
        &["compared with wide: 3 runs of ", "run           slow: ", "Mean age", "higher"],
    );
    assert!(text.contains("Goodput") && text.contains("lower"), "{text}");
    let page = bench.checked("compare.html");
    assert_has(&page, &["slow against wide", "Comparison of wide, slow", "Difference", "<svg"]);
    let one = run(&["report", &runs, "--metric", "goodput"]);
    assert!(!String::from_utf8_lossy(&one.stdout).contains("age"));
}

#[test]
fn mistakes_in_saved_runs_name_the_file_and_the_field() {
    let bench = Bench::new("mistakes", "");
    let runs = bench.path("runs");
    assert_has(&refused(&["report", &runs]), &["cannot read", "runs"]);
    fs::create_dir(&runs).unwrap();
    assert_has(&refused(&["report", &runs]), &["runs has no saved run", "--json-file"]);
    fs::write(bench.path("runs/a.json"), r#"{"seed":1,"runs":2,"metrics":[{"name":"x"}]}"#)
        .unwrap();
    assert_has(&refused(&["report", &runs]), &["a.json: `metrics[0]`: missing field `of`"]);
    fs::write(bench.path("runs/a.json"), r#"{"seed":1,"runs":2,"metrics":[]}"#).unwrap();
    assert_has(&refused(&["report", &runs]), &["a single run, a"]);
    fs::write(bench.path("runs/b.json"), r#"{"seed":1,"runs":2,"metrics":[]}"#).unwrap();
    assert_has(&refused(&["report", &runs]), &["no two runs have a metric"]);
    let missing = refused(&["report", &runs, "--baseline", "c"]);
    assert_has(&missing, &["no c.json", "a, b"]);
}
