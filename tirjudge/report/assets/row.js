// The view of one row: its texts, and what the judge did, which stays hidden while a person labels rows.
const letterOf = (index) => String.fromCharCode(65 + index);
const BLIND = ["domain", "tags", "from"];

const block = (level, kind, heading, text, ...more) => make("div", { class: `part ${kind}` },
  make(level, { class: "caption" }, visible(heading)), ...body(text), ...more);

// A text, or the parts of a transcript, each under its heading.
const body = (text) => typeof text === "string" ? [make("pre", { tabIndex: 0 }, visible(text) || "(empty)")]
  : text.flatMap(([heading, part]) => [make("p", { class: "message" }, visible(heading)), ...body(part)]);

// A folder of files, closed: each with the start of its text, or with what was changed in it.
const MARKS = { "+": "added", "-": "removed", "@": "place" };
const diffLine = (line) => make("span", { class: MARKS[line[0]] ?? "" }, `${visible(line)}\n`);
const folder = ({ heading, files }) => make("details", { class: "files" }, make("summary", {}, visible(heading)),
  ...files.flatMap(([line, text, isDiff]) => [make("p", { class: "message" }, visible(line)), ...(text
    ? [make("pre", { tabIndex: 0, class: isDiff ? "diff" : "" }, ...(isDiff ? text.split("\n").map(diffLine) : [visible(text)]))] : [])]));

const facts = (record, hidden) => make("dl", { class: "facts" }, ...record.facts
  .filter(([name]) => !hidden || BLIND.includes(name))
  .map(([name, fact]) => make("div", {}, make("dt", {}, name), make("dd", {}, visible(fact)))));

// The question and the responses; sources, letters of verdicts and labels are part of the headings unless hidden.
function drawQuestion(record, hidden, order) {
  const parts = [facts(record, hidden)];
  if (record.prompt) {
    parts.push(make("div", { class: "texts" }, ...record.prompt.map(([heading, text]) => block("h3", "prompt", heading, text))));
    parts.push(...record.given.map(folder));
    parts.push(make("div", { class: "texts responses" }, ...order.map((index, at) => {
      const [heading, text, ...folders] = record.responses[index], name = `response ${letterOf(at)}`;
      const named = hidden ? folders.map((one) => ({ ...one, heading: one.heading.replace(/response [A-Z]+/, name) })) : folders;
      return block("h3", "response", hidden ? name : heading, text, ...named.map(folder));
    })));
    if (record.cut) parts.push(make("p", { class: "note" }, record.cut));
  } else parts.push(make("p", { class: "note" }, "The prompt and the responses are not in the file."));
  if (record.reference) parts.push(make("div", { class: "texts" }, block("h3", "reference", "reference", record.reference)));
  for (const [heading, text, verdict] of record.criteria ?? []) {
    parts.push(block("h3", "criterion", heading, text || "(not in the file)", ...(hidden ? [] : [make("p", { class: "end" }, visible(verdict))])));
  }
  return parts;
}

function drawView(view) {
  const parts = view.parts.map((part) => block("h4", part.kind, part.heading, part.text,
    ...(part.notes?.length ? [make("p", { class: "note" }, part.notes.map(visible).join("; "))] : [])));
  const more = [view.reward, view.evidence].filter(Boolean).map((text) => make("span", { class: "quiet" }, ` · ${visible(text)}`));
  return make("section", { class: "view" }, make("h3", {}, visible(view.heading)), ...parts,
    make("p", { class: "end" }, make("strong", {}, visible(view.verdict)), ...more));
}

function drawRecord(record, run, at, entry) {
  const hidden = state.labelling;
  const found = make("div", { class: "record" });
  if (several()) found.append(make("h3", {}, visible(run.name)));
  if (!hidden) {
    const outcome = coded(run.outcomes, at);
    found.append(make("p", { class: "what" }, make("strong", {}, visible(coded(run.verdicts, at))), " ",
      make("span", { class: `outcome ${outcome}` }, outcome)));
  }
  if (!record) {
    found.append(make("p", { class: "note" }, "This page has no texts of this row: write the report with --texts all."));
    return found;
  }
  const given = (record.responses ?? []).map((_, index) => index);
  found.append(...drawQuestion(record, hidden, hidden && candidatesOf(entry) ? shownOrder(entry) : given));
  if (!hidden) found.append(...record.views.map(drawView));
  return found;
}

async function openRow(entry, quiet) {
  const id = idOf(entry), hidden = state.labelling;
  state.open = entry;
  hideOthers();
  byId("row").hidden = false;
  byId("row-title").textContent = `Row ${visible(id)}`;
  byId("row-number").textContent = `Row ${(rank[entry] + 1).toLocaleString("en")} of ${size.toLocaleString("en")}`;
  // A person sees the texts once, whatever the number of runs.
  const first = Math.max(runWith(entry), 0);
  const runs = data.runs.map((run, number) => [run, number]).filter(([, number]) => !hidden || number === first);
  const bodies = await Promise.all(runs.map(async ([run, number]) => {
    const at = place(entry, number);
    return at < 0 ? make("div", { class: "record" }, make("h3", {}, visible(run.name)), make("p", { class: "note" }, "This run does not have the row."))
      : drawRecord(await textsOf(number, at), run, at, entry);
  }));
  if (state.open !== entry) return;
  byId("row-body").replaceChildren(...drawnNote(entry), ...bodies);
  byId("row-body").className = bodies.length > 1 ? "pair" : "";
  drawLabeller(entry);
  const at = state.shown.indexOf(entry);
  byId("previous-row").disabled = at <= 0;
  byId("next-row").disabled = at < 0 ? !state.shown.length : at >= state.shown.length - 1;
  if (quiet) return;
  byId("row-title").focus();
  scrollTo(0, 0);
}

// Shows what belongs to a row, to the table, or to labelling.
function hideOthers() {
  document.body.classList.toggle("labelling", state.labelling && state.open !== null);
  document.querySelector("#rows .heading a").hidden = state.labelling;
  for (const node of document.querySelectorAll("main > section, main > details")) {
    node.hidden = node.id === "row" ? state.open === null : node.id === "rows" ? state.open !== null : state.open !== null || state.labelling;
  }
}

function closeRow() {
  const from = state.open;
  state.open = null;
  hideOthers();
  if (from === null) return;
  const at = state.shown.indexOf(from);
  if (at >= 0) state.page = Math.floor(at / PAGE);
  draw();
  focusAt(Math.max(0, at));
}
