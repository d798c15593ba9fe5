"""The layout rules of CONTRIBUTING, checked on the source itself."""

from __future__ import annotations

import ast
import email
import inspect
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grimp
import pytest
import yaml
from packaging.licenses import canonicalize_license_expression

import tirjudge_sandbox
from benchmarks import layout
from tirjudge.cli.options import RunOptions
from tirjudge_environments.types import Later

ROOT = Path(__file__).parent.parent
PACKAGES = {name: ROOT / folder for name, folder in layout.PACKAGES.items()}
HEAVY = (
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "datasets",
    "safetensors",
    "tokenizers",
    "vllm",
    "docker",
    "ipykernel",
    "jupyter_client",
    "zmq",
    "RestrictedPython",
    "mcp",
    "fastapi",
    "starlette",
    "uvicorn",
    "prometheus_client",
    "langdetect",
    "math_verify",
    "nltk",
    "punkt",
    "jinja2",
    "markupsafe",
)
FRAMEWORKS = {"inspect_ai", "openenv", "skyrl_gym", "verifiers", "verl"}
"""An adapter whose class extends a framework's imports it at the top: there is no other place."""
SHARED: dict[str, set[str]] = {
    "tirjudge.evaluation.benchmarks": {"base"},
    "tirjudge.evaluation.protocols": set(),
    "tirjudge.evaluation.stored_outputs": {"base", "columns", "files", "reading"},
    "tirjudge.generation": {"base", "cached", "model_files", "spending", "vllm_worker"},
    "tirjudge_environments.adapters": {"dialogues", "settings", "verl_views"},
    "tirjudge_environments.formats": {
        "reward_terms",
        "rm_r1_rubrics",
        "text_only",
        "tir",
        "tir_comparison",
        "tir_pointwise",
    },
    "tirjudge_training.corpora.sources": set(),
    "tirjudge_training.weight_sync": {"base"},
    "tirjudge_training.stages": {"base"},
}
"""Modules that the members of a family share, by the package of the family. All its others are members."""
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "manager"}


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES)


def source_files() -> list[Path]:
    return sorted(path for folder in PACKAGES.values() for path in folder.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def docstrings(path: Path) -> list[str]:
    return [*layout.docstrings(parsed(path))]


def module_name(path: Path) -> str:
    for package, folder in PACKAGES.items():
        if path.is_relative_to(folder):
            parts = path.relative_to(folder).with_suffix("").parts
            return ".".join((package, *(part for part in parts if part != "__init__")))
    raise ValueError(path)


def imported_at_the_top(tree: ast.Module) -> Iterator[str]:
    """Return the modules that this module imports at import time, leaving out `if TYPE_CHECKING`."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def extends_a_framework(path: Path) -> bool:
    top = {name.split(".")[0] for name in imported_at_the_top(parsed(path))}
    return path.parent.name == "adapters" and bool(top & FRAMEWORKS)


def offenders(broken: Callable[[Path], object]) -> list[str]:
    """The source files for which `broken` is true, so that a failure names them all."""
    return [str(path.relative_to(ROOT)) for path in source_files() if broken(path)]


def test_a_module_begins_with_a_docstring_whose_first_line_is_a_sentence() -> None:
    def broken(path: Path) -> bool:
        docstring = ast.get_docstring(parsed(path))
        return not docstring or not docstring.splitlines()[0].endswith(".")

    assert offenders(broken) == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert offenders(lambda path: path.stem in EMPTY_NAMES) == []


def test_docstrings_name_their_subject() -> None:
    """None begins with "Of", "What", "How" or the like, which only make sense next to the code."""
    assert offenders(lambda path: any(map(layout.RIDDLES.match, docstrings(path)))) == []


def test_docstrings_repeat_the_noun() -> None:
    """At most 1 % use a chain of pronouns, such as "one that" or "those that", in place of a noun."""
    texts = [text for path in source_files() for text in docstrings(path)]
    assert sum(bool(layout.PRONOUN_CHAINS.search(text)) for text in texts) <= len(texts) / 100


def test_file_lengths() -> None:
    """No file has more than 600 lines."""
    lines = [len(path.read_text().splitlines()) for path in source_files()]
    assert max(lines) <= 600


def test_a_package_root_has_at_most_fourteen_modules() -> None:
    for folder in PACKAGES.values():
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(modules) <= 14, folder


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    def broken(path: Path) -> set[str]:
        top = {name.split(".")[0] for name in imported_at_the_top(parsed(path))}
        return top & set(HEAVY)

    assert offenders(broken) == []


def test_no_private_path_of_a_machine() -> None:
    assert offenders(lambda path: "/work/" in path.read_text()) == []


def test_the_folders_of_the_packages_are_no_packages_themselves() -> None:
    """A package called `sandbox` would hide, or be hidden by, a user's own folder of that name."""
    for name in ("sandbox", "environments", "training"):
        assert not (ROOT / name / "__init__.py").exists()


def test_contracts_have_at_most_six_methods() -> None:
    for path in source_files():
        for node in ast.walk(parsed(path)) if "Protocol" in path.read_text() else ():
            if isinstance(node, ast.ClassDef) and any(
                isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases
            ):
                methods = [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
                assert len(methods) <= 6, f"{path.name}: {node.name}"


@pytest.mark.parametrize("family", SHARED)
def test_members_of_a_family_never_import_each_other(family: str, imports: grimp.ImportGraph) -> None:
    members = {module.rpartition(".")[2] for module in imports.find_children(family)} - SHARED[family]
    assert len(members) > 1
    layer = grimp.Layer(*members, independent=True)
    found = imports.find_illegal_dependencies_for_layers([layer], containers={family})
    assert sorted((one.importer, one.imported) for one in found) == []


def test_trl_stays_in_four_files() -> None:
    """TRL's rollout interface is experimental, so few files may depend on it."""
    users = {
        path
        for path in source_files()
        if "trl" in path.read_text()
        for node in ast.walk(parsed(path))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "trl")
        or (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "trl" for alias in node.names))
    }
    assert len(users) <= 4, sorted(str(path) for path in users)


BLOCKED_IMPORT = """
import importlib, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {heavy!r}:
            raise ModuleNotFoundError(f"blocked: {{name}}", name=name)
sys.meta_path.insert(0, Blocked())
for name in {modules!r}:
    importlib.import_module(name)
"""


def test_every_module_imports_without_extras() -> None:
    modules = [
        module_name(path)
        for path in source_files()
        if path.stem != "__main__" and not extends_a_framework(path)
    ]
    code = BLOCKED_IMPORT.format(heavy=set(HEAVY), modules=modules)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["tirjudge_sandbox", "tirjudge_environments", "tirjudge"])
def test_the_base_packages_load_no_torch(package: str) -> None:
    code = f"import {package}, sys; print(sorted({set(HEAVY)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_sandbox_commands_load_no_judge() -> None:
    heavy = {"tirjudge.judging", "tirjudge_environments"}
    code = f"import tirjudge.cli.sandbox, sys; print(sorted({heavy} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_option_that_recorded_runs_lack_says_what_they_did() -> None:
    """A new option is marked `Later` or `MOVABLE`, so that result files of earlier versions resume."""
    path = ROOT / "tests" / "tirjudge" / "storage" / "recorded" / "rows.verdicts.jsonl.settings.json"
    recorded = json.loads(path.read_text())["settings"]
    fields = RunOptions.model_fields.items()
    later = {name for name, field in fields if any(isinstance(mark, Later) for mark in field.metadata)}
    assert RunOptions().settings().keys() - recorded.keys() - later == set()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    """Build the wheel that a user installs."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as built:
        yield built


def test_the_wheel_holds_four_packages_and_their_data(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == set(PACKAGES)
    for path in source_files():
        package = module_name(path).split(".")[0]
        assert f"{package}/{path.relative_to(PACKAGES[package])}" in names
    for wanted in (
        "tirjudge_environments/prompts/tir-pairwise.txt",
        "tirjudge_environments/prompts/mini-pairwise.txt",
        "tirjudge_training/recipes/smol.toml",
        "tirjudge_training/smol/train.jsonl.xz",
        "tirjudge/models/smol/adapter_model.safetensors",
        "tirjudge/models/smol/adapter_config.json",
        "tirjudge/models/smol/tirjudge.json",
        "tirjudge/models/smol/README.md",
        "tirjudge/models/coder/adapter_model.safetensors",
        "tirjudge/models/coder/adapter_config.json",
        "tirjudge/models/coder/tirjudge.json",
        "tirjudge/py.typed",
        "tirjudge/report/assets/judgments.html.jinja",
        "tirjudge/report/assets/report.css",
        "tirjudge/report/assets/uplot-1.6.32/uPlot.iife.min.js",
        "tirjudge/report/assets/uplot-1.6.32/LICENSE",
        "tirjudge_sandbox/containers/Dockerfile.sandbox",
        "tirjudge_sandbox/containers/requirements.lock",
    ):
        assert wanted in names


def test_the_metadata_names_every_licence_of_what_ships(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
    said = email.message_from_bytes(wheel.read(metadata))
    named = set(canonicalize_license_expression(said["License-Expression"]).split(" AND "))
    texts = {name: wheel.read(name).decode() for name in names if name.endswith((".md", "LICENSE"))}
    stated = {
        "MIT": re.compile(r"\bMIT\b"), "CC-BY-4.0": re.compile("CC[ -]BY[ -]4.0"),
        "Apache-2.0": re.compile("apache-2.0", re.IGNORECASE), "GPL": re.compile(r"GPL|GNU"),
        "CC-BY-NC-4.0": re.compile("CC[ -]BY[ -]NC"), "BSD-3-Clause": re.compile(r"\bBSD\b"),
    }  # fmt: skip
    found = {spdx for spdx, pattern in stated.items() if any(map(pattern.search, texts.values()))}
    assert found == named
    notice = wheel.read(metadata.replace("METADATA", "licenses/NOTICE")).decode()
    assert all(licence in notice for licence in named)
    # The text of every licence in a package is among those of the distribution.
    licences = metadata.replace("METADATA", "licenses/")
    held = [name for name in names if name.endswith("LICENSE") and ".dist-info/" not in name]
    assert held
    assert all(f"{licences}{name}" in names for name in held)
    for named_folder in re.findall(r"\b(?:tirjudge|training)/[\w/.-]*\w", notice):
        assert (ROOT / named_folder).is_dir(), named_folder


def test_the_citation_is_valid() -> None:
    """The keys that Citation File Format 1.2.0 requires, with the project's version and licence."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert cited["cff-version"] == "1.2.0"
    assert cited["type"] in ("software", "dataset")
    assert all(isinstance(cited[key], str) and cited[key] for key in ("message", "title", "version"))
    assert cited["version"] == version("tirjudge") == tirjudge_sandbox.__version__
    assert cited["license"] in project["license"].split(" AND ")
    for work in (cited, *cited["references"]):
        assert all(author.keys() & {"name", "family-names"} for author in work["authors"])
        assert work["authors"]
    assert all(one["type"] and one["title"] for one in cited["references"])
    known = (ROOT / "docs" / "judges.md").read_text(encoding="utf-8")
    assert all(f"({one['url']})" in known for one in cited["references"])


def test_ci_runs_the_command_that_the_readme_gives() -> None:
    readme = (ROOT / "README.md").read_text()
    (command,) = [
        line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.endswith("check test")
    ]
    assert command in readme.splitlines()


def test_the_description_on_pypi_has_no_links_into_the_repository(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    _, _, described = wheel.read(name).decode().partition("\n\n")
    targets = re.findall(r"\]\(([^)\s]+)\)", described)
    assert [target for target in targets if "://" not in target] == []
    # Only links change: code and the texts of links stay.
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    readme = re.sub(r"!\[[^]]*\]\((?!https?:)[^)\s]+\)\n*", "", readme)
    assert described.strip() == re.sub(r"\[([^]]+)\]\((?!https?:)[^)\s]+\)", r"\1", readme).strip()


def public_classes() -> Iterator[type[Any]]:
    for package in PACKAGES:
        module = import_module(package)
        yield from (
            one for one in (getattr(module, name) for name in module.__all__) if isinstance(one, type)
        )


def test_help_describes_each_public_method() -> None:
    """Members of a family implement the methods that their contract describes."""
    classes = [*public_classes()]
    contracts = [one for one in classes if getattr(one, "_is_protocol", False)]
    undescribed = [
        f"{one.__name__}.{name}"
        for one in classes
        for name, method in vars(one).items()
        if not name.startswith("_")
        and (inspect.isfunction(method) or isinstance(method, property | classmethod))
        if not any(
            inspect.getdoc(getattr(owner, name)) for owner in (one, *contracts) if hasattr(owner, name)
        )
    ]
    assert undescribed == []
