"""Pages of `tirjudge report` in a real Chromium."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tirjudge.judge_command import command
from tests.tirjudge.judged_files import edit
from tests.tirjudge.report.conftest import HOSTILE, ROWS
from tests.tirjudge.report.runs import finish, training_run

pytestmark = pytest.mark.browser
EXAMPLES = Path(__file__).parents[3] / "examples"
OVERLAPPING = """() => {
  const found = [];
  for (const svg of document.querySelectorAll('.histogram svg')) {
    const texts = [...svg.querySelectorAll('text')], bars = [...svg.querySelectorAll('rect')];
    for (const [at, text] of texts.entries()) for (const other of [...texts.slice(at + 1), ...bars]) {
      const a = text.getBoundingClientRect(), b = other.getBoundingClientRect();
      if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom) {
        found.push(text.textContent);
      }
    }
  }
  return found;
}"""

CUT = """() => [...document.querySelectorAll('.stages, .stages td')]
  .filter((one) => one.scrollWidth > one.clientWidth + 1 || one.getBoundingClientRect().right > 400)
  .map((one) => one.textContent)"""


def written(folder: Path, *arguments: object) -> str:
    """Write a report, and return its address on the disk."""
    path = folder / "report.html"
    command("report", *arguments, "-o", path, code=0)
    return path.as_uri()


@contextmanager
def opened(chromium: Any, url: str, **options: Any) -> Iterator[Any]:
    """Open a page that may write nothing to the console and ask for nothing but itself."""
    context = chromium.new_context(**options)
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda sent: faults.append(sent.url) if not own(sent.url, url) else None)
    page.goto(url)
    try:
        yield page
    finally:
        context.close()
    assert faults == []


def own(address: str, url: str) -> bool:
    """Return True for the page itself, and for a file that it gives to the reader."""
    return address.split("#")[0] == url or address.startswith("blob:")


def serious(page: Any) -> list[str]:
    """Return what axe reports as serious or critical."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in ("serious", "critical")
    ]


def ids(page: Any) -> list[str]:
    return list(page.locator("#list a.id").all_inner_texts())


def count(page: Any, text: str) -> None:
    page.wait_for_function("text => document.querySelector('#count').textContent === text", arg=text)


def check(page: Any, name: str) -> None:
    page.locator(f"#filters input[value='{name}']").check()


@pytest.fixture(scope="module")
def few(judged: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of two rows of each kind, which axe reads in a tenth of the time."""
    path = tmp_path_factory.mktemp("few") / "out.jsonl"
    path.write_text("".join(judged.read_text().splitlines(keepends=True)[:6]))
    return written(path.parent, path)


@pytest.fixture(scope="module")
def url(judged: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("page"), judged)


@pytest.mark.slow
def test_rows_are_filtered_searched_and_paged(chromium: Any, url: str) -> None:
    with opened(chromium, url) as page:
        # 40 right, 40 wrong, and 40 ties that are worth a half: 50 %.
        assert page.locator(".headline .value").inner_text().startswith("50.0")
        assert "samples; ties: a tie of k is worth 1/k" in page.locator(".headline").inner_text()
        count(page, f"{ROWS} of {ROWS} rows")
        assert len(ids(page)) == 50
        page.locator("#next-page").click()
        page.locator("#next-page").click()
        assert len(ids(page)) == 20
        check(page, "flipped")
        count(page, f"40 of {ROWS} rows")
        assert all(one.startswith("flips") for one in ids(page))
        page.locator("#filters input[value='flipped']").uncheck()
        # Only in a response, that is, in the compressed texts.
        page.locator("#search").fill("NEEDLE")
        count(page, f"40 of {ROWS} rows")
        assert all("onerror" in one for one in ids(page))


@pytest.mark.slow
def test_rows_come_first_in_the_order_of_the_file_with_prompt_winner_and_reason(
    chromium: Any, tmp_path: Path
) -> None:
    stored = EXAMPLES / "instructions.verdicts.jsonl"
    asked = [json.loads(line) for line in (EXAMPLES / "instructions.jsonl").read_text().splitlines()]
    finished = [json.loads(line)["id"] for line in stored.read_text().splitlines()]
    assert finished != [row["id"] for row in asked]
    with opened(chromium, written(tmp_path, stored), viewport={"width": 1280, "height": 900}) as page:
        assert ids(page) == [row["id"] for row in asked]
        first = page.locator("#list tbody tr").first
        # Above the fold, and above all other numbers.
        assert first.bounding_box()["y"] < 700
        assert first.bounding_box()["y"] < page.locator("#numbers").bounding_box()["y"]
        told = first.inner_text()
        assert asked[0]["prompt"][:60] in told
        assert "B 2/2 ✓ right" in told
        # The judge saw the responses exchanged, too: these are the letters of the row.
        assert "A 0 of 1 · B 1 of 1" in told
        assert '["," not in r]' in told
        page.get_by_text("Numbers of the run").click()
        page.wait_for_function("document.querySelector('#numbers').getBoundingClientRect().top < 200")
        page.set_viewport_size({"width": 400, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        assert "A 0 of 1 · B 1 of 1" in first.inner_text()
        assert first.locator(".why").is_visible()
        assert serious(page) == []


@pytest.mark.slow
def test_histograms_have_several_values_and_labels_that_overlap_nothing(
    chromium: Any, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    shutil.copy(EXAMPLES / "instructions.verdicts.jsonl", path)

    def same_tokens_and_names(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row.update(completion_tokens=7, sources=["gpt", "llama", "qwen", "phi"][: len(row["responses"])])

    edit(path, same_tokens_and_names)
    with opened(chromium, written(tmp_path, path)) as page:
        titles = page.locator(".histogram figcaption").all_inner_texts()
        assert titles == ["seconds per row"]
        assert page.evaluate(OVERLAPPING) == []
        assert "B llama 2/2 ✓ right" in page.locator("#list tbody tr").first.inner_text()


@pytest.mark.slow
def test_hostile_text_stays_text(chromium: Any, url: str, judged: Path) -> None:
    id = f"{HOSTILE} 0"
    with opened(chromium, url) as page:
        page.locator("#list a.id", has_text="onerror").first.click()
        page.wait_for_selector("#row-body .view")
        assert page.title() == "out.jsonl – tirjudge report"
        assert page.locator("main img").count() == 0
        shown = page.locator("#row-body .response pre").first.inner_text()
        assert shown.startswith(
            "</script><img src=x onerror=document.title='owned'><!-- {{ 7*7 }} \\u001b[2J \\u202e"
        )
        # The letters of the other order are mapped back.
        assert "its A is response B" in page.locator(".view h3").nth(1).inner_text()
        assert "which this dialogue calls B" in page.locator(".view .end").nth(1).inner_text()
        address = page.evaluate("location.href")
    with opened(chromium, address.split("#")[0]) as page:
        page.evaluate("hash => { location.hash = hash; }", address.split("#")[1])
        page.wait_for_selector("#row-body .view")
        assert page.locator("#row-title").inner_text().startswith("Row </script>")
    assert id in [json.loads(line)["id"] for line in judged.read_text().splitlines()]


@pytest.mark.slow
def test_keys_move_open_and_close(chromium: Any, url: str) -> None:
    with opened(chromium, url) as page:
        for key in ("j", "j", "k", "j", "j"):
            page.keyboard.press(key)
        assert page.evaluate("document.activeElement.textContent") == "flips 0"
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.querySelector('#row-title').textContent === 'Row flips 0'")
        page.keyboard.press("j")
        page.wait_for_function("() => document.querySelector('#row-title').textContent === 'Row right 1'")
        page.keyboard.press("Escape")
        page.wait_for_selector("#rows:not([hidden])")
        assert page.evaluate("document.activeElement.textContent") == "right 1"
        page.keyboard.press("/")
        page.keyboard.type("flips 3j")
        count(page, f"0 of {ROWS} rows")
        page.keyboard.press("Escape")
        page.keyboard.press("?")
        assert page.locator("#help").is_visible()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_pages_are_accessible_and_fit(chromium: Any, few: str, width: int, scheme: str) -> None:
    view = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with opened(chromium, few, **view) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert serious(page) == []
        page.locator("#list a.id").first.click()
        page.wait_for_selector("#row-body .view")
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert serious(page) == []


@pytest.mark.slow
def test_two_runs_show_the_rows_that_changed(chromium: Any, judged: Path, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    after = tmp_path / "after.jsonl"
    shutil.copy(judged, after)

    def fix(rows: list[dict[str, Any]]) -> None:
        for row in rows[1:31:3]:
            row.update(verdict="B", choice=1, correct=1.0)
            for view in row["views"]:
                view["verdict"]["choice"] = 1

    edit(after, fix)
    with opened(chromium, written(tmp_path, judged, after)) as page:
        # Ten of 120 rows gained.
        assert page.locator(".lead .value").inner_text().startswith("+8.3")
        assert "10 rows gained, 0 lost" in page.locator(".lead").inner_text()
        count(page, f"10 of {ROWS} rows")
        check(page, "gained")
        count(page, f"10 of {ROWS} rows")
        assert serious(page) == []
        page.locator("#list a.id").first.click()
        page.wait_for_selector("#row-body .view")
        assert page.locator("#row-body .record").count() == 2
        page.keyboard.press("Escape")
        verdict = page.locator("#list td.verdict").first
        expect(verdict).to_have_text(re.compile(r"^A "), use_inner_text=True)
        page.set_viewport_size({"width": 400, "height": 900})
        expect(verdict).to_have_text(re.compile(r"^out\.jsonl\nA "), use_inner_text=True)


@pytest.mark.slow
def test_runs_without_programs_have_no_column_of_reasons(chromium: Any, tmp_path: Path) -> None:
    for name, said in (("one.csv", "AB"), ("other.csv", "AA")):
        (tmp_path / name).write_text("id,said,label\n" + "".join(f"{n},{said[n % 2]},A\n" for n in range(8)))
    words = ("--column", "prediction=said", "--column", "label=label")
    with opened(chromium, written(tmp_path, tmp_path / "one.csv", tmp_path / "other.csv", *words)) as page:
        headings = page.locator("#list thead th").all_inner_texts()
        assert [one.split()[0] for one in headings] == ["number", "row", "one.csv", "other.csv"]
        assert "4 rows gained, 0 lost" in page.locator(".lead").inner_text()
        assert page.locator("#filters input[value=gained]").locator("..").inner_text().split() == [
            "gained",
            "4",
        ]


@pytest.mark.slow
def test_a_training_run_shows_curves_marks_and_numbers(chromium: Any, tmp_path: Path) -> None:
    run = training_run(tmp_path / "run")
    with opened(chromium, written(tmp_path, run)) as page:
        assert "tool use has collapsed" in page.locator("main").inner_text()
        titles = page.locator(".chart figcaption").all_inner_texts()
        wanted = ("Reward and its parts", "KL divergence", "Last programs, share", "Memory, GiB")
        assert set(wanted) <= set(titles)
        assert page.locator(".chart canvas").count() == len(titles)
        chart = page.locator(".chart", has_text="Reward and its parts")
        chart.locator("summary").click()
        assert chart.locator(".numbers tbody tr").nth(1).inner_text().split() == ["2", "0.2", "0.4"]
        assert page.locator(".sentence").inner_text() == "Not finished: rl, step 4 of 10."
        # A family without a name is no family.
        assert page.locator("main").inner_text().count("contains, tir-pairwise") == 1
        assert "\n, tir-pairwise" not in page.locator("main").inner_text()
        assert serious(page) == []


@pytest.mark.slow
def test_hostile_names_of_a_training_run_stay_names(chromium: Any, tmp_path: Path) -> None:
    run = training_run(tmp_path / "run")
    kinds = ("constructor", "__proto__", "<img src=x onerror=document.title=1>")
    events = [{"step": 2, "event": kind, "about": kind} for kind in kinds]
    (run / "rl" / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    metrics = run / "rl" / "metrics.jsonl"
    rows = [
        json.loads(line) | {f"reward/{kind}": 0.5 for kind in kinds}
        for line in metrics.read_text().splitlines()
    ]
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with opened(chromium, written(tmp_path, run)) as page:
        assert page.locator(".chart canvas").count() == page.locator(".chart").count() > 0
        assert page.locator("img").count() == 0
        assert "constructor, __proto__, <img" in page.locator("#curves .note").inner_text()


@pytest.mark.slow
def test_a_training_page_begins_with_the_gain_and_draws_runs_over_each_other(
    chromium: Any, tmp_path: Path
) -> None:
    first, second = finish(training_run(tmp_path / "first")), training_run(tmp_path / "<b>second")
    with opened(chromium, written(tmp_path, first, second), viewport={"width": 400, "height": 900}) as page:
        lead = page.locator(".lead").first.inner_text()
        assert lead.index("+10.0 points") < lead.index("held out: 80.0 % (base) to 90.0 % (rl)")
        # Agresti and Min (2005), with half a pair added to each kind: (2.5 - 0.5) / 22 and its error.
        up, down = 2.5 / 22, 0.5 / 22
        spread = 1.959964 * ((up + down - (up - down) ** 2) / 22) ** 0.5
        bounds = f"{100 * (up - down - spread):+.1f} to {100 * (up - down + spread):+.1f} points"
        assert f"interval {bounds}: 2 of 20 tasks gained, 0 lost".replace("-", "−") in lead
        assert "interval 60.0 to 90.0 before, n = 20; 70.0 to 95.0 after" in lead.replace("\xa0", " ")
        chart = page.locator(".chart", has_text="KL divergence")
        labels = chart.locator(".u-series .u-label").all_inner_texts()
        assert [one.rstrip(":") for one in labels] == ["step", "first: kl", "<b>second: kl"]
        assert page.evaluate("document.documentElement.scrollWidth") == 400
        # Nothing is cut: every number of the tables is within the page.
        assert page.evaluate(CUT) == []
        assert serious(page) == []


def test_ticks_differ_and_have_the_same_number_of_digits(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, written(tmp_path, training_run(tmp_path / "run"))) as page:
        for ticks, distance, wanted in (
            ([5.5375, 5.54, 5.5425], 0.0025, ["5.5375", "5.5400", "5.5425"]),
            ([0, 50000, 100000], 50000, ["0", "50,000", "100,000"]),
            ([-0.5, 0, 0.5], 0.5, ["-0.5", "0.0", "0.5"]),
            ([0, 0.00001, 0.00002], 0.00001, ["0.0e0", "1.0e-5", "2.0e-5"]),
        ):
            assert page.evaluate("([one, other]) => tickTexts(one, other)", [ticks, distance]) == wanted
        means = page.evaluate("smoothed([0, 3, null, 6, 9], 3)")
        assert means == [1.5, 1.5, None, 7.5, 7.5]


def test_a_chart_of_more_numbers_than_a_function_takes_has_all_of_their_range(
    chromium: Any, tmp_path: Path
) -> None:
    with opened(chromium, written(tmp_path, training_run(tmp_path / "run"))) as page:
        shown = page.evaluate(
            """async () => {
              const steps = Array.from({ length: 100000 }, (_, step) => step);
              const series = [1, 2].map((times) => ({
                run: 0, metric: `${times}`, name: `${times}`, values: steps.map((step) => times * step),
              }));
              plot(document.querySelector('.canvas'), { title: 't', steps, series }, []);
              await new Promise(requestAnimationFrame);
              const { min, max } = plots.at(-1).made.scales.y;
              return [min, max];
            }"""
        )
    assert shown[0] <= 0 < 199_998 <= shown[1]


WON = (
    # Rows that gpt won, tied and lost; the words of the page; Wilson's interval by statsmodels.
    ((9, 0, 1), "gpt wins: its interval lies above 50 %.", "gpt wins 90.0 %, 95 % interval 59.6 to 98.2"),
    ((6, 0, 4), "no winner: the interval of gpt contains 50 %.", "interval 31.3 to 83.2"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("counts", "sentence", "interval"), WON)
def test_who_won_comes_first_then_how_far_to_trust_it_then_the_rows(
    chromium: Any, tmp_path: Path, counts: tuple[int, int, int], sentence: str, interval: str
) -> None:
    path = tmp_path / "rows.jsonl"
    stored = (EXAMPLES / "instructions.verdicts.jsonl").read_text().splitlines()
    pair = next(row for row in map(json.loads, stored) if len(row["responses"]) == 2)
    rows = []
    for number, choice in enumerate([0] * counts[0] + [1] * counts[2]):
        row = json.loads(json.dumps(pair))
        row |= {"id": f"{number}", "verdict": "AB"[choice], "choice": choice, "label": None, "correct": None}
        row |= {"sources": ["gpt", HOSTILE], "decided": number < 4, "where": f"rows.jsonl:{number + 1}"}
        row["prompt"] = [{"role": "user", "content": f"prompt {number}"}]
        for view in row["views"]:
            view["verdict"]["choice"] = choice
        rows.append(row)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for width in (1280, 400):
        view = {"viewport": {"width": width, "height": 900}}
        with opened(chromium, written(tmp_path, path), **view) as page:
            assert page.locator(".sentence").inner_text() == sentence
            assert interval in page.locator(".won").inner_text()
            assert f"gpt won {counts[0]}" in page.locator(".ends").inner_text()
            # The bar is as wide as the page, and its first part as the share of wins.
            bar, wins = (page.locator(f".bar-of-wins{part}").bounding_box() for part in ("", " .wins"))
            assert wins["width"] / bar["width"] == pytest.approx(counts[0] / 10, abs=0.01)
            trust = page.locator(".trust").inner_text()
            assert "4 of 10 rows" in trust
            assert "100.0% keep their verdict" in trust
            assert "no row has a label" in trust
            places = [page.locator(one).bounding_box()["y"] for one in (".sentence", ".trust", "#list")]
            assert places == sorted(places)
            assert page.evaluate("document.documentElement.scrollWidth") == width
            assert page.locator("main img").count() == 0
            page.get_by_text("Label rows in this page").click()
            page.locator("#labeller .choices").wait_for()
            assert serious(page) == []
