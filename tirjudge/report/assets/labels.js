// Labels that a person gives in the page. Sources, verdicts and the order of the responses stay hidden until labelling ends.
const labels = new Map();
const notes = new Map();
const MOST_BY_KEY = 8;
let keeps = true;

const labelOf = (entry) => labels.get(idOf(entry)) ?? "";
const noteOf = (entry) => notes.get(idOf(entry)) ?? "";
// The responses of a row in the order in which a person who labels sees them, drawn by the page and the row's id.
function shownOrder(entry) {
  const found = Array.from({ length: candidatesOf(entry) }, (_, at) => at);
  let seed = 2166136261;
  for (const mark of `${data.labels.key} ${idOf(entry)}`) seed = Math.imul(seed ^ mark.codePointAt(0), 16777619);
  for (let at = found.length - 1; at > 0; at--) {
    seed = Math.imul(seed ^ (seed >>> 15), 2246822519) + 1013904223;
    const other = ((seed ^ (seed >>> 13)) >>> 0) % (at + 1);
    [found[at], found[other]] = [found[other], found[at]];
  }
  return found;
}

// The letter under which a person sees the response of a label; other labels are themselves.
const shownAs = (entry, label) => {
  const at = shownOrder(entry).findIndex((index) => letterOf(index) === label);
  return at < 0 || candidatesOf(entry) < 2 ? label : letterOf(at);
};
// The run that has the texts of a row, and the number of its responses; none if the row cannot be labelled.
const runWith = (entry) => data.runs.findIndex((run, number) => place(entry, number) >= 0 && run.candidates[place(entry, number)] > 0);
const candidatesOf = (entry) => {
  const run = runWith(entry);
  return run < 0 ? 0 : data.runs[run].candidates[place(entry, run)];
};

// The labels that a row may have, each with its key and its name, which is a place while rows are labelled.
function allowed(entry) {
  const count = candidatesOf(entry);
  if (!count) return [];
  if (count === 1) return [["pass", "p", "pass"], ["fail", "f", "fail"], ...Array.from({ length: 10 }, (_, at) => [String(at + 1), String((at + 1) % 10), String(at + 1)])];
  return [...shownOrder(entry).map((index, at) => [letterOf(index), at < MOST_BY_KEY ? letterOf(at).toLowerCase() : "", letterOf(at)]), ["tie", "t", "tie"]];
}

const storage = () => `tirjudge-labels-${data.labels.key}`;
// A page that is loaded again goes on labelling: the verdicts stay hidden.
const mode = () => `tirjudge-labelling-${data.labels.key}`;

// The tab keeps them too: a browser on a busy machine was seen to reload a page without what it had just put into its local store.
function keep() {
  const known = new Set([...labels.keys(), ...notes.keys()]);
  const text = JSON.stringify([...known].map((id) => [id, labels.get(id) ?? "", notes.get(id) ?? ""]));
  try {
    for (const store of [localStorage, sessionStorage]) {
      if (known.size) store.setItem(storage(), text); else store.removeItem(storage());
    }
  } catch { keeps = false; }
}

// Other pages from the same disk can write to this store: only labels that a row may have are taken.
function restore() {
  let found = [];
  try {
    state.labelling = sessionStorage.getItem(mode()) !== null;
    found = JSON.parse(localStorage.getItem(storage()) ?? sessionStorage.getItem(storage()) ?? "[]");
  } catch { keeps = false; }
  for (const one of Array.isArray(found) ? found : []) {
    const [id, label, note] = Array.isArray(one) ? one : [];
    const entry = entryOf.get(id);
    if (entry === undefined) continue;
    if (allowed(entry).some(([name]) => name === label)) labels.set(idOf(entry), label);
    if (typeof note === "string" && note) notes.set(idOf(entry), note);
  }
}

function setLabel(entry, label) {
  const id = idOf(entry);
  if (label) labels.set(id, label); else labels.delete(id);
  keep();
  progress();
  refresh();
  if (state.open === entry) openRow(entry, true);
}

function setNote(entry, text) {
  if (text) notes.set(idOf(entry), text); else notes.delete(idOf(entry));
  keep();
}

// How often the judge names the response that a label names, another response, or several or none.
function agreement() {
  let right = 0, wrong = 0, open = 0;
  for (const [id, label] of labels) {
    const entry = entryOf.get(id), run = runWith(entry);
    if (run < 0 || candidatesOf(entry) < 2 || label === "tie") continue;
    const best = data.runs[run].choices[place(entry, run)];
    if (best.length !== 1) open += 1; else if (letterOf(best[0]) === label) right += 1; else wrong += 1;
  }
  if (!(right + wrong)) return open ? `the judge decides none of the ${open} rows labelled with a letter` : "";
  const found = `right on ${right} of the ${right + wrong} labelled rows that it decides`;
  return `the judge is ${found}${open ? `; ${open} more ${open === 1 ? "is a tie" : "are ties"} or without a verdict` : ""}`;
}

// The labels of this page among what the result rests on.
function trusted(said) {
  const shown = byId("trust-labels")?.querySelector("dd");
  if (!shown || !said) return;
  shown.replaceChildren(make("strong", {}, said[0].toUpperCase() + said.slice(1)),
    make("span", { class: "note" }, `by ${labels.size} label${labels.size === 1 ? "" : "s"} of this page, which Save labels keeps`));
}

function progress() {
  const distinct = new Set();
  for (let entry = 0; entry < size; entry++) if (candidatesOf(entry)) distinct.add(idOf(entry));
  const possible = distinct.size, begun = labels.size > 0 || state.labelling;
  byId("label-rows").textContent = state.labelling ? "Stop labelling" : "Label rows";
  byId("stop-labels").hidden = !state.labelling;
  byId("label-rows").disabled = !possible;
  byId("cannot-label").textContent = possible ? ""
    : "This page has no texts, so its rows cannot be labelled: write it with --texts all, from rows that were judged without --no-texts.";
  byId("labels").hidden = !begun;
  byId("save-labels").disabled = !labels.size;
  byId("label-progress").max = Math.max(1, possible);
  byId("label-progress").value = labels.size;
  const count = `${labels.size.toLocaleString("en")} of ${possible.toLocaleString("en")} row${possible === 1 ? "" : "s"} labelled`;
  const kept = keeps ? "" : ". This browser keeps nothing: save the labels before you close the page";
  const said = several() || state.labelling ? "" : agreement();
  byId("labelled").textContent = begun ? count + (said && `; ${said}`) + kept : "";
  trusted(said);
}

function drawLabeller(entry) {
  byId("labeller").hidden = !state.labelling;
  if (!state.labelling) return;
  const focused = document.activeElement?.dataset?.label;
  const mine = labelOf(entry), choices = allowed(entry);
  if (!choices.length) {
    byId("labeller").replaceChildren(make("p", { class: "note" }, "This page has no texts of this row, so it cannot be labelled."), nextButton());
    return;
  }
  const buttons = choices.map(([label, key, name]) => {
    const button = make("button", { type: "button", class: "choice", "aria-pressed": String(label === mine) }, name, ...(key ? [" ", make("kbd", {}, key)] : []));
    button.dataset.label = label;
    button.addEventListener("click", () => setLabel(entry, label));
    return button;
  });
  const clear = make("button", { type: "button", disabled: !mine }, "Remove");
  clear.addEventListener("click", () => setLabel(entry, ""));
  const note = make("input", { type: "text", id: "note", value: noteOf(entry), autocomplete: "off" });
  // The next row may be open before its own field is drawn.
  note.addEventListener("input", () => setNote(entry, note.value));
  const question = candidatesOf(entry) === 1 ? "Is the response good?" : "Which response is better?";
  byId("labeller").replaceChildren(
    make("p", { class: "what", id: "asked", role: "status" }, mine ? `Labelled ${shownAs(entry, mine)}.` : question, " ",
      make("span", { class: "wide quiet" }, "Sources, order and the judge's verdicts are shown once you stop labelling.")),
    make("div", { class: "choices", role: "group", "aria-labelledby": "asked" }, ...buttons, clear),
    make("label", { class: "note-line" }, "Note ", note), nextButton());
  if (focused) buttons.find((button) => button.dataset.label === focused)?.focus();
}

function nextButton() {
  const button = make("button", { type: "button", id: "next-unlabelled" }, "Next", make("span", { class: "wide" }, " without a label "), make("kbd", {}, "n"));
  button.addEventListener("click", nextUnlabelled);
  return button;
}

// Goes to the next row without a label among the rows shown, after the open one.
function nextUnlabelled() {
  const from = state.open === null ? -1 : state.shown.indexOf(state.open);
  const round = [...state.shown.slice(from + 1), ...state.shown.slice(0, Math.max(0, from))];
  const next = round.find((entry) => !labels.has(idOf(entry)) && candidatesOf(entry));
  if (next !== undefined) location.hash = `row=${encode(idOf(next))}`;
  else location.hash = "rows";
}

function toggleLabelling() {
  if (byId("label-rows").disabled) return;
  state.labelling = !state.labelling;
  try { if (state.labelling) sessionStorage.setItem(mode(), ""); else sessionStorage.removeItem(mode()); } catch { keeps = false; }
  state.sort = { column: "number", down: false };
  byId("saved").hidden = true;
  progress();
  drawFilters();
  drawChoices();
  refresh();
  hideOthers();
  if (state.labelling) nextUnlabelled();
  else if (state.open !== null) openRow(state.open, true);
}

// What a person saw of a row, once labelling has ended.
function drawnNote(entry) {
  const label = labelOf(entry), order = shownOrder(entry);
  if (state.labelling || !label || order.length < 2) return [];
  const shown = order.map((index, at) => `response ${letterOf(index)} as ${letterOf(at)}`).join(", ");
  return [make("p", { class: "note" }, `Your label: ${label}. While you labelled you saw ${shown}.`)];
}

// An object's keys in the order of the responses, which JavaScript would change for names like 1 and 2.
const named = (names, texts) => `{${names.map((name, at) => `${JSON.stringify(name)}:${JSON.stringify(texts[at])}`).join(",")}}`;

function labelledRow(id, record) {
  const { named: isNamed, ...question } = record.question;
  const texts = question.responses ?? record.responses.map(([, text]) => text);
  const fields = [["id", JSON.stringify(id)], ["prompt", JSON.stringify(question.prompt ?? record.prompt[0][1])],
    ["responses", isNamed ? named(question.sources, texts) : JSON.stringify(texts)],
    ["label", JSON.stringify(labels.get(id))]];
  if (notes.has(id)) fields.push(["note", JSON.stringify(notes.get(id))]);
  for (const [name, value] of Object.entries(question)) if (name !== "prompt" && name !== "responses") fields.push([name, JSON.stringify(value)]);
  // Some readers end a line at these marks, which JSON may escape.
  return `{${fields.map(([name, value]) => `"${name}":${value}`).join(",").replace(/[\u0085\u2028\u2029]/g, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`)}}\n`;
}

async function saveLabels() {
  const lines = [];
  for (const entry of order) {
    const id = idOf(entry), run = runWith(entry);
    if (!labels.has(id) || entryOf.get(id) !== entry || run < 0) continue;
    lines.push(labelledRow(id, await textsOf(run, place(entry, run))));
  }
  const { name, quoted, results } = data.labels;
  save(name, "application/jsonl", lines.join(""));
  const commands = [`tirjudge report ${results} --labels ${quoted}`, `tirjudge score ${results} --labels ${quoted}`, `tirjudge judge ${quoted}`, `tirjudge train --data ${quoted} --plan`];
  byId("saved").hidden = false;
  byId("saved").replaceChildren(`Saved ${lines.length} labelled row${lines.length === 1 ? "" : "s"} as `, make("code", {}, visible(name)),
    ". A report with these labels, the accuracy of these verdicts, of another judge, and training:", make("pre", { tabIndex: 0 }, commands.map(visible).join("\n")));
}

function labelKey(key) {
  if (!state.labelling || state.open === null) return null;
  if (key === "Backspace") return labelOf(state.open) ? () => setLabel(state.open, "") : null;
  const found = allowed(state.open).find(([, own]) => own && own === key.toLowerCase());
  return found ? () => setLabel(state.open, found[0]) : null;
}
