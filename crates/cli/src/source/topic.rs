//! A topic on the command line: `pose,weight=10,read=/run/pose`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use freshline::driver::source::sampler::StampFormat;
use freshline_core::session::{TopicKind, TopicParams};
use freshline_core::unit::Bytes;
use freshline_core::wire::StreamId;

/// The value of `--topic`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TopicArg {
    pub(super) params: TopicParams,
    pub(super) input: Input,
    /// The format of the generation time before each state, if there is one.
    pub(super) stamp: Option<StampFormat>,
}

/// The input of states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Input {
    /// The output of a shell command.
    Sample(String),
    /// A file.
    Read(PathBuf),
    /// The newest state of a stream.
    Latest(PathBuf),
    /// Each record of a stream.
    Records(PathBuf),
    /// Synthetic states of this length.
    Size(Bytes),
}

impl Input {
    /// The file or the pipe that is read.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Read(path) | Self::Latest(path) | Self::Records(path) => Some(path),
            Self::Sample(_) | Self::Size(_) => None,
        }
    }
}

/// The keys that set the kind of a topic.
#[derive(Default)]
struct KindArg {
    name: Option<String>,
    max_keys: Option<u16>,
    buffer: Option<Bytes>,
}

impl KindArg {
    /// The kind of a topic with this input; a topic of records gets its own stream once that is
    /// known.
    fn kind(&self, input: &Input) -> Result<TopicKind, String> {
        let is_every = self.name.as_deref() == Some("every");
        match (is_every, input) {
            (true, Input::Records(_)) if self.max_keys.is_some() => {
                return Err("max-keys is for kind=keyed; records have no keys".to_owned());
            }
            (true, Input::Records(_)) => return self.every(),
            (true, _) => {
                return Err(
                    "a topic of kind every has records=STREAM, of which each line counts, such as \
                            log,kind=every,records=-"
                        .to_owned(),
                );
            }
            (false, Input::Records(_)) => {
                return Err("records=STREAM is for topics of kind every: write \
                            log,kind=every,records=-"
                    .to_owned());
            }
            (false, _) if self.buffer.is_some() => {
                return Err("buffer is for topics of kind every, such as \
                            log,kind=every,buffer=1MiB,records=-"
                    .to_owned());
            }
            (false, _) => {}
        }
        let kind = match (self.name.as_deref(), self.max_keys) {
            (_, Some(max_keys)) => TopicKind::Keyed { max_keys },
            (Some("keyed"), None) => TopicKind::KEYED,
            _ => TopicKind::Latest,
        };
        if kind != TopicKind::Latest && !matches!(input, Input::Latest(_)) {
            return Err("a topic with keys has latest=STREAM, of which each state begins with its key and a \
                        tab"
            .to_owned());
        }
        Ok(kind)
    }

    fn every(&self) -> Result<TopicKind, String> {
        let buffer = self.buffer.map_or(u64::from(TopicKind::DEFAULT_BYTES), Bytes::get);
        let max_bytes = u32::try_from(buffer).map_err(|_| {
            format!("buffer={buffer}B: at most {}B are possible, such as 1MiB", u32::MAX)
        })?;
        Ok(TopicKind::Every { stream: StreamId::default(), first: 0, max_bytes })
    }
}

impl FromStr for TopicArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, mut rest) = text.split_once(',').unwrap_or((text, ""));
        let (mut params, mut kind) = (TopicParams::new(name), KindArg::default());
        let mut stamp = None;
        loop {
            if let Some(others) = rest.strip_prefix("urgent,") {
                params.is_urgent = true;
                rest = others;
                continue;
            }
            let Some((key, after)) = rest.split_once('=') else {
                return Err(format!(
                    "it must end with read=FILE, sample=CMD, latest=STREAM, records=STREAM or size=BYTES, \
                     such as pose,weight=10,read=/run/pose; found {rest:?}"
                ));
            };
            // The rest of the text, including commas, belongs to the input.
            let input = match key {
                "read" => Some(Input::Read(after.into())),
                "sample" => Some(Input::Sample(after.into())),
                "latest" => Some(Input::Latest(after.into())),
                "records" => Some(Input::Records(after.into())),
                "size" => Some(Input::Size(parse(key, after)?)),
                _ => None,
            };
            if let Some(input) = input {
                params.kind = kind.kind(&input).map_err(|why| format!("{why}; found {key}="))?;
                params.check().map_err(|error| error.to_string())?;
                if stamp.is_some() && !matches!(input, Input::Latest(_) | Input::Records(_)) {
                    return Err(format!(
                        "stamp is for streams, latest=STREAM and records=STREAM, such as \
                         pose,stamp=unix,latest=-; found {key}="
                    ));
                }
                return Ok(Self { params, input, stamp });
            }
            let (value, others) = after.split_once(',').unwrap_or((after, ""));
            match key {
                "kind" => match value {
                    "latest" | "keyed" | "every" => kind.name = Some(value.to_owned()),
                    _ => return Err(format!("kind={value}: there are latest, keyed and every")),
                },
                "max-keys" => kind.max_keys = Some(parse(key, value)?),
                "buffer" => kind.buffer = Some(parse(key, value)?),
                "stamp" => stamp = Some(parse(key, value)?),
                "weight" => params.weight = parse(key, value)?,
                "deadline" => params.deadline = Some(parse(key, value)?),
                "min-rate" => params.min_rate = Some(parse(key, value)?),
                "max-rate" => params.max_rate = Some(parse(key, value)?),
                _ => {
                    return Err(format!(
                        "{key:?} is not known; there are kind, max-keys, buffer, stamp, weight, deadline, \
                         min-rate, max-rate and urgent, then read, sample, latest, records or size"
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
        let input = Input::Sample("echo a,b=c".into());
        assert_eq!(topic, TopicArg { params, input, stamp: None });
        for text in [
            "pose,stamp=unix,latest=-",
            "tf,stamp=unix,kind=keyed,latest=-",
            "log,kind=every,stamp=unix,records=-",
        ] {
            let topic: TopicArg = text.parse().unwrap();
            assert_eq!(topic.stamp, Some(StampFormat::Unix), "{text}");
        }
        let topic: TopicArg = "stop,urgent,max-rate=5/s,latest=-".parse().unwrap();
        assert!(topic.params.is_urgent && topic.params.max_rate.is_some());
        let topic: TopicArg = "map,latest=-".parse().unwrap();
        assert_eq!(topic.input, Input::Latest("-".into()));
        for (text, kind) in [
            ("map,kind=latest,latest=-", TopicKind::Latest),
            ("tf,kind=keyed,latest=-", TopicKind::KEYED),
            ("tf,kind=keyed,max-keys=9,latest=-", TopicKind::Keyed { max_keys: 9 }),
            ("tf,max-keys=9,kind=keyed,latest=-", TopicKind::Keyed { max_keys: 9 }),
            ("log,kind=every,records=-", TopicKind::every(StreamId(0))),
            (
                "log,buffer=64KiB,kind=every,urgent,max-rate=5/s,records=-",
                TopicKind::Every { stream: StreamId(0), first: 0, max_bytes: 65_536 },
            ),
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
            ("pose,stamp=ms,latest=-", "stamp=ms: unknown format of generation times; use `unix`"),
            ("pose,stamp=unix,read=x", "pose,stamp=unix,latest=-; found read="),
            ("pose,stamp=unix,sample=x", "stamp is for streams"),
            ("tf,kind=other,latest=-", "latest, keyed and every"),
            ("tf,kind=keyed,max-keys=0,latest=-", "1 key at least"),
            ("tf,kind=keyed,max-keys=99999,latest=-", "max-keys=99999"),
            ("tf,kind=keyed,read=x", "latest=STREAM"),
            ("log,kind=every,latest=-", "log,kind=every,records=-; found latest="),
            ("log,kind=every,sample=date", "log,kind=every,records=-; found sample="),
            ("log,records=-", "log,kind=every,records=-; found records="),
            ("log,kind=keyed,records=-", "log,kind=every,records=-"),
            ("log,kind=every,max-keys=9,records=-", "max-keys is for kind=keyed"),
            ("log,buffer=1MiB,latest=-", "buffer is for topics of kind every"),
            ("log,kind=every,buffer=5GiB,records=-", "at most 4294967295B"),
            ("log,kind=every,buffer=1KB,records=-", "at least 1024"),
            ("log,kind=every,deadline=1s,records=-", "a deadline is for states"),
            ("log,kind=every,min-rate=1/s,records=-", "a lowest rate is for states"),
        ] {
            let error = text.parse::<TopicArg>().unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
