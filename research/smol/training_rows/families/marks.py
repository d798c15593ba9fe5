"""The families about titles, beginnings, ends, separators and whole formats."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence

from research.smol.training_rows.families.base import Arguments, Family
from research.smol.training_rows.families.keywords import lowered
from research.smol.training_rows.writing import Pen, insert_sentence, prose, sections, sentences
from tirjudge_environments.instruction_checks import Verifier, open_verifier

_REPEATED, _REPEATED_SHORT = 8, 4
"""Words at the beginning of a repeated request that the program compares, and of one with fewer words."""
_LONGEST_PART = 900
"""Characters of each of two responses; together they must not be too long."""


class Plain(Family):
    """A family without arguments."""

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        return {}

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return (open_verifier(self.id),)


class Title(Plain):
    id: str = "detectable_format:title"
    order: int = 61

    def expression(self, given: Arguments) -> str:
        return 'bool(re.search(r"<<.+>>", r))'

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        title = f"<<{_title(pen)}>>"
        if pen.chance(0.06):
            return f"{text}\n\n{title}"
        return pen.rng.choice(["{}\n\n{}", "{}\n\n{}", "{}\n{}", "# {}\n\n{}", "**{}**\n\n{}"]).format(
            title, text
        )

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        text = re.sub(r"^.*<<.*>>.*\n+", "", text).replace("<<", "").replace(">>", "")
        style = pen.rng.choice(
            ["", "<{}>", "# {}", "**{}**", '"{}"', "[[{}]]", "{}", "Title: {}", "«{}»", "<<{}", "< {} >"]
        )
        return f"{style.format(_title(pen))}\n\n{text}" if style else text


class Postscript(Family):
    id: str = "detectable_content:postscript"
    order: int = 62

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        return {"marker": pen.rng.choice(["P.S.", "P.P.S"])}

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return (open_verifier(self.id, postscript_marker=given["marker"]),)

    def expression(self, given: Arguments) -> str:
        return f"{lowered(given['marker'])} in r.lower()"

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        mark = pen.rng.choice(["{}", "{}:", "**{}**", "{}"]).format(given["marker"])
        first = f"P.S. {pen.phrase('ps')}\n\n" if given["marker"] == "P.P.S" and pen.chance(0.15) else ""
        return f"{text}\n\n{first}{mark} {pen.phrase('ps')}"

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        text = re.sub(r"\n+\W*P\.\s?(P\.\s?)?S.*", "", text, flags=re.IGNORECASE)
        wrong = ["", "", "PS", "P.S", "Note:", "PS:", "Postscript:", "One more thing:"]
        if given["marker"] == "P.P.S":
            wrong += ["P.S.", "P.S.", "PPS"]
        mark = pen.rng.choice(wrong)
        return f"{text}\n\n{mark} {pen.phrase('ps')}" if mark else text

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        return {"marker": given["marker"]}


class ConstrainedResponse(Plain):
    id: str = "detectable_format:constrained_response"
    order: int = 2

    def expression(self, given: Arguments) -> str:
        return 'any(a in r for a in ["My answer is yes.", "My answer is no.", "My answer is maybe."])'

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        answer = f"My answer is {pen.rng.choice(['yes', 'no', 'maybe'])}."
        if pen.chance(0.5):
            return answer
        rest = " ".join(sentences(text)[:4]) if pen.chance(0.5) else pen.phrase("reasons")
        return f"{answer} {rest}" if pen.chance(0.5) else f"{rest} {answer}"

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        word = pen.rng.choice(["yes", "no", "maybe"])
        text = re.sub(r"My answer is \w+\.", "", text).strip() or pen.phrase("reasons")
        wrong = [
            *(
                f"My answer is: {word}.",
                f"My answer is {word}",
                f"{word.capitalize()}.",
                f"My answer is {word}!",
            ),
            *(
                f"The answer is {word}.",
                f"I would say {word}.",
                f'My answer is "{word}".',
                f"my answer is {word}.",
            ),
            *(f"My answer would be {word}.", f"My answer is {word.upper()}."),
        ]
        answer = pen.rng.choice(wrong)
        return answer if pen.chance(0.3) else pen.rng.choice([f"{answer} {text}", f"{text} {answer}", text])


class JsonFormat(Plain):
    id: str = "detectable_format:json_format"
    order: int = 90
    setup: str = (
        "def is_json(r):\n"
        "    try:\n"
        '        json.loads(re.sub(r"^```\\w*|```$", "", r.strip()))\n'
        "        return True\n"
        "    except ValueError:\n"
        "        return False"
    )

    def expression(self, given: Arguments) -> str:
        return "is_json(r)"

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        written = json.dumps(
            self._document(text, pen), indent=pen.rng.choice([None, 2, 2, 4]), ensure_ascii=False
        )
        return pen.rng.choice(["{}", "{}", "```json\n{}\n```", "```\n{}\n```"]).replace("{}", written)

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        if text.lstrip().startswith(("{", "`")):
            text = " ".join(prose(pen, 60))
        document = self._document(text, pen)
        written = json.dumps(document, indent=2, ensure_ascii=False)
        wrong = [
            *(text, text, f"Here is the JSON:\n\n{written}", f"{written}\n\nLet me know if it works."),
            *(written[:-2] + ",\n}", written[:-1].rstrip(), str(document), written.replace('":', '" =', 1)),
            *(f"{pen.phrase('openers')}\n```json\n{written}\n```", written.replace('"', "", 2)),
        ]
        return pen.rng.choice(wrong)

    def _document(self, text: str, pen: Pen) -> dict[str, object]:
        parts = [part for part in text.split("\n\n") if part.strip()]
        keys = pen.rng.sample(["title", "answer", "summary", "author", "topic"], 2)
        body: object = pen.rng.choice([parts, " ".join(parts), [{"text": part} for part in parts]])
        return {
            keys[0]: pen.phrase("title"),
            keys[1]: pen.topic,
            pen.rng.choice(["text", "items", "body"]): body,
        }


class RepeatPrompt(Family):
    id: str = "combination:repeat_prompt"
    order: int = 70

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        return {"request": request}

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return (open_verifier(self.id, prompt_to_repeat=given["request"]),)

    def expression(self, given: Arguments) -> str:
        # The prompt begins with the request, so that the program need not copy it; its beginning is enough.
        start = f"prompt.lower().split()[:{self._compared(given)}]"
        return f'" ".join(r.lower().split()).startswith(" ".join({start}))'

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        text = self._without(text, given)
        return f"{given['request']}{pen.rng.choice([chr(10) * 2, chr(10) * 2, chr(10), ' '])}{text}"

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        text, request = self._without(text, given), given["request"]
        words = request.split()
        changed = list(words)
        changed[pen.rng.randrange(self._compared(given))] = pen.rng.choice(["the", "some", "please", "and"])
        start = pen.rng.choice(
            [
                *(
                    "",
                    "",
                    pen.phrase("openers"),
                    f"{pen.phrase('openers')} {request}",
                    f'"{request}"',
                    " ".join(words[2:]),
                ),
                *(f"You asked: {request}", " ".join(changed), f"Request: {request}", f"**{request}**"),
            ]
        )
        return f"{start}\n\n{text}".strip()

    def _compared(self, given: Arguments) -> int:
        words = len(given["request"].split())
        return _REPEATED if words >= _REPEATED else min(words, _REPEATED_SHORT)

    def _without(self, text: str, given: Arguments) -> str:
        return text.strip().removeprefix(given["request"]).strip() or "Here it is."


class TwoResponses(Plain):
    id: str = "combination:two_responses"
    order: int = 71

    def expression(self, given: Arguments) -> str:
        return 'len([p for p in r.split("******") if p.strip()]) == 2'

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        return pen.rng.choice(["\n\n******\n\n", "\n******\n"]).join(self._parts(text, 2, pen))

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        divider = pen.rng.choice(
            ["\n\n***\n\n", "\n\n------\n\n", "\n\n", "\n\n*****\n\n", "\n\n******\n\n", "\n\n******\n\n"]
        )
        count = 2 if divider.strip() != "******" else pen.rng.choice([1, 3, 3, 4])
        return divider.join(self._parts(text, count, pen))

    def _parts(self, text: str, count: int, pen: Pen) -> list[str]:
        parts = [part.strip() for part in re.split(r"\*{3,6}|-{4,6}", text) if part.strip()][:1] or [
            pen.opening()
        ]
        while len(parts[0]) > _LONGEST_PART and "\n" in parts[0]:
            parts[0] = parts[0].rpartition("\n")[0].rstrip()
        size = max(12, len(parts[0].split()) + pen.rng.randint(-15, 15))
        while len(parts) < count:
            parts.append("\n\n".join(prose(pen, size)))
        return parts


class EndChecker(Family):
    id: str = "startend:end_checker"
    order: int = 75

    def draw(self, relation: str, text: str, request: str, pen: Pen) -> Arguments:
        own = [line for line in sections("topics")[pen.area] if len(line.split()) < 11 and line[:2] != "t:"]
        return {"phrase": pen.rng.choice(own) if own and pen.chance(0.4) else pen.phrase("end")}

    def checks(self, given: Arguments) -> Sequence[Verifier]:
        return (open_verifier(self.id, end_phrase=given["phrase"]),)

    def expression(self, given: Arguments) -> str:
        return f"r.strip().strip('\"').lower().endswith({lowered(given['phrase'])})"

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        text = text.rstrip().removesuffix(given["phrase"]).rstrip()
        return f"{text}{pen.rng.choice([' ', chr(10) * 2, chr(10) * 2])}{given['phrase']}"

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        phrase = given["phrase"]
        text = text.rstrip().removesuffix(phrase).rstrip()
        wrong = [
            *(
                "",
                "",
                f"{phrase} {pen.phrase('closers')}",
                f"{phrase}\n\n{pen.phrase('ps')}",
                pen.phrase("end"),
            ),
            *(" ".join(phrase.split()[1:]), " ".join(phrase.split()[:-1]), f"*{phrase}*", f"({phrase})"),
        ]
        return f"{text}\n\n{pen.rng.choice(wrong)}".rstrip()

    def fields(self, given: Arguments, rng: random.Random) -> Mapping[str, str]:
        return {"phrase": given["phrase"]}


class Quotation(Plain):
    id: str = "startend:quotation"
    order: int = 95

    def expression(self, given: Arguments) -> str:
        return "r.strip().startswith('\"') and r.strip().endswith('\"')"

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        text = text.strip().strip("\"'“”*`")
        return f'"{text}"'

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        text = text.strip().strip('"')
        wrong = [
            *("{}", "{}", "'{}'", '"{}', '{}"', "“{}”", '{o}\n\n"{}"', '"{}"\n\n{c}', "**{}**", "`{}`"),
        ]
        style = pen.rng.choice(wrong)
        filled = style.replace("{o}", pen.phrase("openers")).replace("{c}", pen.phrase("closers"))
        return filled.replace("{}", text)


class NoComma(Plain):
    id: str = "punctuation:no_comma"
    order: int = 78

    def expression(self, given: Arguments) -> str:
        return '"," not in r'

    def follow(self, text: str, given: Arguments, pen: Pen) -> str:
        return text.replace(",", pen.rng.choice(["", "", " and", ";", " -"]))

    def violate(self, text: str, given: Arguments, pen: Pen) -> str:
        if pen.chance(0.4):
            added = pen.rng.choice(
                ["For example, it can help.", "Of course, it depends.", "In short, try it.", "Yes, really."]
            )
            return insert_sentence(text, added, pen.rng)
        words = text.split(" ")
        places = [at for at, word in enumerate(words[:-1]) if word.isalpha()]
        for at in pen.rng.sample(places, min(len(places), pen.rng.choice([1, 1, 1, 2, 5]))):
            words[at] += ","
        return " ".join(words)


def _title(pen: Pen) -> str:
    if pen.chance(0.5):
        return pen.phrase("title")
    return pen.topic[:1].upper() + pen.topic[1:]
