"use strict";
// Theme, steps, confusion matrix, flow, sorting and printing. The page reads without it: it only changes what is there.
const data = JSON.parse(document.getElementById("report-data").textContent);
const at = (id) => document.getElementById(id);
const made = (tag, text, attributes = {}) => {
  const element = document.createElement(tag);
  element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
document.documentElement.classList.add("js");

// ---- light and dark
function startTheme() {
  const button = at("theme"), root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("faircl-theme"); } catch { /* a file page may have no storage */ }
  const show = () => {
    const dark = chosen ? chosen === "dark" : system.matches;
    if (chosen) root.dataset.theme = chosen;
    button.setAttribute("aria-pressed", String(dark));
  };
  button.addEventListener("click", () => {
    chosen = button.getAttribute("aria-pressed") === "true" ? "light" : "dark";
    try { localStorage.setItem("faircl-theme", chosen); } catch { /* then it lasts as long as the page */ }
    show();
  });
  system.addEventListener("change", show);
  show();
}

// ---- steps: all sliders move together
function startSteps() {
  const sliders = [...document.querySelectorAll("input.step")];
  for (const slider of sliders) slider.addEventListener("input", () => showStep(Number(slider.value), sliders));
}

let step = data.heads.length - 1;

function showStep(place, sliders) {
  step = place;
  const head = data.heads[place];
  for (const slider of sliders) {
    slider.value = String(place);
    slider.setAttribute("aria-valuetext", head.title);
    const box = slider.closest(".stepper");
    box.querySelector("output").textContent = head.title;
    box.querySelector(".about").textContent = head.text;
  }
  showBars();
  showMatrix();
  showFlow();
}

const TAGS = { old: "", new: "new", later: "not learned yet" };

function showBars() {
  const rows = at("bars").tBodies[0].rows;
  data.bars[step].forEach((bar, k) => {
    const row = rows[k], cells = row.cells, [fill, whisker] = row.querySelector(".bar").children;
    row.className = bar.kind;
    const tag = row.querySelector(".tag");
    tag.hidden = bar.kind === "old";
    tag.textContent = TAGS[bar.kind];
    fill.style.width = `${bar.iou ?? 0}%`;
    whisker.hidden = bar.low === null;
    whisker.style.left = `${bar.low ?? 0}%`;
    whisker.style.width = `${(bar.high ?? 0) - (bar.low ?? 0)}%`;
    const texts = [bar.text, ...(data.intervals ? [bar.interval] : []), bar.change];
    texts.forEach((text, j) => { if (cells[3 + j]) cells[3 + j].textContent = text; });
  });
}

// ---- confusion matrix
function startMatrix() {
  if (!data.confusion) return;
  at("confusion-choice").addEventListener("change", showMatrix);
}

function showMatrix() {
  if (!data.confusion) return;
  const { names, choices, steps } = data.confusion;
  const choice = choices[Number(at("confusion-choice").value)], table = at("matrix");
  const rows = steps[step] ?? [];
  const shares = choice.show.map((truth) => {
    const found = new Map(), row = rows[truth] ?? [];
    for (let k = 0; k < row.length; k += 2) found.set(row[k], row[k + 1] / 10);
    return found;
  });
  const none = names.length, columns = [...choice.show];
  if (shares.some((row) => (row.get(none) ?? 0) >= 0.5)) columns.push(none);
  const label = (k) => (k === none ? "no class" : names[k]);
  const head = made("tr", "");
  head.append(made("th", "truth ↓ taken for →", { scope: "col" }));
  for (const k of columns) {
    const cell = made("th", "", { scope: "col", title: label(k) });
    cell.append(made("div", label(k)));
    head.append(cell);
  }
  const body = choice.show.map((truth, place) => {
    const row = made("tr", "");
    row.append(made("th", names[truth], { scope: "row", title: names[truth] }));
    for (const k of columns) {
      const share = shares[place].get(k) ?? 0, shown = share >= 0.5;
      const cell = made("td", shown ? String(Math.round(share)) : "");
      if (shown) cell.classList.add(`c${Math.round(Math.sqrt(share / 100) * (data.levels - 1))}`);
      if (k === truth) cell.classList.add("own");
      row.append(cell);
    }
    return row;
  });
  table.tHead.replaceChildren(head);
  table.tBodies[0].replaceChildren(...body);
  const note = at("confusion-shown");
  if (note) note.textContent = `Shown: ${choice.label}, of ${names.length}.`;
}

// ---- where the pixels went
function showFlow() {
  const table = at("flow");
  if (!table) return;
  const rows = table.tBodies[0].rows, flow = data.flow[step];
  for (let k = 0; k < rows.length; k++) {
    const own = flow ? flow[k] : { parts: [], kept: "–", text: "no record of this step" };
    const parts = own.parts.map((part, j) => {
      const piece = made("i", "", { class: data.parts[j] });
      piece.style.width = `${part}%`;
      return piece;
    });
    rows[k].querySelector(".stack").replaceChildren(...parts.filter((_, j) => own.parts[j] > 0));
    rows[k].cells[2].textContent = own.kept;
    rows[k].cells[3].textContent = own.text;
  }
}

// ---- sorting: a button in every heading; numbers by value, missing values last
function startSorting() {
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = made("button", head.textContent, { type: "button" });
      head.replaceChildren(button);
      head.classList.add("sorts");
      head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => sort(table, head, column));
    });
  }
}

function sort(table, head, column) {
  const numeric = head.classList.contains("number");
  const up = head.getAttribute("aria-sort") === (numeric ? "descending" : "none") ||
    (!numeric && head.getAttribute("aria-sort") === "descending");
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const text = (row) => row.cells[column].textContent.trim();
  const value = (row) => Number.parseFloat(text(row).replaceAll(",", "").replace("\u2212", "-"));
  const order = new Intl.Collator(undefined, { numeric: true });
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    if (!numeric) return (up ? 1 : -1) * order.compare(text(a), text(b));
    const [x, y] = [value(a), value(b)];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y));
    return up ? x - y : y - x;
  });
  table.tBodies[0].append(...rows);
}

// ---- printing: everything is open, at the last step
function startPrinting() {
  let opened = [], before = step;
  const sliders = () => [...document.querySelectorAll("input.step")];
  window.addEventListener("beforeprint", () => {
    before = step;
    if (data.heads.length > 1) showStep(data.heads.length - 1, sliders());
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const one of opened) one.open = true;
  });
  window.addEventListener("afterprint", () => {
    if (data.heads.length > 1) showStep(before, sliders());
    for (const one of opened) one.open = false;
  });
}

startTheme();
startSteps();
startMatrix();
startSorting();
startPrinting();
