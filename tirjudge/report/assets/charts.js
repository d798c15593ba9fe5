// The curves of training runs. Every chart has a table with the same numbers, which are never smoothed.
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

// The means of windows around each point, of the values that are known.
function smoothed(values, points) {
  if (points < 2) return values;
  const reach = Math.floor(points / 2);
  return values.map((value, at) => {
    if (value === null) return null;
    const near = values.slice(Math.max(0, at - reach), at + reach + 1).filter((one) => one !== null);
    return near.reduce((sum, one) => sum + one, 0) / near.length;
  });
}

// Ticks at a distance get as many decimals as it takes to tell them apart, and all get the same number.
function tickTexts(ticks, distance) {
  const least = Math.max(...ticks.map(Math.abs), Number.MIN_VALUE);
  if (least < 1e-3 || least >= 1e6) return ticks.map((tick) => tick.toExponential(Math.max(0, Math.ceil(Math.log10(least / distance)))).replace(/e[+]?/, "e"));
  let decimals = 0;
  while (decimals < 8 && Math.abs(distance * 10 ** decimals - Math.round(distance * 10 ** decimals)) > 1e-6) decimals++;
  return ticks.map((tick) => tick.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }));
}

function numbers(chart) {
  const head = make("tr", {}, make("th", { scope: "col" }, "step"), ...chart.series.map(({ name }) => make("th", { scope: "col", class: "n" }, visible(name))));
  const rows = chart.steps.map((step, at) => make("tr", {}, make("th", { scope: "row" }, String(step)),
    ...chart.series.map(({ values }) => make("td", { class: "n" }, shown(values[at])))));
  return make("div", { class: "scroll numbers", tabIndex: 0, role: "region", "aria-label": `Numbers of ${chart.title}` },
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)));
}

// The measured points behind a smoothed curve.
function drawRaw(plot, chart, looks) {
  const { ctx } = plot;
  ctx.save();
  ctx.globalAlpha = 0.3;
  chart.series.forEach(({ values }, at) => {
    ctx.strokeStyle = looks[at].stroke;
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    let begun = false;
    values.forEach((value, place) => {
      if (value === null) return;
      const [x, y] = [plot.valToPos(chart.steps[place], "x", true), plot.valToPos(value, "y", true)];
      if (begun) ctx.lineTo(x, y); else ctx.moveTo(x, y);
      begun = true;
    });
    ctx.stroke();
  });
  ctx.restore();
}

// Of one run, a colour is a metric; of several, a colour is a run, and a dash a metric.
function looksOf(chart, colours) {
  const metrics = [...new Set(chart.series.map(({ metric }) => metric))];
  return chart.series.map(({ run, metric }) => {
    const [colour, dash] = several ? [run, metrics.indexOf(metric)] : [metrics.indexOf(metric), Math.floor(metrics.indexOf(metric) / colours.lines.length)];
    return { stroke: colours.lines[colour % colours.lines.length], dash: [[], [6, 3], [2, 3], [9, 3, 2, 3]][dash % 4] };
  });
}

function plot(holder, chart, marks) {
  const colours = palette(), looks = looksOf(chart, colours), window = Number(byId("smoothing").value);
  // Long runs have more numbers than a function takes arguments.
  let low = Infinity, high = -Infinity;
  for (const { values } of chart.series) for (const value of values) if (value !== null) [low, high] = [Math.min(low, value), Math.max(high, value)];
  const range = low === high ? [Math.min(0, low), low === 0 ? 1 : Math.max(0, 2 * low)] : uPlot.rangeNum(low, high, 0.1, true);
  const axis = { stroke: colours.ink, grid: { stroke: colours.rule, width: 1 }, ticks: { stroke: colours.rule, width: 1 }, font: "11px system-ui, sans-serif" };
  const made = new uPlot({
    width: Math.max(240, holder.clientWidth), height: 210, cursor: { sync: { key: "steps" } },
    scales: { x: { time: false }, y: { range } },
    axes: [{ ...axis, incrs: wholeSteps }, { ...axis,
      values: (_, ticks, __, ___, distance) => tickTexts(ticks, distance),
      size: (_, texts) => 18 + 7 * Math.max(3, ...(texts ?? []).map((text) => text.length)) }],
    series: [{ label: "step" }, ...chart.series.map(({ name }, at) => ({
      label: visible(name), ...looks[at], width: 1.75, spanGaps: true,
      value: (_, value) => shown(value), points: { show: chart.steps.length < 40, size: 4 },
    }))],
    hooks: { drawAxes: [(self) => drawMarks(self, marks, colours), (self) => { if (window > 1) drawRaw(self, chart, looks); }] },
  }, [chart.steps, ...chart.series.map(({ values }) => smoothed(values, window))], holder);
  plots.push({ made, holder, chart, marks });
}

// The stages of all runs by their names, and in each the charts by their titles, on the steps of all runs.
function stagesOf(runs) {
  const found = new Map();
  runs.forEach((run, number) => {
    for (const stage of run.stages) {
      const mine = found.get(stage.name) ?? { name: stage.name, marks: [], charts: new Map() };
      found.set(stage.name, mine);
      if (!several) mine.marks = stage.marks;
      for (const { title, steps, series } of stage.charts) {
        const charts = mine.charts.get(title) ?? [];
        mine.charts.set(title, charts);
        for (const [metric, values] of Object.entries(series)) charts.push({ run: number, metric, name: several ? `${run.name}: ${metric}` : metric, steps, values });
      }
    }
  });
  for (const stage of found.values()) stage.charts = [...stage.charts].map(([title, series]) => joined(title, series));
  return [...found.values()];
}

function joined(title, series) {
  const steps = [...new Set(series.flatMap((one) => one.steps))].sort((one, other) => one - other);
  return { title, steps, series: series.map(({ steps: own, values, ...rest }) => {
    const at = new Map(own.map((step, place) => [step, values[place]]));
    return { ...rest, values: steps.map((step) => at.get(step) ?? null) };
  }) };
}

const { runs } = JSON.parse(byId("charts-data").textContent);
const several = runs.length > 1;

function drawCharts() {
  const stages = stagesOf(runs);
  const points = Math.max(1, ...stages.flatMap((stage) => stage.charts.map((chart) => chart.steps.length)));
  // About forty windows on the longest curve.
  const usual = [1, 5, 10, 20, 50].findLast((window) => window <= Math.max(1, points / 40));
  byId("smoothing").replaceChildren(...[1, 5, 10, 20, 50].filter((window) => window === 1 || window < points).map((window) =>
    make("option", { value: String(window), selected: window === usual }, window === 1 ? "none" : `mean of ${window} points`)));
  byId("chart-tools").hidden = !stages.length;
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

const visibleName = (name) => name === "." ? "of this folder" : visible(name);

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
byId("smoothing").addEventListener("change", redraw);
byId("chart-tools").addEventListener("submit", (event) => event.preventDefault());
drawCharts();
