//! Flags from a file: `freshline source --config freshline.toml`.
//!
//! The keys of the table with the command's name become flags, which clap reads before those of the
//! command line. So there is one definition of each flag, and one text for each mistake.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Command, CommandFactory, FromArgMatches};
use miette::{IntoDiagnostic, WrapErr, miette};
use toml::{Table, Value};

/// Commands with `--config`.
const COMMANDS: [&str; 3] = ["source", "monitor", "relay"];

/// The keys of a topic's input, which comes last in the value of `--topic`.
const INPUTS: [&str; 5] = ["read", "sample", "latest", "records", "size"];

#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    /// Read flags from this TOML file: the table with the command's name holds the flags without
    /// dashes, and its `url`, `listen` or `destinations`. A flag on the command line wins; lists
    /// are joined; give each URL in one place only.
    #[arg(long, value_name = "FILE")]
    #[allow(dead_code, reason = "it is taken out before the rest is read")]
    config: Option<PathBuf>,
}

/// The parsed command line, with the flags of its `--config` file.
///
/// # Errors
/// If the file cannot be read, or has a key that is not a flag of the command. Mistakes on the command line
/// end the process as clap does.
pub(crate) fn parse<C: CommandFactory + FromArgMatches>() -> miette::Result<C> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let mut command = C::command();
    let words = match taken_out(&words) {
        None => words,
        Some((file, rest)) => {
            let name = rest[1].to_string_lossy().into_owned();
            command = command.mut_subcommand(&name, |command| command.args_override_self(true));
            command.build();
            let flags = read(&file, &name, &command)?;
            [&rest[..2], &flags, &rest[2..]].concat()
        }
    };
    let matches = command.get_matches_from(words);
    Ok(C::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()))
}

/// The file of `--config`, and the words without it.
fn taken_out(words: &[OsString]) -> Option<(PathBuf, Vec<OsString>)> {
    let command = words.get(1)?;
    if !COMMANDS.iter().any(|known| command == known) {
        return None;
    }
    let mut file = None;
    let mut rest = words[..2].to_vec();
    let mut others = words[2..].iter();
    while let Some(word) = others.next() {
        if word == "--" {
            rest.push(word.clone());
            rest.extend(others.cloned());
            break;
        }
        let text = word.to_str().unwrap_or_default();
        match text.strip_prefix("--config") {
            // Without a file name, clap reports the mistake.
            Some("") => match others.next() {
                Some(name) => file = Some(name.into()),
                None => return None,
            },
            Some(after) if after.starts_with('=') => file = Some(after[1..].into()),
            _ => rest.push(word.clone()),
        }
    }
    Some((file?, rest))
}

/// The flags of a command from a file.
fn read(file: &Path, name: &str, cli: &Command) -> miette::Result<Vec<OsString>> {
    let text = std::fs::read_to_string(file)
        .into_diagnostic()
        .wrap_err_with(|| format!("--config {} cannot be read", file.display()))?;
    flags(&text, name, cli).map_err(|why| miette!("--config {}: {why}", file.display()))
}

fn flags(text: &str, name: &str, cli: &Command) -> Result<Vec<OsString>, String> {
    let all: Table = text.parse().map_err(|error| format!("{error}"))?;
    if let Some(strange) = all.keys().find(|table| !COMMANDS.contains(&table.as_str())) {
        return Err(format!(
            "{strange:?} is not a known table; there are [source], [monitor] and [relay]"
        ));
    }
    let Some(Value::Table(table)) = all.get(name) else {
        return Err(format!("it has no table [{name}]"));
    };
    let command = cli.find_subcommand(name).ok_or("there is no such command")?;
    let (mut flags, mut places) = (Vec::new(), Vec::new());
    for (key, value) in table {
        let arg = command.get_arguments().find(|arg| {
            arg.get_long() == Some(key) || (arg.is_positional() && arg.get_id() == key.as_str())
        });
        let arg = arg.filter(|_| key != "config");
        let arg =
            arg.ok_or_else(|| format!("[{name}] has {key:?}, which is not a flag of {name}"))?;
        let of_key = |why: String| format!("[{name}] {key}: {why}");
        let values = if name == "source" && key == "topic" { topics(value) } else { texts(value) };
        let values = values.map_err(of_key)?;
        if matches!(arg.get_action(), ArgAction::SetTrue) {
            match value.as_bool() {
                Some(true) => flags.push(format!("--{key}").into()),
                Some(false) => {}
                None => return Err(of_key(format!("{value} is neither true nor false"))),
            }
        } else if arg.is_positional() {
            places.push((arg.get_index(), values));
        } else {
            // For a flag that takes several values, a single value is a list of one.
            if values.len() > 1 && !matches!(arg.get_action(), ArgAction::Append) {
                return Err(of_key("it takes one value, not a list".to_owned()));
            }
            flags.extend(values.into_iter().map(|value| format!("--{key}={value}").into()));
        }
    }
    places.sort_by_key(|(index, _)| *index);
    flags.extend(places.into_iter().flat_map(|(_, values)| values).map(OsString::from));
    Ok(flags)
}

/// A value or a list of values, as written on a command line.
fn texts(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(values) => values.iter().map(text).collect(),
        value => Ok(vec![text(value)?]),
    }
}

fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Ok(value.to_string()),
        _ => Err(format!("{value} is neither a text nor a number")),
    }
}

/// `[[source.topic]]` as values of `--topic`.
fn topics(value: &Value) -> Result<Vec<String>, String> {
    let Value::Array(topics) = value else { return texts(value) };
    topics
        .iter()
        .map(|topic| match topic {
            Value::Table(table) => topic_text(table),
            other => text(other),
        })
        .collect()
}

fn topic_text(table: &Table) -> Result<String, String> {
    let name = table.get("name").and_then(Value::as_str).ok_or("a topic has no name")?;
    let (mut options, mut input) = (vec![name.to_owned()], None);
    for (key, value) in table.iter().filter(|(key, _)| *key != "name") {
        let of_topic = |why| format!("topic {name:?}, {key}: {why}");
        match value {
            Value::Boolean(true) => options.push(key.clone()),
            Value::Boolean(false) => {}
            value if INPUTS.contains(&key.as_str()) => {
                let text = format!("{key}={}", text(value).map_err(of_topic)?);
                if let Some(other) = input.replace(text) {
                    return Err(format!("topic {name:?} has {key} and {other}; one is enough"));
                }
            }
            value => options.push(format!("{key}={}", text(value).map_err(of_topic)?)),
        }
    }
    if let Some(odd) = options.iter().find(|option| option.contains(',')) {
        return Err(format!("topic {name:?}: {odd:?} has a comma"));
    }
    options.extend(input);
    Ok(options.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands like the real ones, with some of their flags.
    fn cli() -> Command {
        use clap::Arg;
        let flag = |name: &'static str| Arg::new(name).long(name);
        let switch = |name| flag(name).action(ArgAction::SetTrue);
        let source = Command::new("source")
            .arg(Arg::new("url"))
            .args(["name", "max-rate", "size", "config"].map(flag))
            .args(["json", "on-change"].map(switch))
            .arg(flag("topic").action(ArgAction::Append));
        let destinations = Arg::new("destinations").action(ArgAction::Append);
        let relay = Command::new("relay").args([Arg::new("listen"), destinations]);
        Command::new("freshline").subcommands([source, relay])
    }

    fn of(text: &str, name: &str) -> Result<Vec<String>, String> {
        // Positional arguments get their indices when the command is built.
        let mut cli = cli();
        cli.build();
        let flags = flags(text, name, &cli)?;
        Ok(flags.into_iter().map(|flag| flag.into_string().unwrap()).collect())
    }

    #[test]
    fn a_table_gives_flags_topics_and_then_places() {
        let text = r#"
            [source]
            url = "udp://127.0.0.1:9"
            name = "robot"
            max-rate = "50/s"
            on-change = true
            json = false

            [[source.topic]]
            latest = "/run/a,b"
            name = "pose"
            stamp = "unix"
            weight = 10

            [[source.topic]]
            name = "stop"
            urgent = true
            read = "/run/stop"

            [[source.topic]]
            records = "/run/log,1"
            name = "log"
            kind = "every"

            [relay]
            listen = "udp://127.0.0.1:1"
            destinations = ["udp://127.0.0.1:2", "udp://127.0.0.1:3"]
        "#;
        let mut flags = of(text, "source").unwrap();
        assert_eq!(flags.pop().as_deref(), Some("udp://127.0.0.1:9"));
        flags.sort();
        let expected = [
            "--max-rate=50/s",
            "--name=robot",
            "--on-change",
            "--topic=log,kind=every,records=/run/log,1",
            "--topic=pose,stamp=unix,weight=10,latest=/run/a,b",
            "--topic=stop,urgent,read=/run/stop",
        ];
        assert_eq!(flags, expected);
        let ports = [1, 2, 3].map(|port| format!("udp://127.0.0.1:{port}"));
        assert_eq!(of(text, "relay").unwrap(), ports);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        for (text, words) in [
            ("[monitor]\n", ["no table", "[source]"]),
            ("[sauce]\n", ["sauce", "[source], [monitor]"]),
            ("[source]\ncolour = 'red'\n", ["colour", "not a flag of source"]),
            ("[source]\nconfig = 'x'\n", ["config", "not a flag of source"]),
            ("[source]\njson = 'yes'\n", ["json", "true"]),
            ("[source]\nname = ['a', 'b']\n", ["name", "one value"]),
            ("[source]\nname = { a = 1 }\n", ["name", "neither"]),
            ("[[source.topic]]\nread = 'x'\n", ["topic", "no name"]),
            ("[[source.topic]]\nname = 'a'\nread = 'x'\nsize = 1\n", ["\"a\"", "one is enough"]),
            ("[[source.topic]]\nname = 'a,b'\nread = 'x'\n", ["a,b", "comma"]),
            ("[source\n", ["TOML", "line"]),
        ] {
            let error = of(text, "source").unwrap_err();
            for word in words {
                assert!(error.to_lowercase().contains(&word.to_lowercase()), "{text}: {error}");
            }
        }
    }

    #[test]
    fn the_file_is_taken_out_of_the_words_of_commands_that_take_one() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let taken = |text: &str| taken_out(&words(text));
        for text in ["freshline source --config f --json", "freshline source --json --config=f"] {
            let expected = (PathBuf::from("f"), words("freshline source --json"));
            assert_eq!(taken(text), Some(expected), "{text}");
        }
        for text in [
            "freshline",
            "freshline source --json",
            "freshline source --configs f",
            "freshline source --config",
            "freshline source -- --config f",
            "freshline emulate --config f",
        ] {
            assert_eq!(taken(text), None, "{text}");
        }
    }

    #[test]
    fn a_flag_of_the_command_line_wins() {
        let flags = of("[source]\nurl = 'udp://127.0.0.1:9'\nname = 'a'\nsize = 9\n", "source");
        let words = [vec!["freshline".into(), "source".into()], flags.unwrap()].concat();
        let words = words.into_iter().chain(["--name".into(), "b".into()]);
        let cli = cli().mut_subcommand("source", |command| command.args_override_self(true));
        let matches = cli.try_get_matches_from(words).unwrap();
        let source = matches.subcommand_matches("source").unwrap();
        assert_eq!(source.get_one::<String>("name").map(String::as_str), Some("b"));
    }
}
