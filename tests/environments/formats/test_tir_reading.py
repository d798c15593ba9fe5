"""The three TIR-Judge formats: how answers are read, and in which orders responses are shown."""

from __future__ import annotations

from collections import Counter

import pytest

from tirjudge_environments import (
    Completion,
    Continue,
    Finish,
    Malformed,
    Message,
    Refused,
    RunCode,
    TirListwise,
    TirPairwise,
    TirPointwise,
    ToolCall,
    Verdict,
    View,
)

PROGRAM = "```python\nprint(1)\n```\n"


def read(environment, task, text, *, finish=Finish.END, view=0, **fields):
    completion = Completion(text=text, finish=finish, **fields)
    return environment.read(task, environment.views(task)[view], completion)


def preference(letter: str) -> str:
    return f"<preference>{letter}</preference>"


def test_a_letter_means_the_response_shown_under_it(make_task) -> None:
    task, environment = make_task(), TirPairwise(order="both")
    assert environment.views(task) == (View("AB", (0, 1)), View("BA", (1, 0)))
    assert read(environment, task, preference("A")) == Verdict(choice=0)
    assert read(environment, task, preference("A"), view=1) == Verdict(choice=1)
    assert read(environment, task, preference("B"), view=1) == Verdict(choice=0)


@pytest.mark.parametrize("answer", ["C", "a", "", "A B", "Response A", "AB", "Α"])
def test_no_other_letter_is_a_verdict(make_task, answer: str) -> None:
    assert isinstance(read(TirPairwise(), make_task(), preference(answer)), Malformed)


@pytest.mark.parametrize(
    ("answer", "score"), [("1", 1), ("10", 10), ("7", 7), ("7.5", 7.5), ("10.0", 10), (" 8\n", 8), ("07", 7)]
)
def test_a_score_from_1_to_10(make_task, answer: str, score: float) -> None:
    reading = read(TirPointwise(), make_task(), f"<score>{answer}</score>", view=1)
    assert reading == Verdict(scores={1: score})


@pytest.mark.parametrize(
    "answer",
    ["0", "11", "0.9", "10.1", "-5", "+5", "5/10", "1e1", "", "nan", "inf", "٣", "7,5", "ten", "5" * 5000],
)
def test_no_other_score_is_a_verdict(make_task, answer: str) -> None:
    assert isinstance(read(TirPointwise(), make_task(), f"<score>{answer}</score>"), Malformed)


def test_a_program_comes_before_any_verdict(make_task) -> None:
    reading = read(TirPairwise(), make_task(), f"{PROGRAM}So {preference('A')}")
    assert isinstance(reading, RunCode)
    assert (reading.source, reading.opened, reading.end) == ("print(1)\n", False, len(PROGRAM))


@pytest.mark.parametrize(
    ("text", "finish", "kind"),
    [
        ("```json\n{}\n```\n", Finish.STOP, Continue),
        ("```python\nprint(1)\n", Finish.STOP, Continue),
        ("A is better", Finish.END, Malformed),
        ("A is better", Finish.LENGTH, Continue),
        ("<preference>A</preference>", Finish.LENGTH, Verdict),
        ("<preference>A</preference>\n```output", Finish.STOP, Continue),
        ("```python\nprint(1)\n", Finish.END, Malformed),
        ("```\n<preference>A</preference>\n```", Finish.END, Verdict),
        ("```python\nprint('<preference>A</preference>')\n", Finish.LENGTH, Continue),
        ("<preference>A</preference>\n```python\nprint('<preference>')\n", Finish.LENGTH, Verdict),
    ],
)
def test_other_turns_are_continued_final_or_malformed(
    make_task, text: str, finish: Finish, kind: type
) -> None:
    assert isinstance(read(TirPairwise(), make_task(), text, finish=finish), kind)


def test_a_text_only_judge_runs_nothing(make_task) -> None:
    environment, task = TirPairwise(tools=False), make_task()
    prompt = environment.prompt(task, environment.views(task)[0])
    assert "Python" not in prompt.messages[0].content
    assert (prompt.stop, prompt.tools) == ((), ())
    assert read(environment, task, PROGRAM + preference("A")) == Verdict(
        choice=environment.views(task)[0].order[0]
    )


def test_tools_can_be_disabled_by_domain(make_task) -> None:
    environment = TirPairwise(tools_by_domain={"safety": False})
    safety, math = make_task(domain="safety"), make_task(domain="math")
    assert isinstance(read(environment, safety, PROGRAM), Malformed)
    assert isinstance(read(environment, math, PROGRAM), RunCode)
    text = environment.prompt(safety, environment.views(safety)[0]).messages[0].content
    assert "while being harmless" in text


@pytest.mark.parametrize(
    ("environment", "bindings"),
    [
        (TirPointwise(), {"prompt": "Say hello.", "response": "a"}),
        (
            TirListwise(order="given"),
            {
                "prompt": "Say hello.",
                "response_a": "a",
                "response_b": "b",
                "response_c": "c",
                "responses": ["a", "b", "c"],
            },
        ),
        (TirListwise(order="given", bindings=False), {}),
        (TirListwise(order="given", exact=True), {}),
    ],
)
def test_programs_get_the_judged_texts_as_bindings(make_task, environment, bindings) -> None:
    assert read(environment, make_task("a", "b", "c"), PROGRAM).bindings == bindings


def test_a_native_call_is_a_program_and_a_fence_is_not(make_task) -> None:
    environment, task = TirPairwise(protocol="tool"), make_task()
    prompt = environment.prompt(task, environment.views(task)[0])
    assert [tool.name for tool in prompt.tools] == ["run_python"]
    assert prompt.stop == ()
    call = ToolCall("call-7", "run_python", '{"code": "print(1)"}')
    reading = read(environment, task, "", finish=Finish.TOOL_CALL, tool_calls=(call,))
    assert (reading.source, reading.call_id) == ("print(1)", "call-7")
    assert isinstance(read(environment, task, PROGRAM), Malformed)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("run_bash", '{"code": "ls"}'),
        ("run_python", "print(1)"),
        ("run_python", '{"code": 1}'),
        ("run_python", "[]"),
        ("run_python", "[" * 100_000),
        ("run_python", '{"code": 1' + "0" * 5000 + "}"),
    ],
)
def test_an_invalid_call_is_answered_with_its_fault(make_task, name: str, arguments: str) -> None:
    """As a call of any other tool is: the model can then call again."""
    environment, call = TirPairwise(protocol="tool"), ToolCall("1", name, arguments)
    reading = read(environment, make_task(), "", finish=Finish.TOOL_CALL, tool_calls=(call,))
    fault = "The tools are: run_python." if name == "run_bash" else "not a JSON object"
    assert fault in environment.show(reading, Refused(reading.fault))
    assert reading.call_id == "1"


def test_a_random_order_belongs_to_the_task_and_the_seed(make_task) -> None:
    tasks = [make_task("a", "b", "c", id=f"task-{i}") for i in range(600)]
    environment = TirListwise(seed=3)
    orders = [environment.views(task)[0].order for task in tasks]
    assert orders == [TirListwise(seed=3).views(task)[0].order for task in tasks]
    assert orders != [TirListwise(seed=4).views(task)[0].order for task in tasks]
    counts = Counter(orders)
    assert len(counts) == 6
    assert min(counts.values()) > 60, "each of the six orders about a hundred times"


def test_a_list_is_judged_in_forward_and_reverse_order(make_task) -> None:
    views = TirListwise(order="both").views(make_task("a", "b", "c"))
    assert views == (View("ABC", (0, 1, 2)), View("CBA", (2, 1, 0)))


@pytest.mark.parametrize(
    ("environment", "count", "message"),
    [
        (TirPairwise(), 3, "a pair has two responses; task 'task-1' has 3"),
        (TirListwise(), 2, "at least three responses; task 'task-1' has 2"),
    ],
)
def test_a_task_of_the_wrong_size_is_refused(make_task, environment, count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        environment.views(make_task(*map(str, range(count))))


def test_a_conversation_is_shown_as_one_text(make_task) -> None:
    task = make_task(
        prompt=(Message("user", "Hi"), Message("assistant", "Hello."), Message("user", "Again!"))
    )
    environment = TirPairwise()
    text = environment.prompt(task, environment.views(task)[0]).messages[0].content
    assert "Instruction:\nUser: Hi\n\nAssistant: Hello.\n\nUser: Again!\n\nResponse A:" in text


LONG = "head " + "x" * 990 + " tail"


@pytest.mark.parametrize(
    ("environment", "responses"),
    [
        (TirPairwise(shown_chars=10, order="given"), (LONG, "short")),
        (TirListwise(shown_chars=10, order="given"), (LONG, "short", "brief")),
        (TirPointwise(shown_chars=10), (LONG,)),
    ],
)
def test_a_prompt_shows_both_ends_of_a_long_response_and_programs_find_it_whole(
    make_task, environment, responses
) -> None:
    task = make_task(*responses)
    text = environment.prompt(task, environment.views(task)[0]).messages[0].content
    assert "head \n... 990 characters left out ...\n tail" in text
    assert all(short in text for short in responses[1:])
    program = read(environment, task, PROGRAM, finish=Finish.STOP)
    assert isinstance(program, RunCode)
    assert LONG in program.bindings.values()
