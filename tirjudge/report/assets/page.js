"use strict";
// The parts that every page has: the theme, the list of keys, and the newest version of a run in progress.
const byId = (id) => document.getElementById(id);

// All text is drawn through textContent: text of rows, models and programs is hostile.
function make(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") node.className = value;
    else if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

const themes = ["auto", "light", "dark"];

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
  try { localStorage.setItem("tirjudge-theme", theme); } catch { /* a page from disk may have no storage */ }
  document.dispatchEvent(new Event("themechange"));
}

(() => {
  let theme = "auto";
  try { theme = localStorage.getItem("tirjudge-theme") ?? "auto"; } catch { /* as above */ }
  setTheme(themes.includes(theme) ? theme : "auto");
  byId("theme").addEventListener("click", () => {
    setTheme(themes[(themes.indexOf(document.documentElement.dataset.theme) + 1) % themes.length]);
  });
  byId("help-button").addEventListener("click", () => byId("help").showModal());
})();

const isTyping = (event) => event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey;

document.addEventListener("keydown", (event) => {
  if (event.key === "?" && !isTyping(event)) {
    event.preventDefault();
    byId("help").showModal();
  }
});

// A page of `tirjudge view` asks its server for a newer version, and takes over its content.
if (document.documentElement.hasAttribute("data-live")) {
  const status = byId("live");
  let tag = document.documentElement.dataset.live;
  const say = (text) => { status.hidden = false; if (status.textContent !== text) status.textContent = text; };
  const follow = async () => {
    try {
      const answer = await fetch(location.pathname, { headers: { "If-None-Match": tag }, cache: "no-store" });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag");
        document.dispatchEvent(new CustomEvent("newer", { detail: await answer.text() }));
      } else if (answer.status !== 304) throw new Error(answer.statusText);
      say("Following the run");
    } catch {
      say("The server has ended; this is its last state");
    }
    setTimeout(follow, 2000);
  };
  setTimeout(follow, 2000);
  document.addEventListener("newer", (event) => {
    const parsed = new DOMParser().parseFromString(event.detail, "text/html");
    for (const old of document.querySelectorAll("script[type]")) old.remove();
    for (const script of parsed.querySelectorAll("script[type]")) document.body.append(document.adoptNode(script));
    const [x, y] = [scrollX, scrollY];
    const open = new Set([...document.querySelectorAll("main details[open] > summary")].map((one) => one.textContent));
    byId("main").replaceWith(document.adoptNode(parsed.getElementById("main")));
    for (const summary of document.querySelectorAll("main details > summary")) summary.parentNode.open = open.has(summary.textContent);
    document.dispatchEvent(new Event("replaced"));
    scrollTo(x, y);
  });
}
