// The archive's map: what is filled by when, colours, and the marks on hovered, focused and chosen cells.

class ArchiveMap {
  constructor(data) {
    this.data = data;
    this.row = new Int32Array(data.cells).fill(-1);
    data.elites.cell.forEach((cell, row) => (this.row[cell] = row));
    data.filled = (cell) => this.row[cell] >= 0;
    this.layout = { strip: Strip, slices: Slices }[data.layout.kind] ?? Polygons;
    this.layout = new this.layout(data);
    this.last = data.elites.evaluation.reduce((a, b) => Math.max(a, b), 0);
    this.until = this.last;
    this.shown = new Set(data.operators.keys());
    this.colourBy = "fitness";
    this.hover = this.chosen = -1;
    this.visible = (cell) => this.row[cell] >= 0 && this.state(this.row[cell]) === "here";
  }

  /** empty: not filled yet; then: filled, but by an elite that is no more; hidden: of an operator that is not shown. */
  state(row) {
    const { first, evaluation, operator } = this.data.elites;
    if (first[row] > this.until) return "empty";
    if (!this.shown.has(operator[row])) return "hidden";
    return evaluation[row] > this.until ? "then" : "here";
  }

  /** How many cells are filled by now, and in how many of them the present elite is. */
  count() {
    const { first, evaluation } = this.data.elites;
    const filled = first.filter((value) => value <= this.until).length;
    return { filled, present: evaluation.filter((value) => value <= this.until).length };
  }

  resize() {
    this.layout.resize(byId("map").clientWidth);
    this.paint();
  }

  palette(dark) {
    this.scale = colourScale(this.data.colours.fitness, dark ? 0.2 : 0);
    const stops = Array.from({ length: 9 }, (_, i) => this.scale(i / 8));
    byId("scale-bar").style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  }

  colour(row) {
    const [low, high] = this.data.scale;
    const { fitness, operator } = this.data.elites;
    if (this.colourBy === "operator") return this.data.colours.operators[operator[row]].toLowerCase();
    return this.scale((fitness[row] - low) / (high - low));
  }

  paint() {
    const context = sized(byId("cells"), ...this.layout.size);
    const [empty, then] = [cssColour("empty"), cssColour("then")];
    this.layout.paint(context, (cell) => {
      const row = this.row[cell];
      const state = row < 0 ? "empty" : this.state(row);
      if (state === "here") return { colour: this.colour(row), fitness: this.data.elites.fitness[row] };
      return { colour: { empty, then, hidden: mixed(empty, this.colour(Math.max(row, 0)), 0.12) }[state], fitness: null };
    });
    this.mark();
  }

  mark() {
    const context = sized(byId("marks"), ...this.layout.size);
    context.lineJoin = "round";
    const ring = (cell, colour, width) => {
      context.strokeStyle = cssColour("card");
      context.lineWidth = width + 2.5;
      this.layout.outline(context, cell);
      context.strokeStyle = colour;
      context.lineWidth = width;
      this.layout.outline(context, cell);
    };
    if (this.chosen >= 0) ring(this.chosen, cssColour("accent"), 2.5);
    if (this.hover >= 0) ring(this.hover, cssColour("ink"), 2);
  }
}
