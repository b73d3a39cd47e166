// Three or four axes: cuts through the cells, each panel a plane of the first two axes, the others fixed.

class Slices {
  constructor(data) {
    Object.assign(this, { data }, data.layout);
    const bytes = Uint8Array.from(atob(data.layout.labels), (letter) => letter.charCodeAt(0));
    this.labels = new Uint32Array(bytes.buffer);
    this.spots = new Map(); // of each cell all places, [across, up] in pixels of the whole grid
    for (let up = 0; up < this.rows * this.pixels; up++)
      for (let across = 0; across < this.levels * this.pixels; across++) {
        const cell = this.label(across, up);
        if (!this.spots.has(cell)) this.spots.set(cell, []);
        this.spots.get(cell).push([across, up]);
      }
  }

  label(across, up) {
    const { pixels, levels, rows, labels } = this;
    if (across < 0 || up < 0 || across >= levels * pixels || up >= rows * pixels) return -1;
    const panel = Math.floor(up / pixels) * levels + Math.floor(across / pixels);
    return labels[(panel * pixels + (up % pixels)) * pixels + (across % pixels)];
  }

  resize(width) {
    const [left, right, top] = [AXIS.left, this.rows > 1 ? 44 : AXIS.right, 40];
    this.gap = 5;
    const side = Math.min((width - left - right - this.gap * (this.levels - 1)) / this.levels, 150);
    const wide = side * this.levels + this.gap * (this.levels - 1);
    const high = side * this.rows + this.gap * (this.rows - 1);
    this.side = side;
    this.area = { x: left + Math.max(0, (width - left - right - wide) / 2), y: top, width: wide, height: high };
    this.size = [width, top + high + AXIS.bottom];
  }

  /** Upper left corner of a panel; rows are counted upwards. */
  corner(column, row) {
    const step = this.side + this.gap;
    return [this.area.x + column * step, this.area.y + (this.rows - 1 - row) * step];
  }

  paint(context, look) {
    const { pixels } = this;
    const small = document.createElement("canvas");
    small.width = small.height = pixels;
    const brush = small.getContext("2d");
    const colours = new Map([...this.spots.keys()].map((cell) => [cell, channels(look(cell).colour)]));
    context.imageSmoothingEnabled = false;
    for (let row = 0; row < this.rows; row++)
      for (let column = 0; column < this.levels; column++) {
        const image = brush.createImageData(pixels, pixels);
        for (let up = 0; up < pixels; up++)
          for (let across = 0; across < pixels; across++) {
            const colour = colours.get(this.label(column * pixels + across, row * pixels + up));
            image.data.set([...colour, 255], 4 * ((pixels - 1 - up) * pixels + across));
          }
        brush.putImageData(image, 0, 0);
        context.drawImage(small, ...this.corner(column, row), this.side, this.side);
      }
    this.names(context);
  }

  names(context) {
    const { low, high, names } = this.data;
    const level = (axis, at) => four.format(low[axis] + ((high[axis] - low[axis]) * (at + 0.5)) / this.levels);
    const [x, y] = this.corner(0, 0);
    const first = { x, y, width: this.side, height: this.side };
    axis(context, first, "bottom", low[0], high[0], "", 2);
    axisName(context, this.area, "bottom", `in each panel: ${named(names[0])}`);
    context.save();
    context.translate(x - AXIS.left, 0);
    axis(context, { ...first, x: AXIS.left }, "left", low[1], high[1], "", 2);
    axisName(context, this.area, "left", `in each panel: ${named(names[1])}`);
    context.restore();
    context.fillStyle = cssColour("soft");
    context.font = tickFont;
    context.textAlign = "center";
    for (let column = 0; column < this.levels; column++)
      context.fillText(level(2, column), this.corner(column, 0)[0] + this.side / 2, this.area.y - 6);
    context.fillStyle = cssColour("ink");
    context.font = labelFont;
    const title = fitting(context, `panels across: ${named(names[2])}`, this.area.width);
    context.fillText(title, this.area.x + this.area.width / 2, this.area.y - 24, this.area.width);
    if (this.rows > 1) this.upwards(context, level);
  }

  upwards(context, level) {
    const right = this.area.x + this.area.width;
    context.font = tickFont;
    context.textAlign = "left";
    context.fillStyle = cssColour("soft");
    for (let row = 0; row < this.rows; row++) context.fillText(level(3, row), right + 5, this.corner(0, row)[1] + this.side / 2 + 4);
    context.save();
    context.fillStyle = cssColour("ink");
    context.font = labelFont;
    context.textAlign = "center";
    context.translate(right + 40, this.area.y + this.area.height / 2);
    context.rotate(-Math.PI / 2);
    const title = fitting(context, `panels up: ${named(this.data.names[3])}`, this.area.height);
    context.fillText(title, 0, 0, this.area.height);
    context.restore();
  }

  /** Upper left corner and size of a pixel of the grid. */
  pixel(across, up) {
    const { pixels, side } = this;
    const [x, y] = this.corner(Math.floor(across / pixels), Math.floor(up / pixels));
    const size = side / pixels;
    return [x + (across % pixels) * size, y + (pixels - 1 - (up % pixels)) * size, size];
  }

  outline(context, cell) {
    context.beginPath();
    for (const [across, up] of this.spots.get(cell) ?? []) {
      const [x, y, size] = this.pixel(across, up);
      const edge = (inside, a, b) => inside || (context.moveTo(...a), context.lineTo(...b));
      const same = (dx, dy) => {
        const [panelX, panelY] = [Math.floor((across + dx) / this.pixels), Math.floor((up + dy) / this.pixels)];
        const here = panelX === Math.floor(across / this.pixels) && panelY === Math.floor(up / this.pixels);
        return here && this.label(across + dx, up + dy) === cell;
      };
      edge(same(-1, 0), [x, y], [x, y + size]);
      edge(same(1, 0), [x + size, y], [x + size, y + size]);
      edge(same(0, 1), [x, y], [x + size, y]);
      edge(same(0, -1), [x, y + size], [x + size, y + size]);
    }
    context.stroke();
  }

  at(x, y) {
    const step = this.side + this.gap;
    const [column, rowDown] = [Math.floor((x - this.area.x) / step), Math.floor((y - this.area.y) / step)];
    const row = this.rows - 1 - rowDown;
    if (column < 0 || row < 0 || column >= this.levels || rowDown < 0) return -1;
    const [left, top] = this.corner(column, row);
    const across = Math.floor(((x - left) / this.side) * this.pixels);
    const up = this.pixels - 1 - Math.floor(((y - top) / this.side) * this.pixels);
    if (across >= this.pixels || up < 0) return -1;
    this.cursor = [column * this.pixels + across, row * this.pixels + up];
    return this.label(...this.cursor);
  }

  centre(cell) {
    const spots = this.spots.get(cell);
    if (!spots) return null; // no slice cuts it
    const on = this.cursor && this.label(...this.cursor) === cell;
    const [x, y, size] = this.pixel(...(on ? this.cursor : spots[Math.floor(spots.length / 2)]));
    return [x + size / 2, y + size / 2];
  }

  step(cell, dx, dy, visible) {
    const spots = this.spots.get(cell) ?? [[0, 0]];
    let [across, up] = this.cursor && this.label(...this.cursor) === cell ? this.cursor : spots[Math.floor(spots.length / 2)];
    for (let next = cell; ; ) {
      [across, up] = [across + dx, up - dy];
      next = this.label(across, up);
      if (next === -1) return cell;
      if (next !== cell && visible(next)) {
        this.cursor = [across, up];
        return next;
      }
    }
  }
}
