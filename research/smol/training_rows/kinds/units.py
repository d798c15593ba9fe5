"""Units of a text that a rule counts, orders or asks something of: sentences, items, links, dates and others.

A unit has a function of one line for programs, and an implementation of its own for labels. New units of a
kind are inserted by the editors.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from research.smol.training_rows.writing import Pen, insert_sentence, language_sentences

Span = tuple[int, int]
Place = Literal["sentence", "line", "paragraph", "word"]
"""Where a new unit goes: into running text, on a line or in a paragraph of its own, or among the words."""


@dataclass(frozen=True)
class Unit:
    """A kind of part that a text has any number of."""

    name: str
    """The name of the program's function, and the middle of the ids of kinds."""
    source: str
    """The expression of the program's function on a text `t`; a list of texts."""
    pattern: re.Pattern[str]
    """Finds the parts in a text; the first group, if there is one, is the part itself."""
    nouns: Sequence[str]
    """Names of one part and several parts, with a stroke between them."""
    new: Callable[[Pen], str]
    """Writes a new part."""
    place: Place = "sentence"
    always: bool = False
    """True if every text has such parts."""
    carriers: Sequence[str] = field(default=("See {} for the details.", "The note mentions {}.", "It was {}, I think."))
    """Sentences into which a new part is written."""

    @property
    def definition(self) -> str:
        """The program's function."""
        return f"def {self.name}(t): return {self.source}"

    def spans(self, text: str) -> list[Span]:
        """Return the places of all parts in a text."""
        group = 1 if self.pattern.groups else 0
        return [match.span(group) for match in self.pattern.finditer(text) if match.group(group).strip()]

    def parts(self, text: str) -> list[str]:
        """Return all parts of a text."""
        return [text[start:end] for start, end in self.spans(text)]

    def add(self, text: str, pen: Pen, part: str | None = None) -> str:
        """Return the text with one more part."""
        part = self.new(pen) if part is None else part
        if self.place == "sentence":
            return insert_sentence(text, pen.rng.choice(self.carriers).replace("{}", part), pen.rng)
        if self.name == "headings":
            return f"{text}\n\n{pen.rng.choice(['##', '##', '#', '###'])} {part}\n\n{pen.sentence()}"
        if self.place == "paragraph":
            return f"{text}\n\n{part}"
        if self.place == "word":
            words = text.split(" ")
            words.insert(pen.rng.randint(min(1, len(words)), len(words)), part)
            return " ".join(words)
        spans = self.spans(text)
        if not spans or self.always:
            return f"{text}\n{'' if self.always else chr(10)}{self.marker(text)}{part}".strip()
        end = spans[-1][1]
        return f"{text[:end]}\n{self.marker(text)}{part}{text[end:]}"

    def marker(self, text: str) -> str:
        """Return what stands before a new part on a line of its own."""
        if self.name == "steps":
            return f"{len(self.spans(text)) + 1}. "
        if self.name != "items":
            return ""
        known = re.search(r"^[-*•] ", text, re.MULTILINE)
        return known[0] if known else "- "

    def remove(self, text: str, pen: Pen) -> str:
        """Return the text with one part less."""
        spans = self.spans(text)
        if not spans:
            return text
        start, end = pen.rng.choice(spans)
        if self.place in ("line", "paragraph") and not self.always:
            start = text.rfind("\n", 0, start) + 1
        text = f"{text[:start].rstrip(' ') if end < len(text) and text[end:end + 1] in ' .,' else text[:start]}{text[end:]}"
        return re.sub(r"\n{3,}", "\n\n", text).strip()

    def replace(self, text: str, number: int, part: str) -> str:
        """Return the text with another part in the place of a part."""
        start, end = self.spans(text)[number]
        return f"{text[:start]}{part}{text[end:]}"


def _token(name: str, pattern: str, nouns: str, new: Callable[[Pen], str], *carriers: str, flags: int = 0) -> Unit:
    shown = f"re.findall(r{_raw(pattern)}, t{', re.M' if flags & re.MULTILINE else ''}{', re.S' if flags & re.DOTALL else ''})"
    found = re.compile(pattern, flags)
    about = carriers or ("See {} for the details.", "The note mentions {}.", "Somebody wrote {} on the board.")
    return Unit(name, shown, found, tuple(nouns.split(", ")), new, carriers=about)


def _line(name: str, pattern: str, nouns: str, new: Callable[[Pen], str]) -> Unit:
    shown = f"re.findall(r{_raw(pattern)}, t, re.M)"
    return Unit(name, shown, re.compile(pattern, re.MULTILINE), tuple(nouns.split(", ")), new, "line")


def _raw(pattern: str) -> str:
    return f"'{pattern}'" if '"' in pattern else f'"{pattern}"'


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choice("123456789") for _ in range(count))


def _word(pen: Pen) -> str:
    return pen.rng.choice(pen.vocabulary)


def _script(*languages: str) -> Callable[[Pen], str]:
    def new(pen: Pen) -> str:
        text = " ".join(language_sentences()[pen.rng.choice(languages)])
        return pen.rng.choice([word.strip(".,?!:;،؟。、？") for word in text.split() if len(word) > 2])

    return new


def _character(*languages: str, pattern: str) -> Callable[[Pen], str]:
    def new(pen: Pen) -> str:
        text = "".join(language_sentences()[pen.rng.choice(languages)])
        return pen.rng.choice(re.findall(pattern, text))

    return new


_NAMED = ("Write to {} with questions.", "The contact is {}.", "Ask {} first.")
_SUM = ("It costs {} at most.", "The old one was {}.", "We paid {} for it.", "Plan {} for the start.")
_DAY = ("It began on {}.", "The next check is due on {}.", "Keep {} free.", "Nothing changed after {}.")
_ASIDE = ("Most of it {} is easy to learn.", "The second part {} takes longer.", "A friend {} told me so.")
_WORDS = ("My aunt says {} every day.", "Think of {} for a moment.", "There was {} on the sign.", "The label says {}.")

SENTENCES = Unit(
    "sentences",
    r'[s for s in re.split(r"(?<=[.!?])\s+", t.strip()) if s]',
    re.compile(r"\S(?:.*?[.!?](?=\s|\Z)|.*\Z)", re.DOTALL),
    ("sentence|sentences",),
    lambda pen: pen.sentence(),
    "sentence",
    True,
    ("{}",),
)
LINES = Unit(
    "lines",
    '[l for l in t.split("\\n") if l.strip()]',
    re.compile(r"^[^\n]*\S[^\n]*$", re.MULTILINE),
    ("line|lines",),
    lambda pen: pen.sentence(),
    "line",
    True,
)
PARAGRAPHS = Unit(
    "paragraphs",
    '[p for p in t.split("\\n\\n") if p.strip()]',
    re.compile(r"[^\n](?:[^\n]|\n(?!\n))*"),
    ("paragraph|paragraphs", "paragraph|paragraphs", "block of text|blocks of text"),
    lambda pen: f"{pen.sentence()} {pen.sentence()}",
    "paragraph",
    True,
)
WORDS = Unit(
    "words",
    r"""re.findall(r"\w[\w'-]*", t)""",
    re.compile(r"(?<![\w'-])\w[\w'-]*|(?<=[^\w'-]['-])\w[\w'-]*|(?<=^['-])\w[\w'-]*"),
    ("word|words",),
    _word,
    "word",
    True,
)
ITEMS = Unit(
    "items",
    r're.findall(r"^\s*[-*•] (.+)", t, re.M)',
    re.compile(r"^\s*[-*•] (.+)$", re.MULTILINE),
    ("bullet point|bullet points", "list item|list items", "bullet|bullets", "item of the list|items of the list"),
    lambda pen: pen.sentence(),
    "line",
)
HEADINGS = Unit(
    "headings",
    r're.findall(r"^#+ (.+)", t, re.M)',
    re.compile(r"^#+ (.+)$", re.MULTILINE),
    ("heading|headings", "Markdown heading|Markdown headings"),
    lambda pen: pen.phrase("title"),
    "paragraph",
)
STEPS = Unit(
    "steps",
    r're.findall(r"^\d+[.)] (.+)", t, re.M)',
    re.compile(r"^\d+[.)] (.+)$", re.MULTILINE),
    ("numbered step|numbered steps", "step of the numbered list|steps of the numbered list", "numbered point|numbered points"),
    lambda pen: pen.sentence(),
    "line",
)
NUMBERS = _token(
    "numbers",
    r"\d+",
    "number|numbers, number written in digits|numbers written in digits",
    lambda pen: str(pen.rng.choice([pen.rng.randint(2, 20), pen.rng.randint(2, 100), pen.rng.randint(100, 900)])),
    *("There were {} of them.", "It takes {} minutes.", "Page {} explains it.", "About {} people came."),
)

TOKENS: tuple[Unit, ...] = (
    NUMBERS,
    _token("emails", r"[\w.]+@\w+\.\w+", "e-mail address|e-mail addresses, email address|email addresses",
           lambda pen: f"{pen.rng.choice(['anna', 'office', 'help.desk', 'sam', 'info', 'j.weber'])}@{_word(pen)}.{pen.rng.choice(['org', 'com', 'net', 'eu'])}", *_NAMED),
    _token("links", r"https?://\S+", "link|links, URL|URLs, web address|web addresses",
           lambda pen: f"https://{_word(pen)}.{pen.rng.choice(['org', 'com', 'net'])}/{_word(pen)}", "See {} for the details.", "The page {} has more.", "We found it at {} last week."),
    _token("hashtags", r"#\w+", "hashtag|hashtags", lambda pen: f"#{_word(pen)}", "We call it {} here.", "{} is everywhere.", "Post it with {} please."),
    _token("mentions", r"@\w+", "mention with @|mentions with @, @-mention|@-mentions, user name with @|user names with @",
           lambda pen: f"@{_word(pen)}", "Thanks to {} for the hint.", "As {} said, it works.", "Ask {} about it."),
    _token("emoji", "[\U0001f300-\U0001faff]", "emoji|emoji, emoji|emojis",
           lambda pen: pen.rng.choice("😀🎉🚀🌍🍎🐶🌻🔥🎁🏠🧭🤖🥦🫖"), "That is good news {} for all.", "We like it {} a lot.", "Here we go {} again."),
    _token("percents", r"\d+%", "percentage|percentages, percentage such as 40%|percentages such as 40%",
           lambda pen: f"{pen.rng.randint(2, 99)}%", "About {} agree.", "It fell by {} last year.", "Only {} of them stay."),
    _token("prices", r"[$€£]\d+", "price|prices, amount of money|amounts of money, sum of money such as $20|sums of money such as $20",
           lambda pen: f"{pen.rng.choice('$$€£')}{pen.rng.randint(2, 900)}", *_SUM),
    _token("dates", r"\d{4}-\d{2}-\d{2}", "date in the form YYYY-MM-DD|dates in the form YYYY-MM-DD, ISO date|ISO dates, date such as 2024-05-17|dates such as 2024-05-17",
           lambda pen: f"{pen.rng.randint(1990, 2029)}-{pen.rng.randint(1, 12):02}-{pen.rng.randint(1, 28):02}", *_DAY),
    _token("times", r"\d{1,2}:\d{2}", "clock time|clock times, time such as 14:30|times such as 14:30, time of day|times of day",
           lambda pen: f"{pen.rng.randint(6, 23)}:{pen.rng.choice(['00', '15', '30', '45', '05'])}", "It starts at {} sharp.", "The bus leaves at {} every day.", "We meet at {} by the gate."),
    _token("phones", r"\d{3}-\d{3}-\d{4}", "phone number|phone numbers, phone number such as 555-010-2233|phone numbers such as 555-010-2233, telephone number|telephone numbers",
           lambda pen: f"{_digits(pen.rng, 3)}-{_digits(pen.rng, 3)}-{_digits(pen.rng, 4)}", "Call {} in the morning.", "Our line is {} on weekdays.", "Text {} if you are late."),
    _token("versions", r"\d+\.\d+\.\d+", "version number|version numbers, version such as 2.4.1|versions such as 2.4.1, release number|release numbers",
           lambda pen: f"{pen.rng.randint(0, 9)}.{pen.rng.randint(0, 20)}.{pen.rng.randint(0, 9)}", "Version {} fixed it.", "We still use {} at home.", "Update to {} soon."),
    _token("years", r"\b(?:19|20)\d\d\b", "year|years, year with four digits|years with four digits, four-digit year|four-digit years",
           lambda pen: str(pen.rng.randint(1905, 2029)), "It opened in {} for the first time.", "Since {} nothing changed.", "The law of {} helped."),
    _token("quotes", '"[^"]+"', 'quoted phrase|quoted phrases, phrase in double quotation marks|phrases in double quotation marks, direct quote|direct quotes',
           lambda pen: f'"{pen.phrase("title")}"', "Some call it {} now.", "The sign said {} in red.", "He shouted {} and left."),
    _token("asides", r"\([^()]+\)", "remark in parentheses|remarks in parentheses, phrase in round brackets|phrases in round brackets, parenthetical remark|parenthetical remarks",
           lambda pen: f"({_word(pen)} {_word(pen)})", *_ASIDE),
    _token("brackets", r"\[[^\[\]]+\]", "note in square brackets|notes in square brackets, phrase in square brackets|phrases in square brackets",
           lambda pen: f"[{_word(pen)} {_word(pen)}]", *_ASIDE),
    _token("bolds", r"\*\*[^*]+\*\*", "bold phrase|bold phrases, phrase in bold|phrases in bold, passage in Markdown bold|passages in Markdown bold",
           lambda pen: f"**{_word(pen)}**", *_WORDS),
    _token("codes", "`[^`]+`", "piece of inline code|pieces of inline code, word in backticks|words in backticks, term between backticks|terms between backticks",
           lambda pen: f"`{_word(pen)}`", *_WORDS),
    _token("footnotes", r"\[\d+\]", "numbered citation|numbered citations, citation such as [3]|citations such as [3], footnote mark such as [2]|footnote marks such as [2]",
           lambda pen: f"[{pen.rng.randint(1, 30)}]", "This was shown before {} in a study.", "Most agree {} today.", "The numbers are old {} though."),
    _token("fractions", r"\d+/\d+", "fraction|fractions, fraction such as 3/4|fractions such as 3/4",
           lambda pen: f"{pen.rng.randint(1, 7)}/{pen.rng.randint(2, 9)}", "About {} of it is water.", "Use {} of a cup.", "Only {} were left."),
    _token("decimals", r"\d+\.\d+", "decimal number|decimal numbers, number with a decimal point|numbers with a decimal point",
           lambda pen: f"{pen.rng.randint(0, 40)}.{pen.rng.randint(1, 9)}", "It rose by {} points.", "The mean was {} this time.", "Add {} to the result."),
    _token("ordinals", r"\d+(?:st|nd|rd|th)", "ordinal number|ordinal numbers, ordinal such as 4th|ordinals such as 4th",
           lambda pen: pen.rng.choice(["1st", "2nd", "3rd", "4th", "5th", "7th", "9th", "12th", "20th"]), "It was the {} attempt.", "On the {} day it rained.", "She came {} in the race."),
    _token("ranges", r"\d+-\d+", "range of numbers|ranges of numbers, range such as 10-20|ranges such as 10-20",
           lambda pen: f"{(low := pen.rng.randint(1, 40))}-{low + pen.rng.randint(2, 30)}", "It takes {} minutes.", "Pages {} explain it.", "Children of {} years like it."),
    _token("weights", r"\d+ kg", "weight in kg|weights in kg, weight such as 5 kg|weights such as 5 kg",
           lambda pen: f"{pen.rng.randint(2, 90)} kg", "It weighs {} in all.", "We carried {} up the hill.", "Add {} of sand."),
    _token("distances", r"\d+ km", "distance in km|distances in km, distance such as 12 km|distances such as 12 km",
           lambda pen: f"{pen.rng.randint(2, 900)} km", "It is {} from here.", "We walked {} that day.", "After {} there is a bridge."),
    _token("degrees", r"-?\d+ ?°C", "temperature in °C|temperatures in °C, temperature such as 21 °C|temperatures such as 21 °C",
           lambda pen: f"{pen.rng.randint(-9, 38)} °C", "It was {} at noon.", "Keep it at {} over night.", "Below {} it stops."),
    _token("colours", r"#[0-9a-f]{6}", "hex colour|hex colours, colour code such as #ff8800|colour codes such as #ff8800",
           lambda pen: "#" + "".join(pen.rng.choice("0123456789abcdef") for _ in range(6)), "The border is {} now.", "Use {} for the links.", "We painted it {} last year."),
    _token("files", r"\w+\.(?:txt|pdf|csv|py)", "file name|file names, file name such as notes.txt|file names such as notes.txt",
           lambda pen: f"{_word(pen)}.{pen.rng.choice(['txt', 'pdf', 'csv', 'py'])}", "Open {} first.", "The table is in {} as well.", "Save it as {} please."),
    _token("acronyms", r"\b[A-Z]{2,5}\b", "acronym|acronyms, abbreviation in capital letters|abbreviations in capital letters",
           lambda pen: "".join(pen.rng.choice("ABCDEFGHKLMNPRST") for _ in range(pen.rng.randint(2, 4))), "The {} agreed.", "Ask the {} about it.", "They call it {} for short."),
    _token("shouted", r"\b[A-Z]\w*\b", "capitalised word|capitalised words, word that begins with a capital letter|words that begin with a capital letter",
           lambda pen: pen.rng.choice(["Anna", "Lisbon", "Monday", "Europe", "Tom", "Priya", "Canada"]), "then {} came along.", "some asked {} about it.", "it was a present for {} and the others."),
    _token("hyphenated", r"\w+-\w+", "hyphenated word|hyphenated words, compound with a hyphen|compounds with a hyphen",
           lambda pen: pen.rng.choice(["well-known", "long-term", "part-time", "old-fashioned", "self-made", "low-cost", "high-speed"]), "It is a {} idea.", "They want a {} answer.", "She calls it {} for a reason."),
    _token("contractions", r"\w+'\w+", "contraction|contractions, contraction such as don't|contractions such as don't, short form with an apostrophe|short forms with an apostrophe",
           lambda pen: pen.rng.choice(["don't", "it's", "can't", "we're", "isn't", "they'll", "won't"]), "Some people {} a problem.", "I know {} so.", "They say {} here."),
    _token("placeholders", r"<\w+>", "placeholder in angle brackets|placeholders in angle brackets, placeholder such as <name>|placeholders such as <name>",
           lambda pen: f"<{_word(pen)}>", "Write {} here.", "Replace {} by your own.", "Dear {} or whoever reads it."),
    _token("blocks", r"```.+?```", "code block|code blocks, fenced code block|fenced code blocks, block of code between triple backticks|blocks of code between triple backticks",
           lambda pen: f"```\n{_word(pen)} = {pen.rng.randint(1, 99)}\n```", "\n\n{}\n\n", flags=re.DOTALL),
    _line("checkboxes", r"^- \[[ x]\] .+", "checkbox|checkboxes, task with a checkbox (- [ ])|tasks with a checkbox (- [ ])", lambda pen: f"- [{pen.rng.choice(' x')}] {pen.sentence()}"),
    _line("quoted_lines", r"^> .+", "block quote line|block quote lines, line that starts with >|lines that start with >, quoted line (>)|quoted lines (>)", lambda pen: f"> {pen.sentence()}"),
    _line("rows", r"^\|.+\|$", "table row|table rows, row of a Markdown table|rows of a Markdown table", lambda pen: f"| {_word(pen)} | {pen.rng.randint(1, 99)} |"),
    _line("dividers", r"^(?:---|\*\*\*)$", "divider line (--- or ***)|divider lines (--- or ***), horizontal rule (--- or ***)|horizontal rules (--- or ***)", lambda pen: pen.rng.choice(["---", "***"])),
    _line("speeches", r"^\w+: .+", "line of dialogue (Name: text)|lines of dialogue (Name: text), line of the form Name: text|lines of the form Name: text", lambda pen: f"{pen.rng.choice(['Anna', 'Tom', 'Priya', 'Sam', 'Lucy'])}: {pen.sentence()}"),
    _token("cyrillic", "[а-яА-ЯёЁ]+", "Cyrillic word|Cyrillic words, word in Cyrillic letters|words in Cyrillic letters, Russian word|Russian words", _script("Russian"), *_WORDS),
    _token("greek", "[α-ωΑ-Ωά-ώ]+", "Greek word|Greek words, word in Greek letters|words in Greek letters", _script("Greek"), *_WORDS),
    _token("arabic", "[\u0621-\u064a]+", "Arabic word|Arabic words, word in Arabic script|words in Arabic script", _script("Arabic"), *_WORDS),
    _token("hebrew", "[א-ת]+", "Hebrew word|Hebrew words, word in Hebrew letters|words in Hebrew letters", _script("Hebrew"), *_WORDS),
    _token("hangul", "[가-힣]+", "Korean word|Korean words, word in Hangul|words in Hangul", _script("Korean"), *_WORDS),
    _token("kana", "[ぁ-んァ-ン]+", "Japanese word in kana|Japanese words in kana, run of kana|runs of kana, word in hiragana or katakana|words in hiragana or katakana",
           lambda pen: pen.rng.choice(["さくら", "すし", "カメラ", "ありがとう", "テレビ", "ねこ", "おはよう", "ピアノ"]), *_WORDS),
    _token("hanzi", "[一-鿿]", "Chinese character|Chinese characters, Chinese sign|Chinese signs", _character("Chinese", pattern="[一-鿿]"), *_WORDS),
    _token("devanagari", "[\u0900-\u097f]+", "Hindi word|Hindi words, word in Devanagari|words in Devanagari", lambda pen: re.sub("[^\u0900-\u097f]", "", _script("Hindi")(pen)) or "घर", *_WORDS),
    _token("accents", "[à-öø-ÿ]", "accented letter|accented letters, letter with an accent|letters with an accent, letter such as é or ü|letters such as é or ü",
           lambda pen: pen.rng.choice(["é", "ü", "ñ", "à", "ö", "ç", "è"]), "Write {} with care.", "The letter {} is rare.", "They pronounce {} softly."),
)
TEXTUAL = (SENTENCES, LINES, PARAGRAPHS, WORDS, ITEMS, HEADINGS, STEPS)
UNITS = {unit.name: unit for unit in (*TEXTUAL, *TOKENS)}
