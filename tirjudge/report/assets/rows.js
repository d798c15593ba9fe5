// The table of rows, its filters and search, and the keys.
const PAGE = 50;
const MOST_OPTIONS = 200;
const changes = { "changed": (value) => value !== 0, "gained": (value) => value === 1, "lost": (value) => value === -1 };

const fits = {
  flag: (entry, name) => data.runs.some((run, number) => place(entry, number) >= 0 && run.flags[place(entry, number)] & flag(name)),
  change: (entry, name) => changes[name](data.changes[entry]),
};

// While rows are labelled, no filter tells the verdict or an earlier label.
const TELLING = ["wrong", "tie", ...Object.keys(changes)];
const filterNames = () => [...(data.changes ? Object.keys(changes) : []), ...data.flags].filter((name) => !state.labelling || !TELLING.includes(name) || state.filters.has(name));

const matches = (entry, name) => name in changes ? fits.change(entry, name) : fits.flag(entry, name);

const wordsOf = (record) => [
  ...(record.prompt ?? []).map((message) => message[1]), ...(record.responses ?? []).flatMap((one) => [one[1]].flat(2)),
  ...[...(record.given ?? []), ...(record.responses ?? []).flatMap((one) => one.slice(2))].flatMap((one) => one.files.flatMap((file) => file.slice(0, 2))),
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

// The choices among the values of a column of every run: how rows stopped, their tags, their domains.
const CHOICES = { stop: (run, at) => [coded(run.stops, at)], tag: (run, at) => run.tags.codes[at].map((tag) => run.tags.values[tag]), domain: (run, at) => [coded(run.domains, at)] };
const hasChoice = (entry, name, wanted) => data.runs.some((run, number) => place(entry, number) >= 0 && CHOICES[name](run, place(entry, number)).includes(wanted));

function drawChoices() {
  const found = [];
  for (const name of Object.keys(CHOICES)) {
    const counts = new Map();
    for (let entry = 0; entry < size; entry++) for (const value of firstOf(entry, CHOICES[name])) if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
    if (counts.size < 2 && !(name === "tag" && counts.size)) continue;
    const values = [...counts].sort((one, other) => other[1] - one[1]).slice(0, MOST_OPTIONS).map(([value]) => value);
    const select = make("select", { id: `choose-${name}` }, make("option", { value: "" }, "all"),
      ...values.map((value, at) => make("option", { value: String(at) }, `${visible(value).slice(0, 60)} (${counts.get(value).toLocaleString("en")})`)));
    select.addEventListener("change", () => {
      if (select.value === "") state.choices.delete(name); else state.choices.set(name, values[Number(select.value)]);
      state.page = 0;
      refresh();
    });
    found.push(make("label", {}, `${name[0].toUpperCase()}${name.slice(1)} `, select));
  }
  // Narrow pages show no headings, by which wide ones are sorted.
  const sort = make("select", { id: "sort" }, ...columns().flatMap(({ key, name }) => [false, true].map((down) => {
    const option = make("option", { selected: state.sort.column === key && state.sort.down === down }, `${visible(name)} ${down ? "↓" : "↑"}`);
    option.dataset.key = key;
    option.dataset.down = down ? "1" : "";
    return option;
  })));
  sort.addEventListener("change", () => { const { key, down } = sort.selectedOptions[0].dataset; sortBy(key, Boolean(down)); });
  found.push(make("label", { class: "narrow" }, "Sort by ", sort));
  byId("choices").replaceChildren(...found);
  for (const [name, value] of state.choices) {
    const select = byId(`choose-${name}`);
    const option = [...select.options].find((one) => one.text.startsWith(visible(value).slice(0, 60)));
    if (option) select.value = option.value;
  }
}

function sortBy(column, down) {
  state.sort = { column, down };
  state.page = 0;
  refresh();
}

function cells(entry, all) {
  return all.slice(2).map((column) => {
    if (column.kind === "verdict") return verdictCell(entry, column.number);
    if (column.kind === "why") {
      const [output, code] = of(column.number, why, ["", ""])(entry);
      return make("td", { class: "why" }, ...(output ? [make("div", {}, output), make("div", { class: "quiet" }, code)] : []));
    }
    const value = column.kind === "labelled" && state.labelling ? shownAs(entry, labelOf(entry)) : column.value(entry);
    return make("td", { class: column.kind }, typeof value === "number" ? value.toLocaleString("en", column.key === "seconds" ? { minimumFractionDigits: 2 } : {}) : value);
  });
}

function verdictCell(entry, number) {
  const run = data.runs[number], at = place(entry, number);
  if (at < 0) return make("td", { class: "verdict quiet" }, "not in this run");
  if (state.labelling) return make("td", { class: "verdict quiet" }, "hidden");
  const outcome = coded(run.outcomes, at);
  const mark = outcome === "right" ? "✓ right" : outcome === "wrong" ? "✗ wrong" : outcome;
  // Narrow pages show no headings, which name the runs elsewhere.
  const named = several() ? [make("div", { class: "narrow quiet" }, visible(run.name))] : [];
  return make("td", { class: "verdict" }, ...named, visible(coded(run.verdicts, at)), " ", make("span", { class: `outcome ${outcome}` }, mark));
}

function heading({ key, name, kind }) {
  const down = state.sort.column === key ? state.sort.down : null;
  const button = make("button", { type: "button", class: "sort" }, visible(name), make("span", { "aria-hidden": "true" }, down === null ? "" : down ? " ↓" : " ↑"));
  button.dataset.key = key;
  button.addEventListener("click", () => {
    sortBy(key, down === false);
    [...byId("list").querySelectorAll("button.sort")].find((one) => one.dataset.key === key)?.focus();
  });
  return make("th", { scope: "col", class: kind ?? "", "aria-sort": down === null ? "none" : down ? "descending" : "ascending" }, button);
}

function draw() {
  const all = columns();
  byId("list").tHead.replaceChildren(make("tr", {}, ...all.map(heading)));
  const pages = Math.max(1, Math.ceil(state.shown.length / PAGE));
  state.page = Math.min(Math.max(0, state.page), pages - 1);
  const rows = state.shown.slice(state.page * PAGE, (state.page + 1) * PAGE).map((entry, at) => {
    const id = idOf(entry);
    const link = make("a", { href: `#row=${encode(id)}`, class: "id" }, visible(id) || "(empty id)");
    link.dataset.at = String(state.page * PAGE + at);
    const asked = promptOf(entry);
    return make("tr", {}, make("td", { class: "n number" }, (rank[entry] + 1).toLocaleString("en")),
      make("th", { scope: "row" }, link, ...(asked ? [make("div", { class: "asked" }, asked)] : [])), ...cells(entry, all));
  });
  byId("list").tBodies[0].replaceChildren(...rows);
  byId("page-number").textContent = `Page ${state.page + 1} of ${pages}`;
  byId("previous-page").disabled = state.page === 0;
  byId("next-page").disabled = state.page >= pages - 1;
  byId("count").textContent = `${state.shown.length.toLocaleString("en")} of ${size.toLocaleString("en")} rows`
    + (hits && data.runs.every((run) => !run.spans.length) ? "; this page has no texts, so only ids are searched" : "");
}

function refresh() {
  state.shown = [];
  const wanted = [...state.filters];
  const chosen = [...state.choices];
  for (const entry of sorted()) {
    if ((!hits || hits[entry]) && wanted.every((name) => matches(entry, name)) && chosen.every(([name, value]) => hasChoice(entry, name, value))) state.shown.push(entry);
  }
  draw();
}

function drawFilters() {
  const boxes = filterNames().flatMap((name) => {
    let count = 0;
    for (let entry = 0; entry < size; entry++) if (matches(entry, name)) count++;
    if (!count && !state.filters.has(name)) return [];
    const box = make("input", { type: "checkbox", value: name, checked: state.filters.has(name) });
    box.addEventListener("change", () => {
      if (box.checked) state.filters.add(name); else state.filters.delete(name);
      state.page = 0;
      refresh();
    });
    return make("label", {}, box, name, " ", make("span", { class: "number" }, count.toLocaleString("en")));
  });
  byId("filters").replaceChildren(byId("filters").firstElementChild, ...boxes);
  byId("filters").hidden = !boxes.length;
}

function follow(quiet) {
  if (location.hash === "#label") { if (!state.labelling) toggleLabelling(); return; }
  const match = /^#row=(.*)$/.exec(location.hash);
  if (!match) { closeRow(); return; }
  let wanted = match[1];
  try { wanted = decodeURIComponent(wanted); } catch { /* taken as it is */ }
  const entry = entryOf.get(wanted);
  if (entry !== undefined) { openRow(entry, quiet); return; }
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
  const label = labelKey(event.key);
  if (label) { event.preventDefault(); label(); return; }
  const acts = { l: toggleLabelling, ...(state.labelling ? { n: nextUnlabelled } : {}), j: () => step(1), k: () => step(-1), "/": () => { if (state.open !== null) location.hash = "rows"; byId("search").focus(); } };
  if (state.open === null && event.target.matches("a.id, body, main")) {
    Object.assign(acts, { ArrowRight: () => turn(1), ArrowLeft: () => turn(-1) });
    if (event.target.matches("a.id")) Object.assign(acts, { ArrowDown: () => step(1), ArrowUp: () => step(-1) });
  } else if (state.open !== null && !inText) Object.assign(acts, { ArrowRight: () => step(1), ArrowLeft: () => step(-1) });
  const act = acts[event.key];
  if (act) { event.preventDefault(); act(); }
});

function start() {
  load();
  restore();
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
  byId("save-rows").addEventListener("click", saveRows);
  byId("label-rows").addEventListener("click", toggleLabelling);
  byId("stop-labels").addEventListener("click", toggleLabelling);
  byId("save-labels").addEventListener("click", saveLabels);
  drawFilters();
  drawChoices();
  progress();
  refresh();
  hideOthers();
  if (state.query) search(state.query);
}

addEventListener("hashchange", () => follow(false));
start();
if (data.changes?.some((change) => change)) { state.filters.add("changed"); drawFilters(); refresh(); }
if (location.hash.startsWith("#row=") || location.hash === "#label") follow(false);
