"""Options that map the columns and labels of a file, as they are typed in a shell."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from typing import Any

from tirjudge_environments.tasks.columns import column_named, similar_name
from tirjudge_environments.tasks.messages import conversation_of

_RESPONSE_PARTS = ("responses", "response_a", "chosen", "response")
_CONVERSATIONS = ("messages", "conversation", "conversations", "conversationa", "conversationb")
"""Ends of the names of columns that hold whole conversations."""
_MOST_PLACES = 200
_MOST_ELEMENTS = 8
"""Objects of a list whose fields may be responses."""
_DEEPEST = 5
"""Steps of a place in nested columns that is suggested."""

_KNOWN_NAMES: Mapping[str, tuple[str, ...]] = {
    "prompt": (
        *("prompt", "promptraw", "question", "instruction", "query", "input", "problem", "userprompt"),
        *("userinput", "inputs", "userquery", "userquestion", "userinstruction", "usermessage", "task"),
        *("request", "inputmessages"),
    ),
    "responses": (
        *("responses", "candidates", "answers", "outputs", "completions", "generations"),
        *("filteredresps", "resps", "sampled"),
    ),
    "response": (
        *("response", "answer", "output", "completion", "generation", "modeloutput", "modelresponse"),
        *("actualoutput", "modelanswer", "prediction", "generatedtext", "messages", "conversations"),
        "conversation",
    ),
    "label": (
        *("winner", "preference", "preferred", "goldlabel", "gold", "better", "best", "comparison", "choice"),
        *("label", "humanlabel", "overallpreference", "selected"),
    ),
    "rating": (
        *("label", "rating", "score", "grade", "humanscore", "humanrating", "humanlabel", "passed", "pass"),
        *("success", "iscorrect", "correct", "quality", "overall", "stars"),
    ),
}
"""Names that files use for the parts of a row, as `similar_name` leaves them, the most likely one first."""
_NO_TEXT = re.compile("(?:id|ids|idx|index|hash|name|label|count|length|tokens|version|type|time|date|url)$")
"""Ends of names that are nearly a part's, and whose values are no texts to judge."""
_FURTHER: Mapping[str, tuple[str, ...]] = {
    "system": ("systeminstruction", "systeminstructions", "developermessage", "developerprompt"),
    "reference": (
        *("groundtruth", "referenceanswer", "expectedoutput", "expectedanswer", "expected", "goldanswer"),
        *("idealanswer", "ideal", "target", "solution", "references", "referenceoutputs"),
    ),
    "criteria": ("rubric", "rubrics", "criterion", "gradingcriteria", "guidelines"),
}
"""Names of further parts, which are used only if an option names them."""
_GIVEN = (*_FURTHER["reference"], "doc", "example", "datasetitem", "expectations", "metadata")
"""Names of objects that hold a row of the data that a model was asked about, and so no answer of it."""
_MOST_NAMED = 20
_PAIR_STEMS = ("response", "answer", "output", "completion", "conversation", "assistant", "text")
_CHOSEN = (
    *(("preferredoutput", "nonpreferredoutput"), ("preferred", "dispreferred"), ("preferred", "rejected")),
    *(("chosenresponse", "rejectedresponse"), ("positive", "negative"), ("winner", "loser")),
)
"""Names of a better and a worse response, as `similar_name` leaves them."""
_STEM = "|".join((*_PAIR_STEMS, "model"))
_PAIR_ENDS = (("a", "b"), ("1", "2"), ("0", "1"), ("left", "right"), ("one", "two"))


def places_of(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the places of texts, numbers and chats in a row: columns, and fields inside of nested ones."""
    for name, value in fields.items():
        yield from _places(str(name), value, 1)


def _places(place: str, value: Any, depth: int) -> Iterator[str]:
    # A conversation, such as a server's stored answer, is read as a whole.
    if depth == _DEEPEST or not value or not isinstance(value, Mapping | list) or conversation_of(value):
        yield place
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _places(f"{place}.{name}", one, depth + 1)
    elif isinstance(value[0], Mapping):
        for number, one in enumerate(value[:_MOST_ELEMENTS]):
            yield from _places(f"{place}.{number}", one, depth)
    else:
        yield place


def column_options(places: Sequence[str], named: Collection[str], is_rating: Callable[[str], bool]) -> str:
    """Return the `--column` options for the places of a row; COLUMN stands for an unknown one.

    `named` has the parts that options already name, and `is_rating` is True for a place of ratings.
    """
    places = places[:_MOST_PLACES]
    known = _by_name(places)
    has = {part for part in (*_RESPONSE_PARTS, "prompt", "label") if column_named(places, part) is not None}
    has |= set(named)
    prompt = _first(known, "prompt")
    # A field of the prompt, or of the data that it is from, is neither an answer to it nor a label.
    others = _by_name([one for one in places if not _within(one, "prompt", "given") and one != prompt])
    found = [] if has.intersection(_RESPONSE_PARTS) else _response_options(others, prompt)
    # A whole conversation has its prompt.
    whole = (
        all(similar_name(option.rpartition(".")[2]).endswith(_CONVERSATIONS) for option in found) and found
    )
    options = [] if "prompt" in has or (whole and not prompt) else [f"prompt={prompt or 'COLUMN'}"]
    if "label" not in has:
        alone = any(option.startswith("response=") for option in found) or "response" in has
        inner = ("prompt", "given", "response", "responses")
        outside = _by_name([one for one in places if not _within(one, *inner)])
        # Scores of other judges are no labels of people.
        own = {name: place for name, place in outside.items() if "metric" not in place.lower()}
        fits = {name: place for name, place in own.items() if is_rating(place)} if alone else own
        label = _first(fits, "rating" if alone else "label")
        taken = {option.partition("=")[2] for option in (*options, *found)}
        found += [f"label={label}"] if label and label not in taken else []
    return " ".join(f"--column {shlex.quote(option)}" for option in (*options, *found))


def _by_name(places: Sequence[str]) -> dict[str, str]:
    """Return places by their names, of several with the same last name the first, which is least nested."""
    known = {similar_name(place.rpartition(".")[2]): place for place in reversed(places)}
    return known | {similar_name(place): place for place in places}


def _within(place: str, *parts: str) -> bool:
    """Return True for a place inside of a column with the name of one of these parts, or of `_GIVEN`."""
    above = {similar_name(step) for step in place.split(".")[:-1]}
    return any(above.intersection((*_KNOWN_NAMES.get(part, _GIVEN), part)) for part in parts)


def names_a_part(name: str) -> bool:
    """Return True for a name under which rows have a prompt, responses or a label."""
    known = (names for part, names in _KNOWN_NAMES.items() if part != "rating")
    return similar_name(name) in (*chain(*known), *_RESPONSE_PARTS, *_CONVERSATIONS)


def unread_note(names: Sequence[str]) -> str:
    """Return one line about columns that no part of the judge reads, with the options for known names."""
    similar = {similar_name(name): name for name in reversed(names)}
    found = [f"{part}={place}" for part in _FURTHER if (place := _named(similar, _FURTHER[part]))]
    options = " ".join(f"--column {shlex.quote(option)}" for option in found) or "--column PART=COLUMN"
    shown = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
    return f"the judge does not use the columns {shown}; add {options} to use them"


def known_place(fields: Mapping[str, Any], part: str) -> str:
    """Return the place of a part in a row by a name in use; empty without one."""
    return _named(_by_name(list(places_of(fields))), _KNOWN_NAMES[part])


def _first(known: Mapping[str, str], part: str) -> str:
    """Return the place that holds a part by a name in use, or by a name that is nearly the part's own."""
    near = get_close_matches(part, [name for name in known if _may_be(name, known[name])], n=1, cutoff=0.8)
    return _named(known, (*_KNOWN_NAMES[part], *near))


def _named(known: Mapping[str, str], names: Iterable[str]) -> str:
    """Return the place of the first of the names that is known; empty without one."""
    return next((known[name] for name in names if name in known), "")


def _may_be(name: str, place: str) -> bool:
    """Return True for a name of texts that is the last one of its place, and so may be misspelt."""
    return not _NO_TEXT.search(name) and name == similar_name(place.rpartition(".")[2])


def _response_options(known: Mapping[str, str], prompt: str) -> list[str]:
    if responses := _named(known, _KNOWN_NAMES["responses"]):
        return [f"responses={responses}"]
    if pair := _pair(known):
        return [f"response_a={pair[0]}", f"response_b={pair[1]}"]
    for chosen, rejected in _CHOSEN:
        if chosen in known and rejected in known:
            return [f"chosen={known[chosen]}", f"rejected={known[rejected]}"]
    texts = [
        one for one in known.values() if _within(one, "responses") and one.endswith((".text", ".content"))
    ]
    if response := _named(known, _KNOWN_NAMES["response"]) or next(iter(texts), ""):
        # A field of each object of a list: the objects are the responses.
        head, first, field = response.rpartition(".0.")
        each = [f"{head}.{number}.{field}" for number in range(_MOST_ELEMENTS)] if first else []
        several = [place for place in each if place in known.values() or similar_name(place) in known]
        if first and prompt.startswith(f"{head}.0."):
            # Each object has a prompt of its own, and so is a row.
            return []
        return [f"responses={','.join(several)}"] if len(several) > 1 else [f"response={response}"]
    for name, place in known.items():
        near = get_close_matches(name, ("responses", "response"), n=1, cutoff=0.8)
        if near and _may_be(name, place):
            return [f"{near[0]}={place}"]
    return ["responses=COLUMN,COLUMN"]


def _pair(known: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the places of two responses whose names differ only in a letter, a number or a side."""
    for stem in _PAIR_STEMS:
        for one, other in _PAIR_ENDS:
            # `answer_a`, `a_answer`, `model_a_response`; the words around the stem are other stems.
            pattern = re.compile(rf"((?:{_STEM})*)({one})((?:{_STEM})*)")
            for name, place in known.items():
                found = pattern.fullmatch(name)
                if found and stem in found[1] + found[3]:
                    partner = known.get(found[1] + other + found[3])
                    if partner is not None:
                        return place, partner
    return None


def labels_option(meanings: Mapping[str, str]) -> str:
    """Return the option `--labels` that gives these values these meanings."""
    plain = all(value and not re.search(r'[,{"]|^\s|\s$', value) for value in meanings)
    if plain and not any("=" in meaning or "," in meaning for meaning in meanings.values()):
        text = ",".join(f"{value}={meaning}" for value, meaning in meanings.items())
    else:
        text = json.dumps(dict(meanings), ensure_ascii=False)
    return f"--labels {shlex.quote(text)}"
