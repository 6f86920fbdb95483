// The gallery: photo, masks over it left and right of a border, zoom, and which classes are painted.
(() => {
  if (!at("viewer")) return;
  const { paints, steps, depth } = data.gallery;
  const buttons = [...document.querySelectorAll("#thumbs button")];
  const canvas = at("canvas"), stage = at("stage"), context = canvas.getContext("2d");
  const decoded = new Map();  // "picture/layer" to positions among the paints
  const hidden = new Set(paints.flatMap((paint, k) => (paint.background ? [k] : [])));
  const OPAQUE = 0xff000000, WHITE = 0xffffffff, BLACK = OPAQUE;  // pixels as 32 bits: alpha, blue, green, red
  const colours = paints.map(({ colour }) => {
    const [red, green, blue] = [1, 3, 5].map((k) => Number.parseInt(colour.slice(k, k + 2), 16));
    return (OPAQUE | (blue << 16) | (green << 8) | red) >>> 0;
  });
  const view = { picture: -1, zoom: 1, x: 0, y: 0, photo: null, left: null, right: null, truth: null, found: null };
  let asked = 0;

  function picture(k) {
    if (!decoded.has(k)) decoded.set(k, JSON.parse(at(`picture-${k}`).textContent));
    return decoded.get(k);
  }

  async function mask(k, layer) {
    const key = `${k}/${layer}`, text = picture(k).masks[layer];
    if (text === undefined) return null;
    if (!decoded.has(key)) {
      const packed = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
      const buffer = await new Response(stream).arrayBuffer();
      decoded.set(key, depth === 2 ? new Uint16Array(buffer) : new Uint8Array(buffer));
    }
    return decoded.get(key);
  }

  function overlay(indices, wrong, width, height) {
    const layer = new OffscreenCanvas(width, height), pixels = new ImageData(width, height);
    const out = new Uint32Array(pixels.data.buffer), ignored = paints.length - 1;
    const shown = paints.map((_, k) => !hidden.has(k)), hatched = paints.map((paint) => paint.hatched);
    for (let k = 0; k < indices.length; k++) {
      const id = indices[k];
      if (!shown[id] || (wrong && (wrong[k] === id || wrong[k] === ignored))) continue;
      const stripe = hatched[id] ? (k % width + Math.floor(k / width)) % 12 : 12;
      out[k] = stripe < 2 ? WHITE : stripe < 4 ? BLACK : colours[id];
    }
    layer.getContext("2d").putImageData(pixels, 0, 0);
    return layer;
  }

  function draw() {
    const { width, height } = canvas, border = Math.round((width * at("border").value) / 100);
    context.globalAlpha = 1;
    context.drawImage(view.photo, 0, 0, width, height);
    context.globalAlpha = at("opacity").value / 100;
    for (const [layer, x, length] of [[view.left, 0, border], [view.right, border, width - border]]) {
      if (layer && length > 0) context.drawImage(layer, x, 0, length, height, x, 0, length, height);
    }
    place();
  }

  function place() {
    const box = stage.getBoundingClientRect(), most = (size) => size * (1 - view.zoom);
    view.x = Math.min(0, Math.max(most(box.width), view.x));
    view.y = Math.min(0, Math.max(most(box.height), view.y));
    canvas.style.transform = `translate(${view.x}px, ${view.y}px) scale(${view.zoom})`;
    const edge = (box.width * at("border").value) / 100 * view.zoom + view.x;
    at("edge").style.left = `${edge - 1}px`;
    at("edge").hidden = at("left").value === at("right").value || edge < 0 || edge > box.width;
    stage.style.touchAction = view.zoom > 1 ? "none" : "pan-y";
    at("zoom").textContent = `${Math.round(100 * view.zoom)} %`;
  }

  const name = (layer) => (layer === "" ? "photo" : layer === "truth" ? "truth" : `step ${layer}`);

  async function paint() {
    const k = view.picture, turn = ++asked, { width, height } = picture(k);
    const layers = [at("left").value, at("right").value];
    const [left, right, truth] = await Promise.all([mask(k, layers[0]), mask(k, layers[1]), mask(k, "truth")]);
    if (turn !== asked) return;  // another picture or layer was asked for meanwhile
    const wrong = at("wrong").checked ? truth : null;
    view.found = { left, right, truth, width };
    const drawn = (indices) => (indices ? overlay(indices, indices === truth ? null : wrong, width, height) : null);
    view.left = drawn(left);
    view.right = layers[0] === layers[1] ? view.left : drawn(right);
    listClasses([left, right, truth]);
    canvas.setAttribute("aria-label",
      `${data.gallery.names[k]}, left ${name(layers[0])}, right ${name(layers[1])}`);
    draw();
    stage.dataset.ready = `${k}/${layers[0]}/${layers[1]}`;
  }

  function listClasses(masks) {
    const present = new Uint8Array(paints.length);
    for (const indices of masks) if (indices) for (let k = 0; k < indices.length; k++) present[indices[k]] = 1;
    const boxes = [...paints.keys()].filter((id) => present[id]).map((id) => {
      const label = made("label", ""), box = made("input", "", { type: "checkbox", value: String(id) });
      box.checked = !hidden.has(id);
      box.addEventListener("change", () => { box.checked ? hidden.delete(id) : hidden.add(id); paint(); });
      const swatch = made("span", "", { class: paints[id].hatched ? "swatch hatched" : "swatch" });
      swatch.style.backgroundColor = paints[id].colour;
      label.append(box, swatch, paints[id].name);
      return label;
    });
    const focused = document.activeElement?.closest("#toggles") ? document.activeElement.value : null;
    at("toggles").replaceChildren(...boxes);
    if (focused !== null) at("toggles").querySelector(`input[value="${focused}"]`)?.focus();
  }

  async function open(k) {
    if (k < 0 || k >= buttons.length) return;
    const { width, height, masks } = picture(k);
    view.picture = k;
    view.photo = buttons[k].querySelector("img");
    buttons.forEach((button, j) => button.setAttribute("aria-pressed", String(j === k)));
    at("caption").textContent = `${data.gallery.names[k]}: ${data.gallery.reasons[k].join("; ")}`;
    const layers = ["", ...Object.keys(masks).sort((a, b) => (b === "truth") - (a === "truth") || a - b)];
    for (const [select, wanted] of [[at("left"), "truth"], [at("right"), String(steps.at(-1))]]) {
      const kept = layers.includes(select.value) && select.options.length ? select.value : wanted;
      select.replaceChildren(...layers.map((layer) => made("option", name(layer), { value: layer })));
      select.value = layers.includes(kept) ? kept : "";
    }
    at("viewer").hidden = false;
    canvas.width = width;
    canvas.height = height;
    stage.style.aspectRatio = `${width} / ${height}`;
    Object.assign(view, { zoom: 1, x: 0, y: 0 });
    await view.photo.decode().catch(() => {});
    if (view.picture === k) await paint();
  }

  function zoomTo(zoom, x, y) {
    const box = stage.getBoundingClientRect(), before = view.zoom;
    const [px, py] = [x ?? box.width / 2, y ?? box.height / 2];
    view.zoom = Math.min(16, Math.max(1, zoom));
    view.x = px - ((px - view.x) * view.zoom) / before;
    view.y = py - ((py - view.y) * view.zoom) / before;
    place();
  }

  const visible = () => buttons.filter((button) => !button.closest("li").hidden).map((button) => buttons.indexOf(button));

  function neighbour(direction) {
    const shown = visible(), here = shown.indexOf(view.picture);
    if (shown.length) open(shown[(here + direction + shown.length) % shown.length]);
  }

  function choose() {
    const wanted = at("reason").value;
    for (const button of buttons) {
      const item = button.closest("li");
      const reasons = data.gallery.reasons[buttons.indexOf(button)];
      item.hidden = wanted !== "" && !reasons.some((why) => why === wanted || why.startsWith(`${wanted}: `));
    }
    const shown = visible();
    at("count").textContent = `${shown.length} of ${buttons.length} images`;
    if (!shown.includes(view.picture)) open(shown[0]);
  }

  function tell(event) {
    const box = canvas.getBoundingClientRect(), { left, right, truth, width } = view.found ?? {};
    const x = Math.floor(((event.clientX - box.left) / box.width) * canvas.width);
    const y = Math.floor(((event.clientY - box.top) / box.height) * canvas.height);
    if (!width || x < 0 || y < 0 || x >= canvas.width || y >= canvas.height) return;
    const found = (indices) => paints[indices[y * width + x]].name;
    const parts = [[at("left").value, left], [at("right").value, right], ["truth", truth]];
    const said = new Map(parts.filter(([, indices]) => indices).map(([layer, indices]) => [name(layer), found(indices)]));
    at("under").textContent = [...said].map(([layer, own]) => `${layer}: ${own}`).join(" · ");
  }

  const KEYS = {
    "+": () => zoomTo(view.zoom * 1.5), "=": () => zoomTo(view.zoom * 1.5), "-": () => zoomTo(view.zoom / 1.5),
    0: () => zoomTo(1), ArrowLeft: () => { view.x += 40; place(); }, ArrowRight: () => { view.x -= 40; place(); },
    ArrowUp: () => { view.y += 40; place(); }, ArrowDown: () => { view.y -= 40; place(); },
    PageUp: () => neighbour(-1), PageDown: () => neighbour(1),
  };
  stage.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  stage.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;  // the page scrolls on
    event.preventDefault();
    const box = stage.getBoundingClientRect();
    zoomTo(view.zoom * (event.deltaY < 0 ? 1.2 : 1 / 1.2), event.clientX - box.left, event.clientY - box.top);
  }, { passive: false });
  let held = null;
  stage.addEventListener("pointerdown", (event) => {
    held = { x: event.clientX - view.x, y: event.clientY - view.y };
    stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointermove", (event) => {
    tell(event);
    if (held) { view.x = event.clientX - held.x; view.y = event.clientY - held.y; place(); }
  });
  for (const end of ["pointerup", "pointercancel"]) stage.addEventListener(end, () => { held = null; });
  for (const id of ["border", "opacity"]) at(id).addEventListener("input", draw);
  for (const id of ["left", "right", "wrong"]) at(id).addEventListener("change", paint);
  at("reason").addEventListener("change", choose);
  const presses = { previous: () => neighbour(-1), next: () => neighbour(1), closer: () => zoomTo(view.zoom * 1.5),
    farther: () => zoomTo(view.zoom / 1.5), reset: () => zoomTo(1),
    all: () => { hidden.clear(); paint(); }, none: () => { paints.forEach((_, k) => hidden.add(k)); paint(); } };
  for (const [id, press] of Object.entries(presses)) at(id).addEventListener("click", press);
  buttons.forEach((button, k) => button.addEventListener("click", () => open(k)));
  window.addEventListener("resize", () => { if (view.picture >= 0) place(); });
  // The first picture opens when the gallery comes near the window.
  const nearby = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) { nearby.disconnect(); choose(); }
  }, { rootMargin: "400px" });
  nearby.observe(at("thumbs"));
  document.documentElement.dataset.ready = "";
})();
