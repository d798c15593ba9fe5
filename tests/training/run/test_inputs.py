"""What may change between start and resumption of a run: files that it reads, its recipe, its place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tirjudge
import tirjudge_sandbox
from tests.training.train_command import train as run_command
from tirjudge.storage.durable_files import RunFolder
from tirjudge.storage.run_settings import OtherSettings
from tirjudge_training.data.own_rows import RowData
from tirjudge_training.distributed import checkpoints
from tirjudge_training.distributed.checkpoints import IncompatibleCheckpoint
from tirjudge_training.methods import pipeline_of
from tirjudge_training.recipe import Recipe
from tirjudge_training.recipe_file import load
from tirjudge_training.run.inputs import PIECE, PIECES, digest
from tirjudge_training.run.run import claim

STAGES = ("demonstrations", "heldout-base", "warmup", "heldout-warmup", "rl", "heldout-rl")


def rows(*labels: str, program: str = "print(len(response_a))", prompt: str = "p") -> str:
    made = (
        {"id": f"r{n}", "prompt": f"{prompt}{n}", "responses": ["a", "b"], "label": label, "program": program}
        for n, label in enumerate(labels)
    )
    return "".join(json.dumps(one) + "\n" for one in made)


class Begun:
    """A run folder with a record, and with the stages that are done."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.base = folder, folder / "run", folder / "base"
        self.base.mkdir()
        (self.base / "config.json").write_text("{}")
        (self.base / "model.safetensors").write_bytes(b"weights")
        for name in ("train", "shown", "heldout"):
            (folder / f"{name}.jsonl").write_text(rows(*"ABAB", prompt=name[0]))
        self.settings = [
            f"model.base={self.base}",
            f"data.train={folder / 'train.jsonl'}",
            f"data.demonstrations={folder / 'shown.jsonl'}",
            f"data.heldout={folder / 'heldout.jsonl'}",
            "heldout.before=true",
            "validation.select=false",
        ]

    def claim(self, *settings: str, repeat: bool = False) -> list[str]:
        """Claim the folder as `tirjudge train` does, and return what it says."""
        said: list[str] = []
        recipe: Recipe = load(Recipe, "smol", [*self.settings, *settings])
        with RunFolder(self.run) as folder:
            data = RowData(recipe.data, recipe.environments)
            claim(folder, recipe, pipeline_of(recipe), data, repeat=repeat, say=said.append)
        return said

    def finish(self, *stages: str) -> None:
        for name in stages:
            (self.run / name).mkdir(parents=True, exist_ok=True)
            (self.run / name / "done.json").write_text("{}")

    @property
    def done(self) -> list[str]:
        return [name for name in STAGES if (self.run / name).exists()]


@pytest.fixture
def begun(tmp_path: Path) -> Begun:
    made = Begun(tmp_path)
    assert made.claim() == []
    made.finish(*STAGES)
    return made


def flip(begun: Begun) -> None:
    (begun.folder / "train.jsonl").write_text(rows(*"BABA", prompt="t"))


def shorten(begun: Begun) -> None:
    (begun.folder / "train.jsonl").write_text(rows(*"ABA", prompt="t"))


def mend(begun: Begun) -> None:
    (begun.folder / "shown.jsonl").write_text(rows(*"ABAB", program="print(len(response_b))", prompt="s"))


def remeasure(begun: Begun) -> None:
    (begun.folder / "heldout.jsonl").write_text(rows(*"ABABA", prompt="h"))


def replace_weights(begun: Begun) -> None:
    (begun.base / "model.safetensors").write_bytes(b"others!")


def adapt(begun: Begun) -> None:
    (begun.base / "adapter_config.json").write_text("{}")


def touch(begun: Begun) -> None:
    (begun.folder / "train.jsonl").write_text(rows(*"ABAB", prompt="t"))


def checkpoint(begun: Begun) -> None:
    """Checkpoints in a folder of the base model are no weights of its own."""
    (begun.base / "checkpoints").mkdir()
    (begun.base / "checkpoints" / "optimizer.pt").write_bytes(b"moments")


CHANGES: dict[str, tuple[Callable[[Begun], None], str, tuple[str, ...]]] = {
    "labels": (flip, "data.train: train.jsonl", tuple(name for name in STAGES if name != "heldout-base")),
    "rows": (shorten, "data.train: train.jsonl", tuple(name for name in STAGES if name != "heldout-base")),
    "demonstrations": (
        mend,
        "data.demonstrations: shown.jsonl",
        tuple(name for name in STAGES if name != "heldout-base"),
    ),
    "held-out rows": (
        remeasure,
        "data.heldout: heldout.jsonl",
        ("heldout-base", "heldout-warmup", "heldout-rl"),
    ),
    "base": (replace_weights, "model.base: model.safetensors", STAGES),
    "adapter": (adapt, "model.base: adapter_config.json", STAGES),
    "the same rows, written again": (touch, "", ()),
    "checkpoints beside the base": (checkpoint, "", ()),
}
"""By what changes: the change, the start of the message (empty: accepted), and the stages that it repeats."""


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_file_is_refused_or_repeats_what_depends_on_it(change, begun: Begun) -> None:
    alter, message, repeated = change
    alter(begun)
    if not message:
        assert begun.claim() == []
        assert begun.done == list(STAGES)
        return
    with pytest.raises(OtherSettings) as refused:
        begun.claim()
    line = str(refused.value)
    assert line.startswith(f"{message} is not the one that {begun.run} began with: choose another --output")
    assert line.endswith(f"repeat what depends on it with --repeat ({', '.join(repeated)})")
    assert "\n" not in line
    assert begun.done == list(STAGES), "nothing is lost"
    key = message.partition(":")[0]
    order = [name for name in STAGES if name in repeated]
    assert begun.claim(repeat=True) == [f"{name}: begins again, since {key} changed" for name in order]
    assert begun.done == [name for name in STAGES if name not in repeated]
    assert begun.claim() == []


@pytest.mark.parametrize("archived", [False, True])
def test_a_changed_folder_that_rows_name_is_noticed(archived: bool, tmp_path: Path) -> None:
    begun, work = Begun(tmp_path), tmp_path / "work"
    work.mkdir()
    (work / "report.md").write_text("done")
    name = "work.zip" if archived else "work"
    given = [json.loads(line) | {"files": [name, {}]} for line in rows(*"ABAB", prompt="t").splitlines()]
    given[0]["files"], given[1] = [{}, {}], given[1] | {"files": None, "prompt_files": name}

    def write() -> None:
        if archived:
            shutil.make_archive(str(work), "zip", work)
        (tmp_path / "train.jsonl").write_text("".join(json.dumps(one) + "\n" for one in given))

    write()
    begun.claim()
    begun.finish(*STAGES)
    write()  # an archive with another time and the same contents
    assert begun.claim() == []
    (work / "report.md").write_text("more")
    write()
    with pytest.raises(OtherSettings, match=rf"^data.train: {name} is not the one that "):
        begun.claim()


def test_a_mended_file_needs_no_option_while_nothing_is_finished(tmp_path: Path) -> None:
    """Demonstrations that are all refused ask for a correction: the same command then goes on."""
    begun = Begun(tmp_path)
    begun.claim()
    (begun.run / "demonstrations").mkdir()
    (begun.run / "demonstrations" / "samples.jsonl").write_text("{}\n")
    mend(begun)
    assert begun.claim() == ["demonstrations: begins again, since data.demonstrations changed"]
    assert begun.done == []


def test_checkpoints_are_not_dropped_without_the_option(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    begun.claim()
    (begun.run / "rl" / "checkpoints").mkdir(parents=True)
    flip(begun)
    with pytest.raises(OtherSettings, match=r"--repeat \(rl\)"):
        begun.claim()


SETTINGS = {
    "a lower learning rate": ("rl.learning_rate=5e-5", None),
    "more steps": ("rl.steps=40", "rl.steps was 30 and is now 40"),
    "fewer steps": ("rl.steps=20", None),
    "more rounds": ("iterate.rounds=3", "iterate.rounds was 2 and is now 3"),
    "fewer rounds": ("iterate.rounds=1", None),
    "more rounds of rejection": ("rejection.rounds=2", None),
    "health": ("rl.health.kl=2", ""),
    "place of the sandbox": ("rl.sandbox=docker", ""),
    "the seed": ("seed=1", None),
    "the seed's samples": ("rl.samples=4", None),
    "SFT": ("warmup.sft.learning_rate=1e-4", None),
    "more rows of demonstrations": ("demonstrations.rows=9999", None),
}
"""By what changes: the setting, and what the resumed run says; None where it is refused."""


@pytest.mark.parametrize(("setting", "said"), SETTINGS.values(), ids=SETTINGS)
def test_a_changed_setting_is_refused_or_said(setting: str, said: str | None, begun: Begun) -> None:
    key = setting.partition("=")[0]
    (begun.run / "rl" / "done.json").unlink()
    if said is None:
        with pytest.raises(OtherSettings, match=rf"\({key} was .* and is now .*\): give the same settings"):
            begun.claim(setting)
        assert begun.claim() == [], "the folder keeps what it began with"
        return
    assert begun.claim(setting) == ([said] if said else [])
    assert begun.claim(setting) == []
    assert begun.done == list(STAGES)


def begin_rl(begun: Begun, *, finished: bool, steps: int = 30) -> Path:
    stage = begun.run / "rl"
    (stage / "checkpoints" / f"checkpoint-{steps}").mkdir(parents=True)
    (stage / "checkpoints" / f"checkpoint-{steps}" / "complete").write_text("plain processes")
    (stage / "config.toml").write_text(f"[config]\nsteps = {steps}\n")
    if not finished:
        (stage / "done.json").unlink(missing_ok=True)
    return stage


def test_a_finished_stage_goes_on_with_more_steps_and_what_came_of_it_begins_again(begun: Begun) -> None:
    stage = begin_rl(begun, finished=True)
    assert begun.claim("rl.steps=40") == [
        "heldout-rl: begins again, since rl goes on",
        "rl.steps was 30 and is now 40",
    ]
    assert begun.done == [name for name in STAGES if name != "heldout-rl"]
    assert not (stage / "done.json").exists()


@pytest.mark.parametrize("finished", [False, True])
def test_no_steps_are_added_to_rates_that_fell_towards_the_last_one(finished: bool, tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    begun.settings.append("rl.decay=true")
    begun.claim()
    begun.finish(*STAGES[:5])
    begin_rl(begun, finished=finished)
    with pytest.raises(OtherSettings, match=r"^rl.steps: with rl.decay the rates of rl in .* fell towards"):
        begun.claim("rl.steps=40")
    assert begun.claim() == [], "the folder keeps what it began with"


@pytest.mark.parametrize(
    "made", ["rl-1/checkpoints/checkpoint-1", "rejection-1/samples.jsonl", "rejection-1/samples.1.jsonl"]
)
def test_what_depends_on_a_stage_is_not_dropped_for_more_steps(made: str, tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    begun.settings.append("method=iterative")
    begun.claim()
    begun.finish("rl-0", "select-0")
    (begun.run / "rl-0" / "checkpoints").mkdir()
    (begun.run / "rl-0" / "config.toml").write_text("[config]\nsteps = 30\n")
    (begun.run / made).parent.mkdir(parents=True)
    (begun.run / made).write_text("{}\n")
    name = made.partition("/")[0]
    if name == "rl-1":
        (begun.run / name / "config.toml").write_text("[config]\nsteps = 30\n")
        begun.finish(name)
    with pytest.raises(OtherSettings, match=rf"repeat them with --repeat \({name}\)$"):
        begun.claim("rl.steps=40")
    assert (begun.run / made).exists()
    assert begun.claim() == [], "the folder keeps what it began with"


def test_the_rounds_of_other_methods_keep_their_numbers(tmp_path: Path) -> None:
    begun = Begun(tmp_path)
    begun.settings.append("method=iterative")
    begun.claim()
    begun.finish("rejection-1", "sft-1")
    assert begun.claim() == []
    assert sorted(path.parent.name for path in begun.run.glob("*/done.json")) == ["rejection-1", "sft-1"]


@pytest.mark.parametrize("change", ["package version", "number of processes"])
def test_a_newer_version_and_other_processes_go_on(
    change: str, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    if change == "package version":
        for package in (tirjudge_sandbox, tirjudge):
            monkeypatch.setattr(package, "__version__", "9.9.9")
    else:
        monkeypatch.setenv("WORLD_SIZE", "2")
    assert begun.claim() == []
    assert begun.done == list(STAGES)


def test_a_checkpoint_of_processes_that_shared_the_weights_needs_the_same_launch(begun: Begun) -> None:
    stage = begin_rl(begun, finished=False)
    (stage / "checkpoints" / "checkpoint-30" / "complete").write_text("FSDP")
    with pytest.raises(IncompatibleCheckpoint, match="launch the run as before"):
        checkpoints.latest(stage / "checkpoints")


def test_another_place_and_speed_are_not_compared(begun: Begun) -> None:
    moved = begun.run.with_name("moved")
    shutil.move(begun.run, moved)
    begun.run = moved
    assert begun.claim("rl.rollouts_at_once=3") == []
    assert begun.done == list(STAGES)


def test_a_run_without_digests_goes_on_with_a_note(begun: Begun) -> None:
    (begun.run / "inputs.json").unlink()
    flip(begun)
    (note,) = begun.claim()
    assert note.startswith(f"{begun.run / 'inputs.json'} is missing")
    assert begun.done == list(STAGES)
    assert begun.claim() == [], "from now on a change is noticed"


def test_a_large_file_is_read_in_pieces(tmp_path: Path) -> None:
    """Both ends count, and a change that a piece does not cover is not seen: weights change everywhere."""
    path, size = tmp_path / "model.safetensors", PIECE * (PIECES + 8)
    path.write_bytes(bytes(size))
    seen = {digest(path)}
    for place in (0, size - 1):
        with path.open("r+b") as file:
            file.seek(place)
            file.write(b"x")
        seen.add(digest(path))
    path.write_bytes(bytes(size + 1))
    seen.add(digest(path))
    assert len(seen) == 4


@pytest.mark.slow
def test_the_command_refuses_other_rows_in_one_line(roomy_model: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text(rows(*"ABABAB"))
    words = ["--recipe", "judgelrm-7b", "--model", str(roomy_model), "--data", str(data)]
    for setting in (
        "rl.generator=transformers",
        "rl.max_tokens=8",
        "rl.groups=2",
        "rl.samples=2",
        "rl.micro_batch=2",
        "data.max_prompt_tokens=8000",
        "environments.judgelrm.options.terms=relation-only",
    ):
        words += ["--set", setting]
    run = ["--output", str(tmp_path / "run")]
    assert run_command(*words, *run).exit_code == 0
    data.write_text(rows(*"BABABA"))
    refused = run_command(*words, *run, code=2)
    assert refused.stderr.startswith("tirjudge train: data.train: rows.jsonl is not the one that")
    assert refused.stderr.count("\n") == 1
    again = run_command(*words, *run, "--repeat", code=0)
    assert "rl: begins again, since data.train changed" in again.stderr
