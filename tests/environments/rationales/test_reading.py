"""Reading a rationale judge's answer: reasons, five verdicts, and malformed answers with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirjudge_environments import Completion, Finish, Malformed, Verdict
from tirjudge_environments.formats.rationale import Rationale
from tirjudge_environments.rationales import (
    Assessment,
    Decomposition,
    Matching,
    read_assessment,
    read_decomposition,
    read_matching,
)
from tirjudge_environments.turn_reader import behind_thinking

O3 = """<RESULT_START>
List of reasons:
- A breaks the "count limit 100" instruction; at least two ads are 110-120 chars long.
- A never mentions the product name "Tips";
  B explicitly builds every slogan around "Tips".
- Although A uses "play in advance," it fails major constraints:
    - hashtags
Final assessment result:
\\boxed{A<B}
<RESULT_END>"""


def result(box: str, *reasons: str) -> str:
    listed = "\n".join(reasons)
    return f"<RESULT_START>\nList of reasons:\n{listed}\nFinal assessment result:\n{box}\n<RESULT_END>"


def test_a_published_list_is_read_with_its_continued_lines() -> None:
    """The reasons are o3's of Table 1, in the layout that Fig. 13 asks for."""
    assert read_assessment(O3) == Assessment(
        (
            'A breaks the "count limit 100" instruction; at least two ads are 110-120 chars long.',
            'A never mentions the product name "Tips"; B explicitly builds every slogan around "Tips".',
            'Although A uses "play in advance," it fails major constraints: - hashtags',
        ),
        "B",
        1,
    )


@pytest.mark.parametrize(
    ("box", "preferred", "strength"),
    [
        ("\\boxed{A>>B}", "A", 2),
        ("\\boxed{A>B}", "A", 1),
        ("\\boxed{A=B}", "", 0),
        ("\\boxed{B>A}", "B", 1),
        ("\\boxed{B>>A}", "B", 2),
        ("\\boxed{A<B}", "B", 1),
        ("\\boxed{A<<B}", "B", 2),
        ("\\boxed{B<A}", "A", 1),
        ("$\\boxed{ A > B }$", "A", 1),
        ("Response B is slightly favored by human expert annotators: \\boxed{B>A}", "B", 1),
        ("\\boxed{A>B} or rather \\boxed{B>>A}", "B", 2),
    ],
)
def test_the_five_verdicts(box: str, preferred: str, strength: int) -> None:
    assert read_assessment(result(box, "- r")) == Assessment(("r",), preferred, strength)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no <RESULT_START>"),
        ("- r\n\\boxed{A>B}", "no <RESULT_START>"),
        (result("\\boxed{A>B}").removesuffix("<RESULT_END>"), "no <RESULT_START>"),
        (result("A>B", "- r"), "no \\boxed{}"),
        (result("\\boxed{A>>>B}"), "none of the five"),
        (result("\\boxed{A>A}"), "none of the five"),
        (result("\\boxed{B}"), "none of the five"),
        (result("\\boxed{A>B} \\boxed{C>A}"), "none of the five"),
        (result("\\boxed{A>B"), "none of the five"),
        (result("\\boxed{A==B}"), "none of the five"),
    ],
)
def test_anything_else_is_malformed(text: str, reason: str) -> None:
    read = read_assessment(text)
    assert isinstance(read, Malformed)
    assert reason in read.reason


def test_lists_of_every_kind() -> None:
    read = read_assessment(result("\\boxed{A=B}", "1. one", "2) two", "* three", "• four", "-", "- ", "none"))
    assert isinstance(read, Assessment)
    assert read.reasons == ("one", "two", "three", "four", "none")
    bare = read_assessment("<RESULT_START>no list\n\\boxed{A=B}<RESULT_END>")
    assert bare == Assessment((), "", 0)


def test_a_verdict_names_the_tasks_own_candidates(make_task) -> None:
    judge, task = Rationale(order="both"), make_task()
    ab, ba = judge.views(task)
    thinking = "<think>" + result("\\boxed{A>B}")
    text = thinking + "</think>\n" + result("\\boxed{B>>A}", "- r")
    completion = Completion(text=text, finish=Finish.END)
    assert judge.read(task, ab, completion) == Verdict(choice=1, parsed={"reasons": ["r"], "strength": 2})
    assert judge.read(task, ba, completion) == Verdict(choice=0, parsed={"reasons": ["r"], "strength": 2})
    tie = Completion(text=result("\\boxed{A=B}"), finish=Finish.END)
    assert judge.read(task, ab, tie) == Verdict(tie=True, parsed={"reasons": [], "strength": 0})
    assert judge.read(task, ab, Completion(text=thinking, finish=Finish.END)) == Malformed(
        "the thinking was not closed"
    )


def test_a_decomposition_is_read_strictly() -> None:
    """The checklist is Fig. 7's, in the layout that Fig. 6 asks for."""
    claims = ("@Response 1 makes an unsupported claim", "@Response 1 does not refute the claim")
    text = (
        "<RESULT_START>\nCLAIM_COUNT=2\nCLAIMS:\n"
        f"- C1: {claims[0]}\n- C2: {claims[1]}\n"
        "IGNORED_SUMMARY:\n- Geoffrey was Douglas. (Reason: extraneous)\n<RESULT_END>"
    )
    ignored = ("Geoffrey was Douglas. (Reason: extraneous)",)
    assert read_decomposition(text) == Decomposition(claims, ignored)
    empty = "<RESULT_START>\nCLAIM_COUNT=0\nCLAIMS:\n<RESULT_END>"
    assert read_decomposition(empty) == Decomposition(())
    for broken in ("", text.replace("=2", "=3"), text.replace("C2", "C3"), text.replace("CLAIMS:", "")):
        assert isinstance(read_decomposition(broken), Malformed)


PIECES = st.sampled_from(
    [
        *("<RESULT_START>", "<RESULT_END>", "<think>", "</think>", "\n", " ", "- ", "1. ", "\\boxed{", "}"),
        *("A>B", "\\boxed{B>>A}", "Final assessment result:", "CLAIM_COUNT=1", "CLAIMS:", "- C1: x"),
        *("S1: EG", " F1", "\ud800", "\x00", "IGNORED_SUMMARY:"),
        *("R1@S1: 1.00", "- R2@S2: 0.5", "R", "@", "S0: ", "9" * 30, "("),
    ]
)


@given(st.one_of(st.text(), st.lists(PIECES, max_size=40).map("".join)))
def test_any_text_is_a_reading(text: str) -> None:
    assert_read(text)


def assert_read(text: str) -> None:
    assert isinstance(read_assessment(text), Assessment | Malformed)
    assert isinstance(read_decomposition(text), Decomposition | Malformed)
    for humans, reasons in ((1, 3), (2, 2)):
        assert isinstance(read_matching(text, humans=humans, reasons=reasons), Matching | Malformed)


REPEATED = (
    *("<RESULT_START>", "<RESULT_START><RESULT_END>", "\\boxed{", "\\boxed{A>B}", "- ", "-\n", "- x\n", " "),
    *("\t-", "-------", "(", "R1@S1: 1.00\n", "R1@S1:", "S1: EG F1", "CLAIM_COUNT=", "- C1: x\n", "\n"),
    *("final assessment result\n", "1", "1.", "<think>", "</think>", "_*"),
)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "size", [100_000, pytest.param(1_000_000, marks=pytest.mark.soak)], ids=["100 kB", "1 MB"]
)
def test_a_long_text_of_anything_is_read_in_linear_time(size: int) -> None:
    for piece in REPEATED:
        body = piece * (size // len(piece))
        for text in (
            body,
            f"<RESULT_START>{body}<RESULT_END>",
            f"<RESULT_START>\n{body}\n\\boxed{{A>B}}<RESULT_END>",
        ):
            behind_thinking(text)
            assert_read(text)
