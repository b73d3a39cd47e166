// Play, pause, scrub.

class Player {
  constructor(stage, episodes) {
    Object.assign(this, { stage, episodes, seconds: 0, playing: false, speed: 1, row: -1 });
    byId("play").addEventListener("click", () => this.play(!this.playing));
    byId("time").addEventListener("input", (event) => {
      this.play(false);
      this.seek((event.target.value / 1000) * this.length);
    });
    byId("speed").addEventListener("change", (event) => (this.speed = Number(event.target.value)));
    byId("reset").addEventListener("click", () => stage.orbit.reset());
    byId("scene").addEventListener("keydown", (event) => {
      if (event.key === " ") this.play(!this.playing);
      else if (event.ctrlKey || event.metaKey || event.altKey || !stage.orbit.key(event.key)) return;
      event.preventDefault();
    });
  }

  get length() {
    return this.episode ? this.episode.times[this.episode.frames - 1] : 0;
  }

  /** Shows an elite, standing where its episode begins; with `play` it moves. */
  async load(row, play) {
    this.row = row;
    const episode = await this.episodes.load(row);
    if (this.row !== row) return; // another was asked for meanwhile
    this.episode = episode;
    this.stage.show(episode);
    this.seek(0);
    this.play(play);
  }

  /** Nothing is to be shown, even if it is being unpacked now. */
  clear() {
    this.row = -1;
    this.play(false);
  }

  play(on) {
    const begun = this.playing;
    this.playing = on && Boolean(this.episode);
    byId("play").textContent = this.playing ? "❚❚" : "▶";
    byId("play").setAttribute("aria-label", this.playing ? "Pause" : "Play");
    if (this.playing && this.seconds >= this.length) this.seconds = 0;
    if (!this.playing || begun) return;
    let before = performance.now();
    const tick = (now) => {
      if (!this.playing) return;
      const next = this.seconds + (Math.max(0, now - before) / 1000) * this.speed;
      before = now;
      this.seek(next > this.length + 0.6 * this.speed ? 0 : next); // stands a moment at the end, then begins again
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  seek(seconds) {
    const back = seconds < this.seconds - 0.2;
    this.seconds = seconds;
    const shown = Math.min(seconds, this.length);
    this.stage.pose(shown, back);
    byId("time").value = this.length ? Math.round((1000 * shown) / this.length) : 0;
    byId("clock").textContent = `${shown.toFixed(2)} / ${this.length.toFixed(2)} s`;
    byId("time").setAttribute("aria-valuetext", byId("clock").textContent);
  }
}
