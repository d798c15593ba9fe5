"""Local models on the command line: their note, their prompts, and rows that exceed their context."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from examples.miniature import TRAINED
from tests.model_families import tokenizer_of
from tests.tirjudge.cli.test_relabelling import without_times
from tests.tirjudge.endpoint_server import EndpointServer
from tests.tirjudge.hub_cache import COMMIT, snapshot
from tests.tirjudge.judge_command import command
from tests.tirjudge.smollm2 import needs_smollm2, use_converted
from tests.tirjudge.tiny_models import bpe_tokenizer, tiny_qwen3
from tirjudge.models.resolve import embedded_model, read_note
from tirjudge_environments.instruction_checks import followed, verifiers_of

EXAMPLE = Path(__file__).parents[3] / "examples" / "instructions.jsonl"
CONSTRAINTS = Path(__file__).parents[1] / "constraints.jsonl"
NOTE = "demonstration model: knows nothing"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Save a model with random weights and a note that selects the short prompts."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = bpe_tokenizer("Instruction: Which is better? Response A: Response B:")
    tiny_qwen3(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "tirjudge.json").write_text(json.dumps({"prompts": "mini", "note": NOTE}))
    return str(folder)


def judge(*arguments: str, code: int | None = None) -> Result:
    return command("judge", *arguments, code=code)


def rows(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def test_a_models_note_accompanies_its_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run = judge(
        "--listwise", str(CONSTRAINTS), "--model", model, "--max-tokens", "8", "--limit", "3", code=1
    )  # random weights give no verdict
    assert f"judging with {model}, {NOTE}" in run.stderr
    assert NOTE in run.stdout
    judged = rows("constraints.verdicts.jsonl")
    assert len(judged) == 3
    assert {(row["model"], row["note"], row["format"]) for row in judged} == {(model, NOTE, "listwise")}
    assert all(row["completion_tokens"] <= 8 for row in judged)


def test_a_row_too_long_for_the_model_fails_and_fits_when_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.chdir(tmp_path)
    row = {"prompt": "p", "responses": ["long " * 5000, "y"]}
    Path("rows.jsonl").write_text(json.dumps(row) + "\n")
    arguments = ("rows.jsonl", "--model", model, "--max-tokens", "4")
    run = judge(*arguments, code=1)
    assert "rows.jsonl:1: prompt_too_long: " in run.stderr
    assert "tokens" in run.stderr
    run = judge(
        *arguments, "--truncate", "200", "--output", "cut.jsonl", code=1
    )  # random weights give no verdict
    assert rows("cut.jsonl")[0]["cut"] is True


def test_a_model_is_shown_as_much_of_a_response_as_in_its_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(model, tmp_path / "model")
    (folder / "tirjudge.json").write_text(json.dumps({"prompts": "mini", "shown_chars": 20}))
    Path("rows.jsonl").write_text(json.dumps({"prompt": "p", "responses": ["long " * 100, "y"]}) + "\n")
    arguments = ("rows.jsonl", "--model", str(folder), "--max-tokens", "4", "--output")
    deliberate = ("--format", "tir-pairwise", "--option", "shown_chars=500")
    for output, *options in (("excerpts",), ("whole", *deliberate)):
        assert judge(*arguments, output, *options).exit_code == 1, "random weights give no verdict"
    # The tokenizer knows no word of the response, which takes about a token per character.
    assert rows("excerpts")[0]["prompt_tokens"] + 300 < rows("whole")[0]["prompt_tokens"]
    for options, name in (("--shown-chars", "200"), "shown_chars"), (("--prompts", "tir"), "prompts"):
        refused = judge(*arguments, "refused", *options, code=2)
        assert f"this model was trained with {name} = " in refused.stderr


def test_a_model_limits_the_tokens_of_a_view(tmp_path: Path, model: str) -> None:
    """The model has random weights and never ends a turn."""
    folder = shutil.copytree(model, tmp_path / "model")
    (folder / "tirjudge.json").write_text(json.dumps({"prompts": "mini", "max_tokens": 6}))
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "p", "responses": ["x", "y"]}) + "\n")
    written = {}
    for name, *options in (("note",), ("given", "--max-tokens", "9")):
        output = tmp_path / name
        judge(
            str(tmp_path / "rows.jsonl"), "--model", str(folder), "--output", str(output), *options, code=1
        )  # random weights give no verdict
        (row,) = rows(str(output))
        settings = json.loads(output.with_name(f"{name}.settings.json").read_text())["settings"]
        written[name] = (row["stop"], row["completion_tokens"], settings["max_tokens"])
    assert written == {"note": ("token_budget", 6, 6), "given": ("token_budget", 9, 9)}


def test_the_thinking_mode_of_the_command_line_is_that_of_the_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """JudgeLRM's turn begins with `<think>`, which a template in the other mode closes."""
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(model, tmp_path / "model")
    (folder / "tirjudge.json").unlink()
    tokenizer_of("qwen3").save_pretrained(folder)
    Path("rows.jsonl").write_text(json.dumps({"prompt": "p", "responses": ["x", "y"]}) + "\n")
    arguments = ("rows.jsonl", "--model", str(folder), "--format", "judgelrm-pair", "--max-tokens", "4")
    run = judge(*arguments, "--no-enable-thinking", code=1)
    [line] = [line for line in run.stderr.splitlines() if line.startswith("rows.jsonl:1: ")]
    assert "enable_thinking must be true" in line
    judge(*arguments, "--enable-thinking", "--overwrite")
    assert rows("rows.verdicts.jsonl")[0]["prompt_tokens"] > 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "not JSON"), ('{"promts": "mini"}', "promts: Extra inputs"), ("[]", "Input should be")],
)
def test_an_unreadable_note_is_named(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "tirjudge.json").write_text(text)
    with pytest.raises(ValueError, match=r"tirjudge\.json: ") as raised:
        read_note(str(tmp_path))
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_labels_of_real_instructions_are_right() -> None:
    """The response of the label keeps every instruction of its prompt, strictly, and no other one does."""
    examples = rows(str(EXAMPLE))
    sizes = [len(row["responses"]) for row in examples]
    assert min(sizes) == 2 < max(sizes)
    for row in examples:
        kept = [all(followed(verifiers_of(row), response).strict) for response in row["responses"]]
        assert kept == [letter == row["label"] for letter in "ABCD"[: len(kept)]], row["id"]


def test_the_miniature_judges_its_constraints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    note = read_note(str(TRAINED))
    assert note.note.startswith("demonstration model")
    judge("--listwise", str(CONSTRAINTS), "--model", str(TRAINED), code=0)
    judged = rows("constraints.verdicts.jsonl")
    assert {(row["model"], row["note"]) for row in judged} == {(str(TRAINED), note.note)}
    assert sum(row["programs"] for row in judged) > 0


@pytest.mark.slow
def test_a_hub_id_judges_as_its_folder_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    snapshot(TRAINED, "owner/judge", tmp_path / "hub", monkeypatch)
    judged = {}
    for name in ("owner/judge", str(TRAINED)):
        judge("--listwise", str(CONSTRAINTS), "--model", name, "--limit", "3", "--output", "out", code=0)
        judged[name] = [{**row, "model": "", "seconds": 0} for row in rows("out")]
        settings = json.loads(Path("out.settings.json").read_text())["settings"]
        assert (settings["weights"] == COMMIT[:16]) == (name == "owner/judge")
        for file in ("out", "out.settings.json"):
            Path(file).unlink()
    by_id, by_folder = (
        [[row["verdict"], *(view["segments"] for view in row["views"])] for row in some]
        for some in judged.values()
    )
    assert sum(row["programs"] for row in judged["owner/judge"]) > 0
    assert {row["note"] for some in judged.values() for row in some} == {read_note(str(TRAINED)).note}
    assert without_times(by_id) == without_times(by_folder)


def test_the_note_of_a_model_applies_behind_an_endpoint(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    model: str,
    server: EndpointServer,
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = snapshot(Path(model), "owner/judge", tmp_path / "hub", monkeypatch)
    note = {"prompts": "mini", "enable_thinking": False, "max_tokens": 77, "note": NOTE}
    (folder / "tirjudge.json").write_text(json.dumps(note))
    Path("rows.jsonl").write_text(json.dumps({"prompt": "p", "responses": ["x", "y"]}) + "\n")
    # As vLLM lists a model under another name than that of its folder.
    monkeypatch.setattr(server, "cards", [{"id": "judge", "object": "model", "root": str(folder)}])
    for name, note_of in (("owner/judge", "owner/judge"), ("judge", str(folder))):
        asked = ("rows.jsonl", "--base-url", server.url, "--model", name, "--no-tools", "--overwrite")
        judge(*asked, "--output", "unaware", code=0)
        assert f"give --note-of {note_of}" in caplog.text
        caplog.clear()
        run = judge(*asked, "--output", "out", "--note-of", note_of)
        assert (run.exit_code, caplog.text) == (0, ""), run.output
    before, after = server.bodies[:2]
    assert (after["max_tokens"], after["chat_template_kwargs"]) == (77, {"enable_thinking": False})
    assert len(after["messages"][0]["content"]) < len(before["messages"][0]["content"]) / 2
    assert rows("out")[0]["note"] == NOTE


def test_the_embedded_model_is_small_and_has_the_prompts_of_its_training() -> None:
    folder = Path(embedded_model())
    note = read_note(str(folder))
    assert note.prompts == "smol"
    assert note.max_tokens is not None
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 12_000_000
    assert not list(folder.glob("tokenizer*"))


@needs_smollm2
def test_a_format_is_refused_before_the_embedded_model_is_converted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for options in (("--format", "j1-pav"), ("--pairwise", "--prompts", "nope"), ("--request-field", "x=1")):
        run = judge(str(EXAMPLE), *options, code=2)
        assert run.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@needs_smollm2
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_embedded_model_judges_real_instructions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers are in the model card; this shows that pairs and lists get verdicts, through programs."""
    use_converted(tmp_path / "cache", monkeypatch)
    monkeypatch.chdir(tmp_path)
    examples = rows(str(EXAMPLE))
    chosen = [*examples[:2], examples[-1]]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chosen))
    run = judge("rows.jsonl", code=0)
    assert "unmeasured" not in run.stderr
    judged = rows("rows.verdicts.jsonl")
    assert {row["model"] for row in judged} == {"tirjudge-smol"}
    assert {row["format"] for row in judged} == {"pairwise", "listwise"}
    assert sum(row["programs"] for row in judged) > 0
    limit = read_note(embedded_model()).max_tokens
    assert limit is not None
    assert all(view["completion_tokens"] <= limit for row in judged for view in row["views"])
