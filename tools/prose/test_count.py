#!/usr/bin/env python3
"""The self-test of count.py: each pattern is found, and each exception is not. Run it directly."""

import unittest

from count import HEADLESS, PHRASES, allowances, count, exempt, find, markdown, prose_of

FOUND: dict[str, list[str]] = {
    "what": [
        "The oldest is what is dropped.",
        "The reports are what the law needs.",
        "It holds what waits for the next round.",
        "This shows what waits in a hop.",
        "| hop | what its queue keeps |",
    ],
    "who": ["A host who sends often is limited.", "It forgets who is silent.", "To whom it may send is open."],
    "whoever": ["Whoever has the token may look."],
    "those that": ["It drops those that are late.", "Those who sent are counted."],
    "under way": ["One update is under way."],
    "is none": ["Without a clock there is none."],
    "nobody, somebody": ["Nobody reads it.", "That queue is somebody else's."],
    "way for path": ["Acks wait on the way back.", "It is the way there."],
    "unless said": ["It is 10 unless said."],
    "beside": ["Beside TCP it keeps its share."],
    "tells": ["The counter tells the rate."],
    "anew": ["It opens anew."],
    "alike": ["All are treated alike."],
    "stands in": ["The reason stands in the header.", "It stands at 3."],
    "to be had": ["No address is to be had."],
    "least round trip": ["It is above the least round trip.", "The least RTT is 3 ms."],
    "turn away": ["A client is turned away."],
    "so many": ["It sends so many packets a second."],
    "of ours": ["It is a queue of ours.", "It is somebody else's."],
    "narrowest": ["The narrowest hop limits it."],
    "climb": ["The climb ends there."],
    "takes in what": ["It takes in what comes."],
}

NOT_FOUND: list[str] = [
    "What does the law do?",
    "**1. What is the age?** It is a time.",
    "## What is measured",
    "The page shows what the law does.",
    "Nothing is known, and it is unknown what the path carries.",
    "The error says what to do.",
    "Compare it with what you have.",
    "No matter what the path does, the rate is bounded.",
    "| what | where |",
    "A user who has no root access can read it.",
    "A path whose window is full is skipped.",
    "It tells the two causes apart.",
    "Besides, it is short.",
    "It takes so much time that a timeout expires.",
    "`what waits` is code, and so is `who sends`.",
    "[The queue](what-waits.md) is a link to https://example.org/what waits.",
    "They call it \"what waits at the bottleneck\" in section 3.",
    "> What waits is quoted.",
    "<!-- what waits -->",
    "```\nwhat waits\n```",
]


class CountTest(unittest.TestCase):
    """Patterns, exceptions, places and the kinds of files."""

    def test_each_pattern_is_found(self) -> None:
        self.assertEqual(set(FOUND), set(HEADLESS) | set(PHRASES))
        for name, sentences in FOUND.items():
            for sentence in sentences:
                found = {finding.pattern for finding in find(prose_of("a.md", sentence))}
                self.assertIn(name, found, sentence)

    def test_exceptions_are_not_found(self) -> None:
        for sentence in NOT_FOUND:
            self.assertEqual(find(prose_of("a.md", sentence)), [], sentence)

    def test_a_phrase_over_two_lines_has_its_line(self) -> None:
        found = find(markdown([(1, "# Title"), (3, "One update is under"), (4, "way, and then"), (5, "it opens anew.")]))
        self.assertEqual([(finding.line, finding.pattern) for finding in found], [(3, "under way"), (5, "anew")])

    def test_emphasis_does_not_hide_a_phrase(self) -> None:
        self.assertEqual([finding.pattern for finding in find(prose_of("a.md", "It is **under way** now."))], ["under way"])

    def test_rust_has_comments_and_messages(self) -> None:
        text = (
            '//! Who sends is limited.\n// whoever\nlet a = "under way";\n/// Opened anew.\n'
            'let b = "one \\\n    update\\nis under way";\nlet c = "it opens anew then";\nlet d = "anew";\n'
        )
        expected = [(1, "who"), (2, "whoever"), (4, "anew"), (5, "under way"), (7, "anew")]
        self.assertEqual([(f.line, f.pattern) for f in find(prose_of("a.rs", text))], expected)

    def test_scenarios_have_titles_and_descriptions(self) -> None:
        text = 'title = "Opened anew"\nname = "anew"\ndescription = """\nOne is\nunder way."""\nother = "anew"\n'
        self.assertEqual([(f.line, f.pattern) for f in find(prose_of("a.toml", text))], [(1, "anew"), (5, "under way")])

    def test_the_rate_is_per_thousand_words(self) -> None:
        counted = count("a.md", "One update is under way.\n" + "word " * 495)
        self.assertEqual((counted.words, len(counted.findings), counted.rate), (500, 1, 2.0))

    def test_the_allow_list_has_files_and_folders(self) -> None:
        allow = allowances("# a comment\ndocs/a.md: generated\ncrates/: later\n")
        self.assertTrue(exempt("docs/a.md", allow) and exempt("crates/core/src/lib.rs", allow))
        self.assertFalse(exempt("docs/b.md", allow))


if __name__ == "__main__":
    unittest.main()
