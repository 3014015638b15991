//! No answer of the monitor is longer than its question, so that it cannot amplify floods.

use super::Check;
use crate::torture::hosts::Hosts;
use crate::torture::observation::Observation;

pub(super) struct Answers;

impl Check for Answers {
    fn property(&self) -> &'static str {
        "no answer is longer than its question"
    }

    fn on_observation(&mut self, _: &Hosts, seen: &Observation) -> Result<(), String> {
        match seen {
            Observation::Answered { question, answer } if answer > question => {
                Err(format!("{answer} bytes in answer to {question}"))
            }
            _ => Ok(()),
        }
    }
}
