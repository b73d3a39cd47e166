// Where cells are on the map. A layout knows its size, paints, outlines a cell, finds the cell at a point, and the next
// cell in a direction. look(cell) is {colour, fitness}; fitness is null where no bar is to be drawn.

const AXIS = { left: 50, bottom: 44, top: 8, right: 10 };
const labelFont = "13px system-ui, sans-serif";
const tickFont = "11.5px system-ui, sans-serif";

/** Numbers and a name along one side of an area. */
function axis(context, area, side, low, high, name, most) {
  context.fillStyle = context.strokeStyle = cssColour("soft");
  context.lineWidth = 1;
  context.font = tickFont;
  for (const value of ticks(low, high, most)) {
    const share = (value - low) / (high - low);
    context.beginPath();
    if (side === "bottom") {
      const x = area.x + share * area.width;
      context.textAlign = "center";
      context.moveTo(x, area.y + area.height);
      context.lineTo(x, area.y + area.height + 4);
      context.fillText(four.format(value), x, area.y + area.height + 17);
    } else {
      const y = area.y + (1 - share) * area.height;
      context.textAlign = "right";
      context.moveTo(area.x, y);
      context.lineTo(area.x - 4, y);
      context.fillText(four.format(value), area.x - 7, y + 4);
    }
    context.stroke();
  }
  axisName(context, area, side, name);
}

/** A name, without the unit in brackets where there is no room for it. */
function fitting(context, name, room) {
  return context.measureText(name).width <= room ? name : name.replace(/ \([^)]*\)$/, "");
}

function axisName(context, area, side, name) {
  context.save();
  context.fillStyle = cssColour("ink");
  context.font = labelFont;
  context.textAlign = "center";
  if (side === "bottom") context.fillText(fitting(context, name, area.width), area.x + area.width / 2, area.y + area.height + 36, area.width);
  else {
    context.translate(13, area.y + area.height / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(fitting(context, name, area.height), 0, 0, area.height);
  }
  context.restore();
}

const named = (name) => (name.startsWith("contact rate") ? `${name} (share of steps)` : name);

/** The visible cell that lies best in a direction from another one. */
function towards(centres, from, dx, dy, visible) {
  let [found, least] = [from, Infinity];
  centres.forEach(([x, y], cell) => {
    const along = (x - centres[from][0]) * dx + (y - centres[from][1]) * dy;
    const aside = Math.abs((x - centres[from][0]) * dy - (y - centres[from][1]) * dx);
    const cost = along + 2 * aside;
    if (cell !== from && along > 1e-9 && aside <= 1.2 * along && cost < least && visible(cell)) [found, least] = [cell, cost];
  });
  return found;
}

/** One axis: a bar per elite as wide as its cell, and below them the line of all cells. */
class Strip {
  constructor(data) {
    Object.assign(this, { data, edges: data.layout.edges, order: data.layout.order });
    this.rank = [];
    this.order.forEach((cell, rank) => (this.rank[cell] = rank));
    this.lowest = data.elites.fitness.reduce((a, b) => Math.min(a, b), 0);
    this.highest = Math.max(data.elites.fitness.reduce((a, b) => Math.max(a, b)), this.lowest + 1e-6);
  }

  resize(width) {
    this.size = [width, clamp(width * 0.72, 260, 520)];
    const [x, right] = [60, AXIS.right];
    this.line = { x, y: this.size[1] - AXIS.bottom - 26, width: width - x - right, height: 26 };
    this.bars = { x, y: AXIS.top, width: this.line.width, height: this.line.y - 10 - AXIS.top };
  }

  span(cell) {
    const [a, b] = [0, 1].map((next) => this.line.x + this.edges[this.rank[cell] + next] * this.line.width);
    return [a, b - a];
  }

  top(fitness) {
    return this.bars.y + (1 - (fitness - this.lowest) / (this.highest - this.lowest)) * this.bars.height;
  }

  paint(context, look) {
    context.strokeStyle = cssColour("line");
    for (const value of ticks(this.lowest, this.highest, 5)) {
      context.beginPath();
      context.moveTo(this.bars.x, this.top(value));
      context.lineTo(this.bars.x + this.bars.width, this.top(value));
      context.stroke();
    }
    const ground = this.top(clamp(0, this.lowest, this.highest));
    context.fillStyle = cssColour("empty");
    context.fillRect(this.line.x, this.line.y, this.line.width, this.line.height);
    const grain = 1 / Math.min(window.devicePixelRatio || 1, 3); // cells may be thinner than a pixel, yet each is seen
    const looks = this.order.filter((cell) => this.data.filled(cell)).map((cell) => [cell, look(cell)]);
    looks.sort((a, b) => (a[1].fitness ?? -Infinity) - (b[1].fitness ?? -Infinity) || 0); // the best are drawn last
    looks.forEach(([cell, { colour, fitness }]) => {
      const [left, thick] = this.span(cell);
      const x = Math.floor(left / grain) * grain;
      const width = Math.max(Math.floor((left + thick) / grain) * grain - x, grain);
      context.fillStyle = colour;
      context.fillRect(x, this.line.y, width, this.line.height);
      if (fitness === null) return;
      const y = this.top(fitness);
      context.fillRect(x, Math.min(y, ground), width, Math.max(Math.abs(ground - y), 1));
    });
    axis(context, this.bars, "left", this.lowest, this.highest, "fitness (sum of rewards)", 5);
    axis(context, this.line, "bottom", this.data.low[0], this.data.high[0], named(this.data.names[0]), this.size[0] < 420 ? 4 : 8);
  }

  outline(context, cell) {
    const [x, width] = this.span(cell);
    context.strokeRect(x - 1.5, this.bars.y, width + 3, this.line.y + this.line.height - this.bars.y);
  }

  /** The cell at a point; cells are thin, so an elite a few pixels away is meant rather than an empty cell. */
  at(x, y, visible) {
    if (x < this.line.x - 3 || x > this.line.x + this.line.width + 3 || y < 0 || y > this.line.y + this.line.height) return -1;
    let [found, least] = [-1, Infinity];
    for (const cell of this.order) {
      const [left, width] = this.span(cell);
      const away = Math.max(left - x, 0, x - left - width) + (visible(cell) ? 0 : 4);
      if (away < least) [found, least] = [cell, away];
    }
    return found;
  }

  centre(cell) {
    const [x, width] = this.span(cell);
    return [x + width / 2, this.line.y + this.line.height / 2];
  }

  step(cell, dx, dy, visible) {
    const way = dx || dy;
    for (let rank = this.rank[cell] + way; rank >= 0 && rank < this.order.length; rank += way)
      if (visible(this.order[rank])) return this.order[rank];
    return cell;
  }
}

/** Two axes: the cells' polygons; or where there are many axes, tiles in rows. */
class Polygons {
  constructor(data) {
    this.data = data;
    this.tiles = data.layout.kind === "tiles";
    const side = Math.ceil(Math.sqrt(data.cells));
    const tile = (i) => [(i % side) / side, 1 - (Math.floor(i / side) + 1) / side];
    const square = ([x, y]) => [x, y, x + 1 / side, y, x + 1 / side, y + 1 / side, x, y + 1 / side];
    const all = Array.from({ length: data.cells }, (_, i) => i);
    this.polygons = this.tiles ? all.map((i) => square(tile(i))) : data.layout.polygons;
    this.centres = this.tiles ? all.map((i) => tile(i).map((v) => v + 0.5 / side)) : data.centres;
    this.side = side;
  }

  resize(width) {
    const margin = this.tiles ? { left: 2, right: 2, top: 2, bottom: 2 } : AXIS;
    const wide = Math.min(width - margin.left - margin.right, 640);
    const x = margin.left + (width - margin.left - margin.right - wide) / 2;
    this.area = { x, y: margin.top, width: wide, height: wide };
    this.size = [width, wide + margin.top + margin.bottom];
    this.paths = this.polygons.map((corners) => {
      const path = new Path2D();
      for (let i = 0; i < corners.length; i += 2) path[i ? "lineTo" : "moveTo"](...this.point(corners[i], corners[i + 1]));
      path.closePath();
      return path;
    });
  }

  point(x, y) {
    return [this.area.x + x * this.area.width, this.area.y + (1 - y) * this.area.height];
  }

  paint(context, look) {
    context.lineWidth = 0.75;
    context.strokeStyle = cssColour("edge");
    this.paths.forEach((path, cell) => {
      context.fillStyle = look(cell).colour;
      context.fill(path);
      context.stroke(path);
    });
    if (this.tiles) return;
    const { low, high, names } = this.data;
    const side = { ...this.area };
    axis(context, this.area, "bottom", low[0], high[0], named(names[0]), 6);
    context.save();
    context.translate(side.x - AXIS.left, 0);
    axis(context, { ...side, x: AXIS.left }, "left", low[1], high[1], named(names[1]), 6);
    context.restore();
  }

  outline(context, cell) {
    context.stroke(this.paths[cell]);
  }

  at(x, y) {
    const [u, v] = [(x - this.area.x) / this.area.width, 1 - (y - this.area.y) / this.area.height];
    if (u < 0 || u > 1 || v < 0 || v > 1) return -1;
    let [found, least] = [-1, Infinity];
    this.centres.forEach(([a, b], cell) => {
      const away = this.tiles ? Math.max(Math.abs(a - u), Math.abs(b - v)) : (a - u) ** 2 + (b - v) ** 2;
      if (away < least) [found, least] = [cell, away];
    });
    return this.tiles && least > 0.5 / this.side + 1e-9 ? -1 : found;
  }

  centre(cell) {
    return this.point(...this.centres[cell]);
  }

  step(cell, dx, dy, visible) {
    return towards(this.centres, cell, dx, -dy, visible);
  }
}
