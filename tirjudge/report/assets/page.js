"use strict";
// The parts that every page has: the theme and the list of keys.
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

const visible = (text) => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g,
  (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);

// Gives a text to the reader as a file of this name.
function save(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = make("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
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
