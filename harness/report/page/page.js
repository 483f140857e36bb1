"use strict";

// A column's button sorts its table: once upwards, again downwards. What has no number comes last either way.
const key = (body, index, numeric) => {
  const cell = body.rows[0].cells[index];
  return numeric ? (cell.hasAttribute("data-value") ? Number(cell.dataset.value) : NaN) : cell.textContent.trim();
};

const compare = (a, b) => {
  if (typeof a === "string") return a.localeCompare(b, "en", { numeric: true });
  return a - b;
};

const sort = (header) => {
  const table = header.closest("table");
  const down = header.getAttribute("aria-sort") === "ascending";
  const index = header.cellIndex;
  const numeric = header.classList.contains("number");
  const bodies = [...table.tBodies].map((body) => [key(body, index, numeric), body]);
  const missing = (value) => Number.isNaN(value) || value === "";
  bodies.sort(([a], [b]) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return down ? compare(b, a) : compare(a, b);
  });
  table.append(...bodies.map(([, body]) => body));
  for (const other of header.parentElement.cells) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
};

for (const header of document.querySelectorAll("table.sortable > thead > tr:last-child > th")) {
  header.firstElementChild.addEventListener("click", () => sort(header));
}

// A click anywhere in a row opens its details, as a click on its triangle does without any script.
for (const row of document.querySelectorAll("table.sortable > tbody > tr:first-child")) {
  const details = row.nextElementSibling && row.nextElementSibling.querySelector("details.row");
  if (!details) continue;
  row.addEventListener("click", () => {
    if (!String(getSelection())) details.open = !details.open;
  });
}

// The row that is pointed at or has the focus, in a table or a plot, stands out everywhere; without one, the open rows do.
const bodies = [...document.querySelectorAll("tbody[data-rows]")];
const drawn = [...document.querySelectorAll("figure svg [data-row]")];
const numbers = (body) => body.dataset.rows.split(" ");
const names = new Map();
for (const body of bodies) {
  const name = body.querySelector("td.name").firstChild.textContent;
  for (const row of numbers(body)) if (!names.has(row)) names.set(row, name);
}
for (const each of drawn) {
  const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
  title.textContent = names.get(each.dataset.row) || "";
  each.prepend(title);
}

const standOut = (rows) => {
  for (const each of drawn) each.classList.toggle("on", rows.includes(each.dataset.row));
  for (const svg of document.querySelectorAll("figure svg")) svg.classList.toggle("chosen", !!svg.querySelector(".on"));
  for (const body of bodies) body.classList.toggle("on", numbers(body).some((row) => rows.includes(row)));
};
const follow = ({ target }) => {
  const part = target.closest && target.closest("[data-row]");
  const body = target.closest && target.closest("tbody[data-rows]");
  const open = bodies.filter((each) => each.querySelector("details.row[open]"));
  standOut(part ? [part.dataset.row] : (body ? [body] : open).flatMap(numbers));
};
document.addEventListener("pointerover", follow);
document.addEventListener("focusin", follow);
document.addEventListener("focusout", ({ relatedTarget }) => follow({ target: relatedTarget || document.body }));
document.addEventListener("toggle", () => follow({ target: document.activeElement }), true);

// The search field shows the rows whose name, in short and in full, has all of its words.
const field = document.getElementById("search");
if (field) {
  const rows = [...document.querySelectorAll(".searched table.sortable > tbody")];
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const cell = row.rows[0].cells[0];
      const name = `${cell.textContent} ${cell.title}`.toLowerCase();
      row.hidden = !words.every((word) => name.includes(word));
      count += !row.hidden;
    }
    document.getElementById("found").textContent = words.length ? `${count} of ${rows.length} rows` : "";
  });
}

// Light or dark: what the reader's system says, until the button is used.
const button = document.getElementById("theme");
button.addEventListener("click", () => {
  const { dataset } = document.documentElement;
  const dark = dataset.theme ? dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  dataset.theme = dark ? "light" : "dark";
});
button.hidden = false;
