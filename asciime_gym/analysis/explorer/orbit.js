// A camera that turns round a point: drag, wheel, two fingers, keys.

class Orbit {
  constructor(canvas, view, changed) {
    this.view = view;
    this.changed = changed;
    this.pointers = new Map();
    this.reset();
    canvas.addEventListener("pointerdown", (event) => {
      this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
      try { canvas.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone already */ }
    });
    canvas.addEventListener("pointermove", (event) => this.moved(event));
    for (const end of ["pointerup", "pointercancel", "lostpointercapture"])
      canvas.addEventListener(end, (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(clamp(event.deltaY, -120, 120) * 0.0016));
    }, { passive: false });
  }

  reset() {
    this.azimuth = (this.view.azimuth * Math.PI) / 180;
    this.elevation = (-this.view.elevation * Math.PI) / 180;
    this.distance = this.view.distance * 1.25;
    this.changed();
  }

  moved(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId);
    const now = [event.clientX, event.clientY];
    if (others.length) {
      const apart = ([x, y]) => Math.hypot(x - others[0][1][0], y - others[0][1][1]) + 1;
      this.zoom(apart(before) / apart(now));
    } else this.turn((before[0] - now[0]) * 0.008, (now[1] - before[1]) * 0.006);
    this.pointers.set(event.pointerId, now);
  }

  turn(around, up) {
    this.azimuth += around;
    this.elevation = clamp(this.elevation + up, 0.02, 1.5);
    this.changed();
  }

  zoom(factor) {
    this.distance = clamp(this.distance * factor, 0.8, 60);
    this.changed();
  }

  /** Whether a key was one of the camera's. */
  key(name) {
    const turns = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.08], ArrowDown: [0, -0.08] };
    if (turns[name]) this.turn(...turns[name]);
    else if (name === "+" || name === "=") this.zoom(0.9);
    else if (name === "-" || name === "−") this.zoom(1.1);
    else return false;
    return true;
  }

  place(camera, target) {
    const flat = Math.cos(this.elevation) * this.distance;
    camera.position.set(
      target.x - Math.cos(this.azimuth) * flat,
      target.y - Math.sin(this.azimuth) * flat,
      target.z + Math.sin(this.elevation) * this.distance,
    );
    camera.lookAt(target);
  }
}
