// Small things that every part of the page uses.

const byId = (id) => document.getElementById(id);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const four = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const tenth = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** A fitness for people: tenths, unless it is so small that they would hide it. */
const amount = (value) => (Math.abs(value) >= 10 || value === 0 ? tenth.format(value) : four.format(value));

/** An element with text in it. Text comes from files, and only ever becomes text. */
function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

function mixed(one, other, share) {
  const [a, b] = [channels(one), channels(other)];
  return "#" + a.map((v, i) => Math.round(v + (b[i] - v) * share).toString(16).padStart(2, "0")).join("");
}

/** A function from 0..1 to a colour; the darkest colours cannot be seen on a dark screen, so they are left out there. */
function colourScale(stops, start) {
  return (share) => {
    const at = (start + (1 - start) * clamp(share, 0, 1)) * (stops.length - 1);
    const below = Math.min(Math.floor(at), stops.length - 2);
    return mixed(stops[below], stops[below + 1], at - below);
  };
}

/** Round numbers between two bounds. */
function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((s) => s * power).find((s) => s >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-6); i * step <= high + step * 1e-6; i++) found.push(Number((i * step).toPrecision(8)));
  return found;
}

/** Makes a canvas as fine as the screen, and gives what to draw with, in units of the page. */
function sized(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}
