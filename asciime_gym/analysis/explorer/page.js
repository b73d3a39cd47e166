// Everything put together.

const data = JSON.parse(byId("data").textContent);
const { elites } = data;
const map = new ArchiveMap(data);
const canvas = byId("marks");
const slider = byId("evaluations");
const steps = Number(slider.max);
const byFitness = Array.from(elites.cell.keys()).sort((a, b) => elites.fitness[b] - elites.fitness[a]);
const darkScreen = matchMedia("(prefers-color-scheme: dark)");
let player = null;
let selected = byFitness[0];

/** Marks a cell and says what is in it; -1: none. */
function point(cell, spoken = false) {
  const tip = byId("tip");
  if (map.hover !== cell) {
    map.hover = cell;
    map.mark();
    const [head, ...lines] = cell < 0 ? [""] : told(cell);
    tip.replaceChildren(element("b", head), ...lines.map((line) => element("span", line)));
    if (spoken && cell >= 0) byId("said").textContent = [head, ...lines].join(", ");
  }
  tip.hidden = cell < 0;
  if (cell < 0) return;
  const [x, y] = map.layout.centre(cell) ?? [0, 0];
  const { clientWidth: width, clientHeight: height } = byId("map");
  if (width < 480) return void (tip.style.transform = `translate(0, ${y > height / 2 ? 0 : height - tip.offsetHeight}px)`);
  const left = x + 18 + tip.offsetWidth > width ? Math.max(0, x - 18 - tip.offsetWidth) : x + 18;
  const top = clamp(y - tip.offsetHeight / 2, 0, Math.max(0, height - tip.offsetHeight));
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}

/** Shows an elite beside the map. */
function choose(row, play) {
  selected = row;
  map.chosen = elites.cell[row];
  map.mark();
  byId("facts").replaceChildren(...facts(row).map(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", value));
    return pair;
  }));
  const moves = player?.episodes.has(row);
  for (const control of byId("controls").querySelectorAll("button, input, select")) control.disabled = !moves;
  if (!player) return;
  say(moves ? "" : "This elite is stored without its policy, so it cannot be shown moving.");
  if (moves) player.load(row, play).catch((problem) => say(`The motion cannot be read: ${problem.message}`));
  else player.clear();
}

function say(text) {
  byId("message").textContent = text;
  byId("message").hidden = !text;
  byId("scene").style.visibility = text ? "hidden" : "visible";
}

function pick(cell) {
  if (cell >= 0 && map.visible(cell)) choose(map.row[cell], true);
}

function spot(event) {
  const box = canvas.getBoundingClientRect();
  return map.layout.at(event.clientX - box.left, event.clientY - box.top, map.visible);
}

function listenToMap() {
  canvas.addEventListener("pointermove", (event) => point(spot(event)));
  canvas.addEventListener("pointerleave", () => point(-1));
  canvas.addEventListener("click", (event) => {
    const cell = spot(event);
    point(cell, true);
    pick(cell);
  });
  canvas.addEventListener("focus", () => canvas.matches(":focus-visible") && point(map.chosen, true));
  canvas.addEventListener("blur", () => point(-1));
  canvas.addEventListener("keydown", (event) => {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const here = map.hover >= 0 ? map.hover : map.chosen;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (ways[event.key]) {
      const way = map.layout instanceof Strip && ways[event.key][1] ? [0, -ways[event.key][1]] : ways[event.key];
      point(map.hover < 0 ? here : map.layout.step(here, ...way, map.visible), true);
    } else if (event.key === "Home") point(elites.cell[ranked()[0] ?? 0], true);
    else if (event.key === "Enter" || event.key === " ") pick(here);
    else if (event.key === "Escape") point(-1);
    else return;
    event.preventDefault();
  });
}

const ranked = () => byFitness.filter((row) => map.visible(elites.cell[row]));

function rankBy(step) {
  const rows = ranked();
  const at = rows.indexOf(selected);
  if (rows.length) choose(rows[step ? clamp((at < 0 ? 0 : at) + step, 0, rows.length - 1) : 0], true);
}

function fillUntil(value) {
  map.until = value >= steps ? map.last : Math.floor((map.last * value) / steps);
  slider.value = value;
  map.paint();
  const { filled, present } = map.count();
  const text = `evaluation ${whole.format(map.until)}: ${whole.format(filled)} of ${whole.format(data.cells)} cells filled`;
  byId("count").textContent = text;
  slider.setAttribute("aria-valuetext", text);
  byId("key-then").hidden = filled === present;
}

function listenToSlider() {
  const button = byId("replay");
  let running = false;
  const stop = () => {
    running = false;
    button.textContent = "▶";
    button.setAttribute("aria-label", "Replay how the archive filled");
  };
  slider.addEventListener("input", () => (stop(), fillUntil(Number(slider.value))));
  button.addEventListener("click", () => {
    if (running) return stop();
    running = true;
    button.textContent = "❚❚";
    button.setAttribute("aria-label", "Pause the replay");
    const from = Number(slider.value) >= steps ? 0 : Number(slider.value);
    const begun = performance.now();
    const tick = (now) => {
      if (!running) return;
      const value = Math.min(steps, from + Math.floor((Math.max(0, now - begun) / 8000) * steps));
      fillUntil(value);
      value >= steps ? stop() : requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  });
}

function listOperators() {
  data.operators.forEach((name, number) => {
    const count = elites.operator.filter((each) => each === number).length;
    const [label, box, swatch] = [element("label"), element("input"), element("i", "", "swatch")];
    Object.assign(box, { type: "checkbox", checked: true, disabled: !count });
    swatch.style.background = data.colours.operators[number];
    box.addEventListener("change", () => {
      map.shown[box.checked ? "add" : "delete"](number);
      map.paint();
    });
    label.append(box, swatch, element("span", name), element("small", whole.format(count)));
    byId("operators").append(label);
  });
}

const isDark = () => (document.documentElement.dataset.theme ?? (darkScreen.matches ? "dark" : "light")) === "dark";

function recolour() {
  map.palette(isDark());
  map.paint();
  player?.stage.colours();
}

function listenToTheme() {
  darkScreen.addEventListener("change", recolour);
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    recolour();
  });
  byId("colour").addEventListener("change", (event) => {
    map.colourBy = event.target.value;
    byId("scale").hidden = map.colourBy !== "fitness";
    map.paint();
  });
}

function begin() {
  map.layout.resize(byId("map").clientWidth);
  const share = ((100 * elites.cell.length) / data.cells).toFixed(1);
  byId("summary").textContent =
    `${whole.format(elites.cell.length)} of ${whole.format(data.cells)} cells filled (${share} %) · ` +
    `QD score ${whole.format(data.qd_score)} · best fitness ${amount(elites.fitness[byFitness[0]])}`;
  byId("scale-low").textContent = `≤ ${four.format(data.scale[0])}`;
  byId("scale-high").textContent = `≥ ${four.format(data.scale[1])}`;
  const uncut = elites.cell.filter((cell) => !map.layout.centre(cell)).length;
  const more = [];
  if (data.sources.length) more.push("Evaluations are those of each elite's own run.");
  if (data.layout.kind === "tiles") more.push("Each tile is a cell; where it lies has no meaning.");
  if (uncut) more.push(`${whole.format(uncut)} elites lie between the slices: the buttons ‹ and › reach them, too.`);
  byId("more").textContent = more.join(" ");
  const names = data.names.join(", ");
  canvas.setAttribute("aria-label", `Map of the archive over ${names}. Arrow keys move between elites, Enter plays one.`);
  listOperators();
  map.palette(isDark());
  fillUntil(steps);
  listenToMap();
  listenToSlider();
  listenToTheme();
  for (const [id, step] of [["best", 0], ["better", -1], ["worse", 1]]) byId(id).addEventListener("click", () => rankBy(step));
  let wide = byId("map").clientWidth;
  new ResizeObserver(() => {
    if (byId("map").clientWidth === wide) return;
    wide = byId("map").clientWidth;
    map.resize();
  }).observe(byId("map"));
  choose(selected, false);
  requestAnimationFrame(() => setTimeout(beginMotion)); // the map is there first
}

function beginMotion() {
  if (data.motion.why_not) return say(`No motion here: ${data.motion.why_not}`);
  if (typeof DecompressionStream === "undefined") return say("This browser is too old to unpack the motion (DecompressionStream).");
  try {
    const episodes = new Episodes(data.motion, byId("poses").textContent);
    const stage = new Stage(byId("scene"), data.motion);
    player = new Player(stage, episodes);
    stage.colours();
  } catch (problem) {
    return say(`The robot cannot be drawn in 3-D here (WebGL): ${problem.message}`);
  }
  selected = byFitness.find((row) => player.episodes.has(row)) ?? selected;
  choose(selected, false);
}

begin();
// For tests and the curious: where a cell is on the screen, and what the map counts.
window.explorer = {
  centre: (cell) => {
    const [box, at] = [canvas.getBoundingClientRect(), map.layout.centre(cell)];
    return at && [box.left + at[0], box.top + at[1]];
  },
  count: () => map.count(),
  playing: () => Boolean(player?.playing),
  ready: () => Boolean(player?.episode),
  links: () => player.stage.links.map(({ position, quaternion }) => [position.toArray(), quaternion.toArray()]),
};
