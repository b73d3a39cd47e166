// What the page says of a cell.

/** What is known of an elite, as pairs of words. */
function facts(row) {
  const seconds = data.motion.seconds ? ` (${(elites.steps[row] * data.motion.seconds).toFixed(2)} s)` : "";
  return [
    ["Fitness", amount(elites.fitness[row])],
    ...data.names.map((name, i) => [name, four.format(elites.descriptor[row][i])]),
    ["Operator", data.operators[elites.operator[row]]],
    ["Came at evaluation", whole.format(elites.evaluation[row])],
    ["Cell first filled at", whole.format(elites.first[row])],
    ["Episode", `${whole.format(elites.steps[row])} steps${seconds}`],
    ["Cell", whole.format(elites.cell[row])],
    ...(elites.source ? [["Source", data.sources[elites.source[row]] ?? ""]] : []),
  ];
}

/** A heading and lines, for the sign beside a cell. */
function told(cell) {
  const row = map.row[cell];
  const state = row < 0 ? "empty" : map.state(row);
  if (state === "empty") {
    const centre = data.centres[cell].map((v, i) => four.format(data.low[i] + v * (data.high[i] - data.low[i])));
    return ["Empty cell", ...data.names.map((name, i) => `${name}: about ${centre[i]}`)];
  }
  if (state === "then")
    return ["Filled by now", `first at evaluation ${whole.format(elites.first[row])}`, `its present elite came at ${whole.format(elites.evaluation[row])}`];
  const [fitness, ...rest] = facts(row).slice(0, data.names.length + 3);
  const lines = rest.map(([name, value]) => `${name}: ${value}`);
  if (state === "hidden") lines.push("(operator not shown)");
  if (player && !player.episodes.has(row)) lines.push("(stored without its policy: cannot move)");
  return [`Fitness ${fitness[1]}`, ...lines];
}
