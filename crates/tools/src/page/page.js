"use strict";

// A click on a column's name sorts by it: numbers by what they are, not by how they are written.
// Whatever has no number stays last.
const value = (row, column) => {
  const cell = row.cells[column];
  return "value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent;
};
const compare = (a, b) =>
  typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en");

document.querySelectorAll("thead button").forEach((button) => {
  button.addEventListener("click", () => {
    const header = button.parentElement;
    const body = header.closest("table").tBodies[0];
    const column = header.cellIndex;
    const descending = header.getAttribute("aria-sort") === "ascending";
    const rows = [...body.rows].map((row) => [value(row, column), row]);
    const numeric = rows.some(([key]) => typeof key === "number");
    const missing = ([key]) => numeric && typeof key !== "number";
    rows.sort((a, b) =>
      missing(a) || missing(b)
        ? missing(a) - missing(b)
        : compare(a[0], b[0]) * (descending ? -1 : 1));
    body.append(...rows.map(([, row]) => row));
    for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  });
});

// The theme: the system's, light, dark.
const themes = ["system", "light", "dark"];
let theme = 0;
const button = document.getElementById("theme");
button.addEventListener("click", () => {
  theme = (theme + 1) % themes.length;
  if (theme === 0) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = themes[theme];
  button.textContent = `Theme: ${themes[theme]}`;
});

// On paper all is open but long lists of tables alone; afterwards it is as it was.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open], .bulk, .bulk *)")];
  opened.forEach((details) => { details.open = true; });
});
addEventListener("afterprint", () => opened.forEach((details) => { details.open = false; }));
