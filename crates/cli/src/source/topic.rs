//! A topic on the command line: `pose,weight=10,read=/run/pose`.

use std::path::PathBuf;
use std::str::FromStr;

use freshline_core::session::{TopicKind, TopicParams};
use freshline_core::unit::Bytes;

/// What `--topic` gives.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TopicArg {
    pub(super) params: TopicParams,
    pub(super) input: Input,
}

/// Where states are from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// The output of a shell command.
    Sample(String),
    /// A file.
    Read(PathBuf),
    /// The newest state of a stream.
    Latest(PathBuf),
    /// Made up, of this length.
    Size(Bytes),
}

impl FromStr for TopicArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, mut rest) = text.split_once(',').unwrap_or((text, ""));
        let mut params = TopicParams::new(name);
        loop {
            if let Some(others) = rest.strip_prefix("urgent,") {
                params.is_urgent = true;
                rest = others;
                continue;
            }
            let Some((key, after)) = rest.split_once('=') else {
                return Err(format!(
                    "it must end with read=FILE, sample=CMD, latest=STREAM or size=BYTES, such as \
                     pose,weight=10,read=/run/pose; there is {rest:?}"
                ));
            };
            // What follows these is theirs, with its commas.
            let input = match key {
                "read" => Some(Input::Read(after.into())),
                "sample" => Some(Input::Sample(after.into())),
                "latest" => Some(Input::Latest(after.into())),
                "size" => Some(Input::Size(parse(key, after)?)),
                _ => None,
            };
            if let Some(input) = input {
                if params.kind != TopicKind::Latest && !matches!(input, Input::Latest(_)) {
                    return Err(format!(
                        "a topic with keys has latest=STREAM, of which each state begins with its key and \
                         a tab; there is {key}="
                    ));
                }
                params.check().map_err(|error| error.to_string())?;
                return Ok(Self { params, input });
            }
            let (value, others) = after.split_once(',').unwrap_or((after, ""));
            match key {
                "kind" => match value {
                    "latest" => params.kind = TopicKind::Latest,
                    "keyed" if params.kind == TopicKind::Latest => params.kind = TopicKind::KEYED,
                    "keyed" => {}
                    _ => return Err(format!("kind={value}: there are latest and keyed")),
                },
                "max-keys" => params.kind = TopicKind::Keyed { max_keys: parse(key, value)? },
                "weight" => params.weight = parse(key, value)?,
                "deadline" => params.deadline = Some(parse(key, value)?),
                "min-rate" => params.min_rate = Some(parse(key, value)?),
                "max-rate" => params.max_rate = Some(parse(key, value)?),
                _ => {
                    return Err(format!(
                        "{key:?} is not known; there are kind, max-keys, weight, deadline, min-rate, max-rate \
                         and urgent, then read, sample, latest or size"
                    ));
                }
            }
            rest = others;
        }
    }
}

fn parse<T: FromStr>(key: &str, value: &str) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    value.parse().map_err(|error| format!("{key}={value}: {error}"))
}

#[cfg(test)]
mod tests {
    use freshline_core::unit::{Span, UpdateRate};

    use super::*;

    #[test]
    fn a_topic_has_a_name_options_and_an_input_that_may_contain_commas() {
        let topic: TopicArg =
            "pose,weight=2.5,deadline=200ms,min-rate=1/s,max-rate=50/s,sample=echo a,b=c"
                .parse()
                .unwrap();
        let params = TopicParams {
            weight: 2.5,
            deadline: Some(Span::from_millis(200)),
            min_rate: Some(UpdateRate::saturating(1.0)),
            max_rate: Some(UpdateRate::saturating(50.0)),
            ..TopicParams::new("pose")
        };
        assert_eq!(topic, TopicArg { params, input: Input::Sample("echo a,b=c".into()) });
        let topic: TopicArg = "stop,urgent,max-rate=5/s,latest=-".parse().unwrap();
        assert!(topic.params.is_urgent && topic.params.max_rate.is_some());
        let topic: TopicArg = "map,latest=-".parse().unwrap();
        assert_eq!(topic.input, Input::Latest("-".into()));
        for (text, kind) in [
            ("map,kind=latest,latest=-", TopicKind::Latest),
            ("tf,kind=keyed,latest=-", TopicKind::KEYED),
            ("tf,kind=keyed,max-keys=9,latest=-", TopicKind::Keyed { max_keys: 9 }),
            ("tf,max-keys=9,kind=keyed,latest=-", TopicKind::Keyed { max_keys: 9 }),
        ] {
            assert_eq!(text.parse::<TopicArg>().unwrap().params.kind, kind, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_topic_is_said() {
        for (text, word) in [
            ("pose", "read=FILE"),
            ("pose,weight=2", "read=FILE"),
            ("pose,colour=red,read=x", "colour"),
            ("pose,urgent=2,read=x", "urgent"),
            ("pose,urgent", "read=FILE"),
            ("pose,weight=much,read=x", "weight=much"),
            ("pose,weight=0,read=x", "weight 0"),
            ("a b,read=x", "a b"),
            (",read=x", "name"),
            ("pose,min-rate=9/s,max-rate=3/s,read=x", "lowest rate"),
            ("pose,size=huge", "size=huge"),
            ("tf,kind=other,latest=-", "latest and keyed"),
            ("tf,kind=keyed,max-keys=0,latest=-", "1 key at least"),
            ("tf,kind=keyed,max-keys=99999,latest=-", "max-keys=99999"),
            ("tf,kind=keyed,read=x", "latest=STREAM"),
        ] {
            let error = text.parse::<TopicArg>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
