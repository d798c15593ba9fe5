// The data of the page, the columns of its table, their order, and the table as CSV.
const state = { query: "", filters: new Set(), choices: new Map(), sort: { column: "number", down: false }, page: 0, shown: [], open: null, labelling: false };
let data, size, order, rank, entryOf, hits = null, searching = 0;
const unpacked = new Map();

const flag = (name) => 1 << data.flags.indexOf(name);
const place = (entry, run) => data.places ? data.places[entry][run] : entry;
const coded = (column, at) => column.values[column.codes[at]];
const idOf = (entry) => {
  for (let run = 0; run < data.runs.length; run++) if (place(entry, run) >= 0) return data.runs[run].ids[place(entry, run)];
};
// A lone surrogate has no UTF-8 form, which encodeURIComponent refuses.
const wellFormed = (id) => id.toWellFormed ? id.toWellFormed() : id;
const encode = (id) => encodeURIComponent(wellFormed(id));

function load() {
  data = JSON.parse(byId("rows-data").textContent);
  size = data.places ? data.places.length : data.runs[0].ids.length;
  // The order of the judged file; rows are stored as they were finished.
  order = data.order ?? Array.from({ length: size }, (_, entry) => entry);
  rank = new Uint32Array(size);
  order.forEach((entry, at) => { rank[entry] = at; });
  entryOf = new Map();
  // Of rows with the same id the first one counts; an id itself comes before the address of another one.
  for (const read of [(id) => wellFormed(id), (id) => id]) for (const entry of [...order].reverse()) entryOf.set(read(idOf(entry)), entry);
}

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

// What the last program printed about the responses, and the line of code behind it.
const why = (run, at) => run.reasons[at] ?? ["", ""];

function promptOf(entry) {
  const run = data.runs.findIndex((one, number) => place(entry, number) >= 0 && one.prompts.length);
  return run < 0 ? "" : data.runs[run].prompts[place(entry, run)];
}

const several = () => data.runs.length > 1;
const of = (number, read, missing = "") => (entry) => {
  const at = place(entry, number);
  return at < 0 || state.labelling ? missing : read(data.runs[number], at);
};

// Every column has a key, a name, the value by which it is sorted and saved, and for the table a class and what a cell contains.
function columns() {
  const found = [
    { key: "number", name: "number", kind: "n number", value: (entry) => rank[entry] + 1 },
    { key: "row", name: "row", value: idOf },
  ];
  if (labels.size || state.labelling) found.push({ key: "label", name: "label", kind: "labelled", value: labelOf });
  data.runs.forEach((run, number) => {
    if (state.labelling && several()) return;
    const verdict = of(number, (one, at) => coded(one.verdicts, at));
    const outcome = of(number, (one, at) => coded(one.outcomes, at));
    found.push({
      key: `verdict-${number}`, name: several() ? run.name : "winner", kind: "verdict", number,
      value: (entry) => `${verdict(entry)} ${outcome(entry)}`.trim(),
    });
    if (state.labelling || !run.reasons.length) return;
    found.push({
      key: `why-${number}`, name: several() ? `why: ${run.name}` : "why: output of the last program, and its check", kind: "why", number,
      value: of(number, (one, at) => why(one, at)[0]),
    });
  });
  if (several() || state.labelling) return found;
  for (const name of ["programs", "tokens", "seconds"]) {
    found.push({ key: name, name, kind: "wide n", value: (entry) => data.runs[0][name][entry] });
  }
  return found;
}

const sorting = new Intl.Collator("en", { numeric: true });
const compare = (one, other) => typeof one === "number" && typeof other === "number" ? one - other : sorting.compare(String(one), String(other));

// Returns all rows in the order that the reader chose; rows of equal values stay in the order of the file.
function sorted() {
  const column = columns().find(({ key }) => key === state.sort.column);
  if (!column || column.key === "number") return state.sort.down ? [...order].reverse() : order;
  const values = Array.from({ length: size }, (_, entry) => column.value(entry));
  const sign = state.sort.down ? -1 : 1;
  return [...order].sort((one, other) => sign * compare(values[one], values[other]));
}

// A spreadsheet takes a cell that begins with one of these marks for a formula: a quote in front makes it a text.
const FORMULA = /^[\s"']*[=+\-@|%\uff1d\uff0b\uff0d\uff20]|^[\t\r\n]/;
function csvCell(value) {
  if (typeof value === "number") return String(value);
  const text = wellFormed(FORMULA.test(value) ? `'${value}` : value);
  return `"${text.replaceAll('"', '""')}"`;
}

function saveRows() {
  const wanted = columns().flatMap((column) => column.key === "row"
    ? [column, { name: "prompt", value: promptOf }] : [column]);
  if (!state.labelling) {
    data.runs.forEach((run, number) => {
      const named = several() ? ` of ${run.name}` : "";
      wanted.push({ name: `check${named}`, value: of(number, (one, at) => why(one, at)[1]) });
      const decided = (one, at) => one.flags[at] & flag("decided") ? "yes" : one.flags[at] & flag("undecided") ? "no" : "";
      wanted.push({ name: `decided${named}`, value: of(number, decided) });
      wanted.push({ name: `stop${named}`, value: of(number, (one, at) => coded(one.stops, at)) });
    });
  }
  wanted.push({ name: "domain", value: (entry) => firstOf(entry, (run, at) => coded(run.domains, at)) });
  wanted.push({ name: "tags", value: (entry) => firstOf(entry, (run, at) => run.tags.codes[at].map((tag) => run.tags.values[tag]).join(", ")) });
  wanted.push({ name: "note", value: noteOf });
  const lines = [wanted.map((column) => column.name), ...state.shown.map((entry) => wanted.map((column) => column.value(entry)))];
  // Excel takes a file for UTF-8 by its byte order mark.
  save(data.labels.name.replace(/\.labels\.jsonl$/, ".shown.csv"), "text/csv", `\ufeff${lines.map((line) => line.map(csvCell).join(",")).join("\r\n")}\r\n`);
}

function firstOf(entry, read) {
  const number = data.runs.findIndex((_, run) => place(entry, run) >= 0);
  return read(data.runs[number], place(entry, number));
}
