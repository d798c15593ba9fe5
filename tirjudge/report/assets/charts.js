// The curves of a training run. Every chart has a table with the same numbers.
const plots = [];
const palette = () => {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return { ink: read("--quiet"), rule: read("--rule"), good: read("--good"), bad: read("--bad"), warn: read("--warn"),
    lines: [read("--accent"), read("--series2"), read("--good"), read("--bad"), read("--quiet"), read("--warn")] };
};
const shown = (value) => value === null || value === undefined ? "–" : Number(value.toPrecision(4)).toString();
const wholeSteps = [1, 10, 100, 1e3, 1e4, 1e5].flatMap((ten) => [ten, 2 * ten, 5 * ten]);
// Without a prototype, whose names events could have.
const dashes = { __proto__: null, checkpoint: [2, 5], resumed: [7, 4], stopped: [] };

// Lines for checkpoints, restarts and stops behind the curves.
function drawMarks(plot, marks, colours) {
  const { ctx, bbox } = plot;
  ctx.save();
  for (const mark of marks) {
    const x = Math.round(plot.valToPos(mark.step, "x", true)) + 0.5;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.lineWidth = mark.kind === "checkpoint" ? 1 : 2;
    ctx.strokeStyle = mark.kind === "stopped" ? colours.bad : mark.kind === "resumed" ? colours.warn : colours.ink;
    ctx.globalAlpha = mark.kind === "checkpoint" ? 0.45 : 1;
    ctx.setLineDash((dashes[mark.kind] ?? []).map((one) => one * devicePixelRatio));
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function numbers(chart) {
  const names = Object.keys(chart.series);
  const head = make("tr", {}, make("th", { scope: "col" }, "step"), ...names.map((name) => make("th", { scope: "col", class: "n" }, name)));
  const rows = chart.steps.map((step, at) => make("tr", {}, make("th", { scope: "row" }, String(step)),
    ...names.map((name) => make("td", { class: "n" }, shown(chart.series[name][at])))));
  return make("div", { class: "scroll numbers", tabIndex: 0, role: "region", "aria-label": `Numbers of ${chart.title}` },
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

function plot(holder, chart, marks) {
  const colours = palette();
  const axis = { stroke: colours.ink, grid: { stroke: colours.rule, width: 1 }, ticks: { stroke: colours.rule, width: 1 }, font: "11px system-ui, sans-serif" };
  const names = Object.keys(chart.series);
  const made = new uPlot({
    width: Math.max(240, holder.clientWidth), height: 210, cursor: { sync: { key: "steps" } },
    scales: { x: { time: false }, y: { range: (_, low, high) => low === high ? [Math.min(0, low), low === 0 ? 1 : Math.max(0, 2 * low)] : uPlot.rangeNum(low, high, 0.1, true) } },
    axes: [{ ...axis, incrs: wholeSteps }, { ...axis, size: 56, values: (_, values) => values.map(shown) }],
    series: [{ label: "step" }, ...names.map((name, at) => ({
      label: name, stroke: colours.lines[at % colours.lines.length], width: 1.75, spanGaps: true,
      dash: at < colours.lines.length ? [] : [6, 3], value: (_, value) => shown(value), points: { show: chart.steps.length < 40, size: 4 },
    }))],
    hooks: { drawAxes: [(self) => drawMarks(self, marks, colours)] },
  }, [chart.steps, ...names.map((name) => chart.series[name])], holder);
  plots.push({ made, holder, chart, marks });
}

function drawCharts() {
  const { stages } = JSON.parse(byId("charts-data").textContent);
  plots.splice(0).forEach(({ made }) => made.destroy());
  const sections = stages.map((stage) => {
    const kinds = [...new Set(stage.marks.map((mark) => mark.kind))];
    const about = kinds.length ? make("p", { class: "note" }, `Lines across the charts: ${kinds.map((kind) => ({
      __proto__: null, checkpoint: "dotted at checkpoints", resumed: "dashed where the run resumed", stopped: "solid where a health check stopped it" })[kind] ?? kind).join(", ")}.`) : "";
    const figures = stage.charts.map((chart) => {
      const holder = make("div", { class: "canvas", role: "img", "aria-label": `${chart.title}, by step; the table below has the numbers.` });
      const details = make("details", {}, make("summary", {}, "Numbers"));
      // Built when it is opened: a long run has many numbers.
      details.addEventListener("toggle", () => { if (details.open && details.children.length === 1) details.append(numbers(chart)); });
      return [make("figure", { class: "chart" }, make("figcaption", {}, chart.title), holder, details), () => plot(holder, chart, stage.marks)];
    });
    const section = make("section", {}, make("h2", {}, `Stage ${visibleName(stage.name)}`), about, make("div", { class: "charts" }, ...figures.map(([figure]) => figure)));
    return [section, figures.map(([, begin]) => begin)];
  });
  byId("curves").replaceChildren(...sections.map(([section]) => section));
  for (const [, begins] of sections) for (const begin of begins) begin();
}

const visibleName = (name) => name === "." ? "of this folder" : name;

function redraw() {
  const old = plots.splice(0);
  for (const { made, holder, chart, marks } of old) {
    made.destroy();
    plot(holder, chart, marks);
  }
}

let resizing;
addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(redraw, 150); });
document.addEventListener("themechange", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
drawCharts();
