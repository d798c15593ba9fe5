// The table of rows, its filters and search, and the view of one row.
const PAGE = 50;
const state = { query: "", filters: new Set(), page: 0, at: 0, shown: [], open: null };
let data, size, order, hits = null, searching = 0;
const unpacked = new Map();

const flag = (name) => 1 << data.flags.indexOf(name);
const place = (entry, run) => data.places ? data.places[entry][run] : entry;
const coded = (column, at) => column.values[column.codes[at]];
const idOf = (entry) => {
  for (let run = 0; run < data.runs.length; run++) if (place(entry, run) >= 0) return data.runs[run].ids[place(entry, run)];
};
const visible = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g,
  (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
const changes = { "changed": (value) => value !== 0, "gained": (value) => value === 1, "lost": (value) => value === -1 };

function load() {
  data = JSON.parse(byId("rows-data").textContent);
  size = data.places ? data.places.length : data.runs[0].ids.length;
  // The order of the judged file; rows are stored as they were finished.
  order = data.order ?? Array.from({ length: size }, (_, entry) => entry);
  unpacked.clear();
  hits = null;
}

const fits = {
  flag: (entry, name) => data.runs.some((run, number) => place(entry, number) >= 0 && run.flags[place(entry, number)] & flag(name)),
  change: (entry, name) => changes[name](data.changes[entry]),
};

function filterNames() {
  return [...(data.changes ? Object.keys(changes) : []), ...data.flags];
}

const matches = (entry, name) => name in changes ? fits.change(entry, name) : fits.flag(entry, name);

async function chunk(run, number) {
  const key = `${run}-${number}`;
  if (!unpacked.has(key)) {
    const node = byId(`texts-${key}`);
    if (!node) return null;
    const bytes = Uint8Array.from(atob(node.textContent), (mark) => mark.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const records = await new Response(stream).json();
    // A few chunks stay unpacked, for going from row to row.
    if (unpacked.size >= 8) unpacked.delete(unpacked.keys().next().value);
    unpacked.set(key, records);
  }
  return unpacked.get(key);
}

async function textsOf(run, at) {
  const spans = data.runs[run].spans;
  for (let number = 0; number < spans.length; number++) {
    const position = spans[number].indexOf(at);
    if (position >= 0) {
      if (document.readyState === "loading") await new Promise((done) => document.addEventListener("DOMContentLoaded", done));
      return (await chunk(run, number))?.[position] ?? null;
    }
  }
  return null;
}

const wordsOf = (record) => [
  ...(record.prompt ?? []).map((message) => message[1]), ...(record.responses ?? []).flatMap((one) => [one[1]].flat(2)),
  record.reference ?? "", ...(record.criteria ?? []).map((one) => one[1]),
  ...record.facts.map((fact) => fact[1]), ...record.views.flatMap((view) => view.parts.map((part) => part.text)),
].join("\n").toLowerCase();

// Searches ids at once, and all texts chunk by chunk; a newer search ends this one.
async function search(query) {
  const mine = ++searching;
  const wanted = query.toLowerCase();
  if (!wanted) { hits = null; refresh(); return; }
  const found = new Uint8Array(size);
  const entries = data.runs.map((_, run) => new Map(Array.from({ length: size }, (_, entry) => [place(entry, run), entry])));
  for (let entry = 0; entry < size; entry++) if (idOf(entry).toLowerCase().includes(wanted)) found[entry] = 1;
  hits = found;
  refresh();
  for (let run = 0; run < data.runs.length; run++) {
    for (let number = 0; number < data.runs[run].spans.length; number++) {
      const records = await chunk(run, number);
      if (mine !== searching) return;
      records?.forEach((record, position) => {
        if (wordsOf(record).includes(wanted)) found[entries[run].get(data.runs[run].spans[number][position])] = 1;
      });
    }
  }
  refresh();
}

// What the last program printed about the responses, and the line of code behind it.
function why(run, at) {
  const [output, code] = run.reasons[at] ?? ["", ""];
  return output ? [make("div", {}, output), make("div", { class: "quiet" }, code)] : [];
}

function prompt(entry) {
  const run = data.runs.findIndex((one, number) => place(entry, number) >= 0 && one.prompts.length);
  return run < 0 ? "" : data.runs[run].prompts[place(entry, run)];
}

function cells(entry) {
  const cellsOfRuns = data.runs.flatMap((run, number) => {
    const at = place(entry, number);
    if (at < 0) return [make("td", { class: "verdict quiet" }, "not in this run")];
    const outcome = coded(run.outcomes, at);
    const mark = outcome === "right" ? "✓ right" : outcome === "wrong" ? "✗ wrong" : outcome;
    // Narrow pages show no headings, which name the runs elsewhere.
    const named = data.runs.length > 1 ? [make("div", { class: "narrow quiet" }, visible(run.name))] : [];
    return [
      make("td", { class: "verdict" }, ...named, visible(coded(run.verdicts, at)), " ", make("span", { class: `outcome ${outcome}` }, mark)),
      make("td", { class: "why" }, ...why(run, at)),
    ];
  });
  if (data.runs.length > 1) return cellsOfRuns;
  const run = data.runs[0];
  return [
    ...cellsOfRuns,
    make("td", { class: "wide n" }, String(run.programs[entry])),
    make("td", { class: "wide n" }, run.tokens[entry].toLocaleString("en")),
    make("td", { class: "wide n" }, run.seconds[entry].toLocaleString("en", { minimumFractionDigits: 2 })),
  ];
}

function draw() {
  const names = data.runs.length > 1
    ? ["row", ...data.runs.flatMap((run) => [run.name, "why"])]
    : ["row", "winner", "why: output of the last program, and its check", "programs", "tokens", "seconds"];
  const kinds = data.runs.length > 1 ? [] : ["", "", "", "wide n", "wide n", "wide n"];
  byId("list").tHead.replaceChildren(make("tr", {}, ...names.map((name, at) => make("th", { scope: "col", class: kinds[at] ?? "" }, visible(name)))));
  const pages = Math.max(1, Math.ceil(state.shown.length / PAGE));
  state.page = Math.min(Math.max(0, state.page), pages - 1);
  const rows = state.shown.slice(state.page * PAGE, (state.page + 1) * PAGE).map((entry, at) => {
    const id = idOf(entry);
    const link = make("a", { href: `#row=${encode(id)}`, class: "id" }, visible(id) || "(empty id)");
    link.dataset.at = String(state.page * PAGE + at);
    const asked = prompt(entry);
    return make("tr", {}, make("th", { scope: "row" }, link, ...(asked ? [make("div", { class: "asked" }, asked)] : [])), ...cells(entry));
  });
  byId("list").tBodies[0].replaceChildren(...rows);
  byId("page-number").textContent = `Page ${state.page + 1} of ${pages}`;
  byId("previous-page").disabled = state.page === 0;
  byId("next-page").disabled = state.page >= pages - 1;
  byId("count").textContent = `${state.shown.length.toLocaleString("en")} of ${size.toLocaleString("en")} rows`
    + (hits && data.runs.every((run) => !run.spans.length) ? "; this page has no texts, so only ids are searched" : "");
}

// A lone surrogate has no UTF-8 form, which encodeURIComponent refuses.
const encode = (id) => encodeURIComponent(id.toWellFormed ? id.toWellFormed() : id);

function refresh() {
  state.shown = [];
  const wanted = [...state.filters];
  for (const entry of order) if ((!hits || hits[entry]) && wanted.every((name) => matches(entry, name))) state.shown.push(entry);
  draw();
}

function drawFilters() {
  const boxes = filterNames().map((name) => {
    let count = 0;
    for (let entry = 0; entry < size; entry++) if (matches(entry, name)) count++;
    const box = make("input", { type: "checkbox", value: name, checked: state.filters.has(name), disabled: !count && !state.filters.has(name) });
    box.addEventListener("change", () => {
      if (box.checked) state.filters.add(name); else state.filters.delete(name);
      state.page = 0;
      refresh();
    });
    return make("label", {}, box, name, " ", make("span", { class: "number" }, count.toLocaleString("en")));
  });
  byId("filters").replaceChildren(byId("filters").firstElementChild, ...boxes);
}

const block = (level, kind, heading, text, ...more) => make("div", { class: `part ${kind}` },
  make(level, { class: "caption" }, visible(heading)), ...body(text), ...more);

// A text, or the parts of a transcript, each under its heading.
const body = (text) => typeof text === "string" ? [make("pre", { tabIndex: 0 }, visible(text) || "(empty)")]
  : text.flatMap(([heading, part]) => [make("p", { class: "message" }, visible(heading)), ...body(part)]);

function drawRecord(record, run, at) {
  const outcome = coded(run.outcomes, at);
  const summary = make("p", { class: "what" }, make("strong", {}, visible(coded(run.verdicts, at))), " ",
    make("span", { class: `outcome ${outcome}` }, outcome));
  const body = make("div", { class: "record" });
  if (data.runs.length > 1) body.append(make("h3", {}, visible(run.name)));
  body.append(summary);
  if (!record) {
    body.append(make("p", { class: "note" }, "This page has no texts of this row: write the report with --texts all."));
    return body;
  }
  body.append(make("dl", { class: "facts" }, ...record.facts.map(([name, fact]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, visible(fact))))));
  if (record.prompt) {
    body.append(make("div", { class: "texts" }, ...record.prompt.map(([heading, text]) => block("h3", "prompt", heading, text))));
    body.append(make("div", { class: "texts responses" }, ...record.responses.map(([heading, text]) => block("h3", "response", heading, text))));
    if (record.cut) body.append(make("p", { class: "note" }, record.cut));
  } else body.append(make("p", { class: "note" }, "The prompt and the responses are not in the file."));
  if (record.reference) body.append(make("div", { class: "texts" }, block("h3", "reference", "reference", record.reference)));
  for (const [heading, text, verdict] of record.criteria ?? []) {
    body.append(block("h3", "criterion", heading, text || "(not in the file)", make("p", { class: "end" }, visible(verdict))));
  }
  for (const view of record.views) {
    const parts = view.parts.map((part) => block("h4", part.kind, part.heading, part.text,
      ...(part.notes?.length ? [make("p", { class: "note" }, part.notes.map(visible).join("; "))] : [])));
    body.append(make("section", { class: "view" }, make("h3", {}, visible(view.heading)), ...parts,
      make("p", { class: "end" }, make("strong", {}, visible(view.verdict)), view.reward ? make("span", { class: "quiet" }, ` · ${visible(view.reward)}`) : "", view.evidence ? make("span", { class: "quiet" }, ` · ${visible(view.evidence)}`) : "")));
  }
  return body;
}

async function openRow(entry, quiet) {
  const id = idOf(entry);
  state.open = entry;
  byId("rows").hidden = true;
  for (const node of document.querySelectorAll("main > section:not(#rows):not(#row), main > details")) node.hidden = true;
  byId("row").hidden = false;
  byId("row-title").textContent = `Row ${visible(id)}`;
  const bodies = await Promise.all(data.runs.map(async (run, number) => {
    const at = place(entry, number);
    return at < 0 ? make("div", { class: "record" }, make("h3", {}, visible(run.name)), make("p", { class: "note" }, "This run does not have the row."))
      : drawRecord(await textsOf(number, at), run, at);
  }));
  if (state.open !== entry) return;
  byId("row-body").replaceChildren(...bodies);
  byId("row-body").className = data.runs.length > 1 ? "pair" : "";
  const at = state.shown.indexOf(entry);
  byId("previous-row").disabled = at <= 0;
  byId("next-row").disabled = at < 0 ? !state.shown.length : at >= state.shown.length - 1;
  if (quiet) return;
  byId("row-title").focus();
  scrollTo(0, 0);
}

function closeRow() {
  const from = state.open;
  state.open = null;
  byId("row").hidden = true;
  for (const node of document.querySelectorAll("main > section:not(#row), main > details")) node.hidden = false;
  if (from === null) return;
  const at = state.shown.indexOf(from);
  if (at >= 0) state.page = Math.floor(at / PAGE);
  draw();
  focusAt(Math.max(0, at));
}

function follow(quiet) {
  const match = /^#row=(.*)$/.exec(location.hash);
  if (!match) { closeRow(); return; }
  let wanted = match[1];
  try { wanted = decodeURIComponent(wanted); } catch { /* taken as it is */ }
  for (let entry = 0; entry < size; entry++) {
    const id = idOf(entry);
    if (id === wanted || (id.toWellFormed && id.toWellFormed() === wanted)) { openRow(entry, quiet); return; }
  }
  closeRow();
  byId("count").textContent = `No row has the id ${visible(wanted)}.`;
  byId("rows").scrollIntoView();
}

function focusAt(at) {
  if (at < 0 || at >= state.shown.length) return;
  const page = Math.floor(at / PAGE);
  if (page !== state.page) { state.page = page; draw(); }
  document.querySelector(`a.id[data-at="${at}"]`)?.focus();
}

function step(by) {
  if (state.open !== null) {
    const next = state.shown[state.shown.indexOf(state.open) + by];
    if (next !== undefined) location.hash = `row=${encode(idOf(next))}`;
    return;
  }
  const at = document.activeElement?.dataset?.at;
  focusAt(at === undefined ? state.page * PAGE : Number(at) + by);
}

function turn(by) {
  state.page += by;
  draw();
  byId("rows").scrollIntoView();
}

document.addEventListener("keydown", (event) => {
  if (byId("help").open) return;
  if (event.key === "Escape") {
    if (state.open !== null) location.hash = "rows"; else document.activeElement?.blur();
    return;
  }
  if (isTyping(event)) return;
  const inText = event.target.matches("pre");
  const acts = { j: () => step(1), k: () => step(-1), "/": () => { if (state.open !== null) location.hash = "rows"; byId("search").focus(); } };
  if (state.open === null && event.target.matches("a.id, body, main")) {
    Object.assign(acts, { ArrowRight: () => turn(1), ArrowLeft: () => turn(-1) });
    if (event.target.matches("a.id")) Object.assign(acts, { ArrowDown: () => step(1), ArrowUp: () => step(-1) });
  } else if (state.open !== null && !inText) Object.assign(acts, { ArrowRight: () => step(1), ArrowLeft: () => step(-1) });
  const act = acts[event.key];
  if (act) { event.preventDefault(); act(); }
});

function start() {
  load();
  let waiting;
  byId("search").value = state.query;
  byId("search").addEventListener("input", (event) => {
    state.query = event.target.value;
    state.page = 0;
    clearTimeout(waiting);
    waiting = setTimeout(() => search(state.query), 120);
  });
  byId("tools").addEventListener("submit", (event) => event.preventDefault());
  byId("previous-page").addEventListener("click", () => turn(-1));
  byId("next-page").addEventListener("click", () => turn(1));
  byId("previous-row").addEventListener("click", () => step(-1));
  byId("next-row").addEventListener("click", () => step(1));
  drawFilters();
  refresh();
  if (state.query) search(state.query);
}

addEventListener("hashchange", () => follow(false));
start();
if (data.changes?.some((change) => change)) { state.filters.add("changed"); drawFilters(); refresh(); }
if (location.hash.startsWith("#row=")) follow(false);
