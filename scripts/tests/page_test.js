// What page_test.py asks of the page, from inside of it: everything is opened, measured and clicked, and
// told to the frame's parent. `errors` is filled by what stands before.
"use strict";

const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const text = (element) => element.textContent.trim();

// The event that precedes printing opens what is closed, but for long lists of tables.
const printed = "details:not([open], .bulk, .bulk *)";
const closed = all(printed).length;
dispatchEvent(new Event("beforeprint"));
const stillClosed = all(printed).length;
all("details").forEach((details) => { details.open = true; });

// Texts of a drawing that touch another one, or leave the drawing.
function misplaced(svg) {
  const frame = svg.getBoundingClientRect();
  const labels = all("text", svg).filter(text).map((node) => ({
    what: text(node),
    box: node.getBoundingClientRect(),
  }));
  const name = text(svg.querySelector("title"));
  const found = [];
  for (const [i, { what, box }] of labels.entries()) {
    if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
        box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
      found.push(`${name}: "${what}" leaves the drawing`);
    for (const other of labels.slice(i + 1)) {
      const across = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
      const down = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
      if (across > 1 && down > 1) found.push(`${name}: "${what}" on "${other.what}"`);
    }
  }
  return found;
}

// Texts that leave the window, other than in what scrolls by itself.
function wide() {
  const range = document.createRange();
  return all("main *").filter((node) => !node.closest(".scroll, svg")).flatMap((node) =>
    [...node.childNodes].filter((child) => {
      if (child.nodeType !== Node.TEXT_NODE) return false;
      range.selectNodeContents(child);
      return range.getBoundingClientRect().right > innerWidth;
    })).map((child) => child.data.trim());
}

// A column after one click and after two.
function sorted(table) {
  const headers = all("thead th", table);
  return headers.flatMap((header, column) => {
    const values = () => all("tbody tr", table).map((row) => row.cells[column])
      .filter((cell) => "value" in cell.dataset).map((cell) => Number(cell.dataset.value));
    const button = header.querySelector("button");
    button.focus();
    const focused = document.activeElement === button;
    return ["ascending", "descending"].map((order) => {
      button.click();
      const sign = order === "ascending" ? 1 : -1;
      return {
        column: text(header),
        order,
        focused,
        said: header.getAttribute("aria-sort"),
        others: headers.filter((other) => other.hasAttribute("aria-sort")).length,
        inOrder: values().every((value, i, list) => i === 0 || sign * (value - list[i - 1]) >= 0),
      };
    });
  });
}

// The least contrast of texts against the ground, by WCAG's formula.
function contrast() {
  const luminance = (color) => {
    const channels = color.match(/[\d.]+/g).slice(0, 3).map((v) => v / 255);
    const [r, g, b] = channels.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = luminance(getComputedStyle(document.body).backgroundColor);
  const ratio = (color) => {
    const [low, high] = [luminance(color), ground].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const colors = new Set();
  all("p, td, th, figcaption, nav a").forEach((node) => colors.add(getComputedStyle(node).color));
  all("svg text").forEach((node) => colors.add(getComputedStyle(node).fill));
  return { ground, least: Math.min(...[...colors].map(ratio)) };
}

const tables = all("table").map((table) => ({
  keys: { ...table.dataset },
  columns: all("thead th", table).map(text),
  rows: all("tbody tr", table).map((row) => [...row.cells].map((cell) =>
    "value" in cell.dataset ? Number(cell.dataset.value) : text(cell))),
}));
const ids = all("[id]").map((node) => node.id);
const button = document.getElementById("theme");
const themes = {};
for (const theme of ["light", "dark"]) {
  button.click();
  themes[theme] = contrast();
}

const findings = {
  errors,
  width: innerWidth,
  scrollWidth: document.documentElement.scrollWidth,
  tooWide: wide(),
  prefersDark: matchMedia("(prefers-color-scheme: dark)").matches,
  closed,
  stillClosed,
  drawings: all("svg").length,
  unnamed: all("svg").filter((svg) => !svg.querySelector("title")).length,
  misplaced: all("svg").flatMap(misplaced),
  twice: ids.filter((id, i) => ids.indexOf(id) !== i),
  outside: all("[src], [href]").map((node) => node.getAttribute("src") ?? node.getAttribute("href"))
    .filter((link) => !link.startsWith("#") && !link.startsWith("data:")),
  dangling: all("nav a").map((link) => link.getAttribute("href").slice(1))
    .filter((id) => !document.getElementById(id)),
  themes,
  tables,
  sorts: all("table").slice(0, 3).flatMap(sorted),
};
parent.document.body.textContent = `findings:${btoa(unescape(encodeURIComponent(JSON.stringify(findings))))}:`;
