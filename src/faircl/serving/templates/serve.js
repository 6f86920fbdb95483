"use strict";
// One image, two sides: what a network of the run finds in it, or the image alone. The server keeps nothing, so that
// every question carries the image.
const byId = (id) => document.getElementById(id);
const SIDES = ["left", "right"];
const found = { left: null, right: null }; // the server's answers; null: the image alone
const hidden = new Set(); // names of classes that are not painted
let question = null; // what aborts the open question
let image = null; // the file that is shown
let pending = null; // the file that is being segmented
let seen = new Set(); // names of classes that were listed before

const percent = (share) => (share > 0 && share < 0.0005 ? "< 0.1" : (100 * share).toFixed(1));

function say(text) {
  byId("status").textContent = text;
}

function complain(text) {
  byId("problem").textContent = text;
  byId("problem").hidden = !text;
  if (text) byId("problem").scrollIntoView({ block: "nearest" });
}

function bytesOf(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

// ---- questions to the server

async function ask(side, file, signal) {
  const choice = byId(`${side}-choice`).value;
  if (!choice) return null;
  const query = new URLSearchParams({ choice, name: file.name });
  const response = await fetch(`segment?${query}`, { method: "POST", body: file, signal }).catch(() => {
    throw new Error("The server does not answer. Is 'faircl serve' still running?");
  });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.problem || `The server answered with status ${response.status}.`);
  const mask = bytesOf(answer.mask);
  answer.mask = answer.bytes === 2 ? new Uint16Array(mask.buffer) : mask;
  answer.unknown = bytesOf(answer.unknown);
  answer.scores = new Uint32Array(256); // how many pixels have a score
  for (const score of answer.unknown) answer.scores[score]++;
  return answer;
}

function refusal(file) {
  if (file.size > Number(document.body.dataset.maxBytes)) {
    const size = (file.size / 1e6).toFixed(1);
    return `File ${file.name} has ${size} MB, and at most ${document.body.dataset.maxBytesWords} are accepted: ` +
      "make it smaller, or start the server with a larger --max-bytes.";
  }
  if (SIDES.every((side) => !byId(`${side}-choice`).value)) return "Choose a step or a version for one of the sides.";
  return "";
}

async function segment(file, sides) {
  question?.abort(); // this one takes its place
  const { signal } = (question = new AbortController());
  pending = file;
  try {
    const problem = refusal(file);
    if (problem) throw new Error(problem);
    complain("");
    say(`Segmenting ${file.name} …`);
    byId("stage").classList.add("busy");
    const answers = [];
    for (const side of sides) answers.push(await ask(side, file, signal)); // the server works on one at a time
    sides.forEach((side, number) => (found[side] = answers[number]));
    image = file;
    show();
  } catch (error) {
    if (signal.aborted) return;
    say(image ? `${image.name} is still shown.` : "");
    complain(error.message);
    if (sides.length === 1) clear(sides[0]);
  }
  pending = null;
  byId("stage").classList.remove("busy");
}

function choose(side) {
  if (pending) segment(pending, SIDES);
  else if (!byId(`${side}-choice`).value) clear(side);
  else if (image) segment(image, [side]);
}

function clear(side) {
  found[side] = null;
  listClasses();
  paint(side);
}

// ---- the picture

function show() {
  const answer = found.left || found.right;
  const [width, height] = answer.shown;
  byId("result").hidden = byId("tools").hidden = false;
  document.body.classList.add("shown");
  byId("picture").src = answer.picture;
  byId("picture").alt = `The image ${answer.name}`;
  byId("result").style.setProperty("--ratio", String(width / height));
  for (const side of SIDES) {
    for (const canvas of byId(side).children) Object.assign(canvas, { width, height });
  }
  byId("stage").classList.toggle("sharp", byId("stage").clientWidth > 2 * width);
  const score = SIDES.map((side) => found[side]?.threshold).find(Boolean);
  if (!byId("unknown").checked) byId("threshold").value = String(100 * score);
  listClasses();
  SIDES.forEach(paint);
  const seconds = SIDES.filter((side) => found[side]).map((side) => found[side].seconds.toFixed(2));
  const size = `${answer.width} × ${answer.height} pixels`;
  say([`${answer.name}: ${size}, segmented in ${seconds.join(" and ")} s.`, ...answer.notes].join(" "));
}

function paint(side) {
  const [classes, unknown] = byId(side).children;
  for (const canvas of [classes, unknown]) canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
  if (!found[side]) return;
  const { mask, classes: present } = found[side];
  const colours = new Uint32Array(65536);
  for (const { id, name, colour: [r, g, b] } of present) {
    if (!hidden.has(name)) colours[id] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  }
  put(classes, (pixels) => {
    for (let i = 0; i < pixels.length; i++) pixels[i] = colours[mask[i]];
  });
  paintUnknown(side);
}

function paintUnknown(side) {
  const canvas = byId(side).children[1];
  canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
  canvas.hidden = !byId("unknown").checked;
  if (!found[side] || canvas.hidden) return;
  const scores = found[side].unknown;
  const from = 2.55 * Number(byId("threshold").value);
  const width = canvas.width;
  const stripe = Math.max(1, Math.round(Math.max(width, canvas.height) / 160));
  const colours = [0xff000000, 0xffffffff, 0, 0]; // black, white, and a gap that shows what is below
  put(canvas, (pixels) => {
    for (let i = 0, y = 0; i < pixels.length; y++) {
      for (let x = 0; x < width; x++, i++) {
        if (scores[i] >= from) pixels[i] = colours[Math.floor((x + y) / stripe) % 4];
      }
    }
  });
}

function put(canvas, fill) {
  const pixels = new Uint32Array(canvas.width * canvas.height); // 0: transparent
  fill(pixels);
  const bytes = new Uint8ClampedArray(pixels.buffer);
  canvas.getContext("2d").putImageData(new ImageData(bytes, canvas.width, canvas.height), 0, 0);
}

function shareUnknown() {
  byId("threshold-shown").textContent = (Number(byId("threshold").value) / 100).toFixed(2);
  const from = 2.55 * Number(byId("threshold").value);
  const parts = SIDES.filter((side) => found[side]).map((side) => {
    const { scores, unknown } = found[side];
    const share = scores.reduce((sum, count, score) => sum + (score >= from ? count : 0), 0) / unknown.length;
    return `${side} ${percent(share)}\u00a0%`;
  });
  const names = new Set(SIDES.map((side) => found[side]?.score).filter(Boolean));
  const text = `Share of the image: ${parts.join(", ")}. Score: ${[...names].join(" and ")}.`;
  byId("unknown-share").textContent = parts.length ? text : "";
}

// ---- the list of classes

function listClasses() {
  const rows = new Map();
  for (const side of SIDES) {
    for (const one of found[side]?.classes ?? []) {
      if (!seen.has(one.name) && one.id === found[side].background) hidden.add(one.name); // as in other overlays
      seen.add(one.name);
      rows.set(one.name, { ...rows.get(one.name), colour: one.colour, [side]: one.share });
    }
  }
  const size = (row) => Math.max(row.left ?? 0, row.right ?? 0);
  const ranked = [...rows].sort(([, a], [, b]) => size(b) - size(a));
  byId("classes").replaceChildren(...ranked.map(([name, row]) => classRow(name, row)));
  shareUnknown();
}

function classRow(name, row) {
  const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: !hidden.has(name) });
  box.addEventListener("change", () => {
    if (box.checked) hidden.delete(name);
    else hidden.add(name);
    SIDES.forEach(paint);
  });
  const swatch = document.createElement("i");
  swatch.style.backgroundColor = `rgb(${row.colour.join(",")})`;
  const text = Object.assign(document.createElement("span"), { textContent: name });
  const label = document.createElement("label");
  label.append(box, swatch, text);
  const head = Object.assign(document.createElement("th"), { scope: "row" });
  head.append(label);
  const cells = SIDES.map((side) => {
    const shown = row[side] === undefined ? "–" : percent(row[side]);
    return Object.assign(document.createElement("td"), { className: "number", textContent: shown });
  });
  const line = document.createElement("tr");
  line.append(head, ...cells);
  return line;
}

function showClasses(shown) {
  for (const side of SIDES) {
    for (const { name } of found[side]?.classes ?? []) {
      if (shown) hidden.delete(name);
      else hidden.add(name);
    }
  }
  for (const box of byId("classes").querySelectorAll("input")) box.checked = shown;
  SIDES.forEach(paint);
}

// ---- controls

function moveSplit() {
  byId("result").style.setProperty("--split", `${byId("split").value}%`);
  byId("split").setAttribute("aria-valuetext", `${byId("split").value} % of the width show the left side`);
}

function setOpacity() {
  byId("stage").style.setProperty("--opacity", String(Number(byId("opacity").value) / 100));
  byId("opacity-shown").textContent = `${byId("opacity").value} %`;
}

function dragSplit(event) {
  if (event.buttons !== 1) return;
  const box = byId("stage").getBoundingClientRect();
  byId("split").value = String((100 * (event.clientX - box.left)) / box.width);
  moveSplit();
}

function remark() {
  shareUnknown();
  SIDES.forEach(paintUnknown);
}

byId("file").addEventListener("change", () => {
  const [file] = byId("file").files;
  if (file) segment(file, SIDES);
  byId("file").value = ""; // so that the same file can be chosen again
});
for (const side of SIDES) {
  byId(`${side}-choice`).addEventListener("change", () => choose(side));
}
byId("split").addEventListener("input", moveSplit);
byId("stage").addEventListener("pointerdown", dragSplit);
byId("stage").addEventListener("pointermove", dragSplit);
byId("opacity").addEventListener("input", setOpacity);
byId("unknown").addEventListener("change", remark);
byId("threshold").addEventListener("input", remark);
byId("all").addEventListener("click", () => showClasses(true));
byId("none").addEventListener("click", () => showClasses(false));
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault(); // otherwise the browser leaves the page and opens the file
    byId("drop").classList.toggle("over", kind === "dragenter" || kind === "dragover");
  });
}
document.addEventListener("drop", (event) => {
  const [file] = event.dataTransfer.files;
  if (file) segment(file, SIDES);
});
moveSplit();
setOpacity();
