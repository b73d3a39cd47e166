// Episodes out of the page's text: the inverse of _poses.py.

const TURN = 724;

class Episodes {
  constructor(motion, text) {
    this.motion = motion;
    this.text = text;
    this.place = new Map(motion.rows.map((row, at) => [row, at]));
  }

  has(row) {
    return this.place.has(row);
  }

  /** The poses of an elite: {frames, links, seconds of each frame, positions, rotations (x, y, z, w)}. */
  async load(row) {
    const { motion } = this;
    const at = this.place.get(row);
    const letters = atob(this.text.slice(at ? motion.ends[at - 1] : 0, motion.ends[at]));
    const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const planes = new Uint8Array(await new Response(stream).arrayBuffer());
    const steps = motion.lengths[at];
    const frames = Math.ceil((steps - 1) / motion.stride) + 1;
    const times = Float32Array.from({ length: frames }, (_, i) => Math.min(i * motion.stride, steps - 1) * motion.seconds);
    return { frames, steps, times, links: motion.parents.length, ...decoded(planes, frames, motion.parents, motion.grains[at]) };
  }
}

function decoded(planes, frames, parents, grain) {
  const links = parents.length;
  const count = planes.length / 2;
  const series = new Float32Array(count);
  for (let i = 0, sum = 0; i < count; i++) {
    const folded = planes[i] | (planes[count + i] << 8);
    if (i % frames === 0) sum = 0;
    sum = ((sum + ((folded >> 1) ^ -(folded & 1))) << 16) >> 16;
    series[i] = sum;
  }
  const positions = new Float32Array(frames * links * 3);
  const rotations = new Float32Array(frames * links * 4);
  const [place, turn, from, way] = [new THREE.Vector3(), new THREE.Quaternion(), new THREE.Vector3(), new THREE.Quaternion()];
  for (let frame = 0; frame < frames; frame++) {
    let column = 0;
    const next = () => series[column++ * frames + frame];
    for (let link = 0; link < links; link++) {
      const parent = parents[link];
      place.set(next() * grain, next() * grain, next() * grain);
      const first = parent < 0 ? next() / TURN : null;
      const [x, y, z] = [next() / TURN, next() / TURN, next() / TURN];
      turn.set(x, y, z, first ?? Math.sqrt(Math.max(0, 1 - x * x - y * y - z * z))).normalize();
      if (parent >= 0) {
        from.fromArray(positions, (frame * links + parent) * 3);
        way.fromArray(rotations, (frame * links + parent) * 4);
        place.applyQuaternion(way).add(from);
        turn.premultiply(way);
      }
      place.toArray(positions, (frame * links + link) * 3);
      turn.toArray(rotations, (frame * links + link) * 4);
    }
  }
  return { positions, rotations };
}
