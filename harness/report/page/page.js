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

// The search field shows the rows whose name has all of its words.
const field = document.getElementById("search");
if (field) {
  const rows = [...document.querySelectorAll(".searched table.sortable > tbody")];
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const name = row.rows[0].cells[0].textContent.toLowerCase();
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
