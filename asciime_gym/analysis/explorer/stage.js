// The robot in 3-D: its body, the floor, light, and the camera that goes with it.

const FLOOR = 200; // metres
const SQUARE = 5; // metres after which the floor's lines begin again; FLOOR is an even number of them

class Stage {
  constructor(canvas, motion) {
    this.motion = motion;
    this.canvas = canvas;
    this.renderer = new THREE.WebGLRenderer({ canvas, antialias: true, preserveDrawingBuffer: true });
    this.renderer.shadowMap.enabled = true;
    this.renderer.shadowMap.type = THREE.PCFSoftShadowMap;
    this.scene = new THREE.Scene();
    this.camera = new THREE.PerspectiveCamera(45, 1, 0.05, 200);
    this.camera.up.set(0, 0, 1);
    this.target = new THREE.Vector3(0, 0, motion.view.height);
    this.build();
    this.light();
    this.orbit = new Orbit(canvas, motion.view, () => this.request());
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
    this.resize();
  }

  build() {
    this.links = this.motion.parents.map(() => new THREE.Group());
    this.scene.add(...this.links);
    for (const each of this.motion.shapes) {
      const [r, g, b] = each.colour;
      const material = new THREE.MeshStandardMaterial({ color: new THREE.Color().setRGB(r, g, b, THREE.SRGBColorSpace), roughness: 0.55 });
      const mesh = new THREE.Mesh(Stage.geometry(each), material);
      mesh.position.fromArray(each.place);
      mesh.quaternion.fromArray(each.turn);
      mesh.castShadow = mesh.receiveShadow = true;
      (each.link < 0 ? this.scene : this.links[each.link]).add(mesh);
    }
    this.squares = new THREE.CanvasTexture(document.createElement("canvas"));
    this.squares.wrapS = this.squares.wrapT = THREE.RepeatWrapping;
    this.squares.repeat.set(FLOOR / SQUARE, FLOOR / SQUARE);
    this.squares.colorSpace = THREE.SRGBColorSpace;
    this.squares.anisotropy = this.renderer.capabilities.getMaxAnisotropy();
    const material = new THREE.MeshStandardMaterial({ roughness: 1, depthWrite: false, map: this.squares });
    this.floor = new THREE.Mesh(new THREE.PlaneGeometry(FLOOR, FLOOR), material);
    this.floor.receiveShadow = true;
    this.floor.renderOrder = -1; // nothing is under it, so what lies on it need not fight with it
    this.path = new THREE.Line(new THREE.BufferGeometry(), new THREE.LineBasicMaterial());
    this.path.frustumCulled = false;
    this.scene.add(this.floor, this.path);
  }

  /** MuJoCo's shapes; its capsules and cylinders lie along z, and sizes are halves. */
  static geometry({ shape, size: [a, b, c] }) {
    switch (shape) {
      case "sphere": return new THREE.SphereGeometry(a, 32, 20);
      case "capsule": return new THREE.CapsuleGeometry(a, 2 * b, 10, 24).rotateX(Math.PI / 2);
      case "cylinder": return new THREE.CylinderGeometry(a, a, 2 * b, 28).rotateX(Math.PI / 2);
      case "ellipsoid": return new THREE.SphereGeometry(1, 32, 20).scale(a, b, c);
      default: return new THREE.BoxGeometry(2 * a, 2 * b, 2 * c);
    }
  }

  light() {
    this.sky = new THREE.HemisphereLight(0xffffff, 0x8a8f98, 1.5);
    this.sun = new THREE.DirectionalLight(0xffffff, 2.2);
    this.sun.castShadow = true;
    this.sun.shadow.mapSize.set(1024, 1024);
    Object.assign(this.sun.shadow.camera, { left: -3, right: 3, top: 3, bottom: -3, near: 0.5, far: 20 });
    this.sun.shadow.bias = -0.0005;
    this.sun.shadow.normalBias = 0.02;
    this.scene.add(this.sky, this.sun, this.sun.target);
  }

  colours() {
    const sky = new THREE.Color(cssColour("sky"));
    this.scene.background = sky;
    this.scene.fog = new THREE.Fog(sky, 8, 34);
    this.tile();
    this.path.material.color.set(cssColour("accent"));
    this.coloured = true;
    this.request();
  }

  /** The floor's squares: a thin line every metre, a strong one where they begin again. */
  tile() {
    const image = this.squares.image;
    image.width = image.height = 1024;
    const [context, metre] = [image.getContext("2d"), 1024 / SQUARE];
    context.fillStyle = cssColour("floor");
    context.fillRect(0, 0, 1024, 1024);
    for (let line = 0; line <= SQUARE; line++) {
      const strong = line % SQUARE === 0;
      const width = strong ? 7 : 4;
      context.fillStyle = cssColour(strong ? "grid-strong" : "grid");
      context.fillRect(line * metre - width / 2, 0, width, 1024);
      context.fillRect(0, line * metre - width / 2, 1024, width);
    }
    this.squares.needsUpdate = true;
  }

  resize() {
    const { clientWidth, clientHeight } = this.canvas.parentElement;
    if (!clientWidth || !clientHeight) return;
    this.renderer.setPixelRatio(Math.min(window.devicePixelRatio || 1, 2));
    this.renderer.setSize(clientWidth, clientHeight, false);
    this.camera.aspect = clientWidth / clientHeight;
    this.camera.updateProjectionMatrix();
    this.request();
  }

  /** Another episode: its way is drawn on the floor. */
  show(episode) {
    this.episode = episode;
    const points = Array.from({ length: episode.frames }, (_, frame) => {
      const at = frame * episode.links * 3;
      return new THREE.Vector3(episode.positions[at], episode.positions[at + 1], 0.006);
    });
    this.path.geometry.dispose();
    this.path.geometry = new THREE.BufferGeometry().setFromPoints(points);
    this.pose(0, true);
  }

  /** The robot at so many seconds of its episode, between the two poses that were kept. */
  pose(seconds, atOnce = false) {
    const { times, frames, links, positions, rotations } = this.episode;
    let before = 0;
    while (before < frames - 2 && times[before + 1] <= seconds) before++;
    const after = Math.min(before + 1, frames - 1);
    const share = after === before ? 0 : clamp((seconds - times[before]) / (times[after] - times[before]), 0, 1);
    const [place, turn] = [new THREE.Vector3(), new THREE.Quaternion()];
    this.links.forEach((link, i) => {
      const [a, b] = [before * links + i, after * links + i];
      link.position.fromArray(positions, a * 3).lerp(place.fromArray(positions, b * 3), share);
      link.quaternion.fromArray(rotations, a * 4).slerp(turn.fromArray(rotations, b * 4), share);
    });
    this.follow(atOnce);
    this.request();
  }

  follow(atOnce) {
    const { height, below } = this.motion.view;
    const { x, y, z } = this.links[0].position;
    const wanted = new THREE.Vector3(x, y, Math.max(height, z - below));
    this.target.lerp(wanted, atOnce || this.target.distanceTo(wanted) > 1.5 ? 1 : 0.35);
  }

  request() {
    this.pending ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.pending = null;
    if (!this.coloured) return;
    this.orbit.place(this.camera, this.target);
    const { x, y } = this.target;
    this.sun.position.set(x - 2.5, y - 3, 7);
    this.sun.target.position.set(x, y, 0);
    this.floor.position.set(Math.round(x / SQUARE) * SQUARE, Math.round(y / SQUARE) * SQUARE, -0.002);
    this.renderer.render(this.scene, this.camera);
  }
}
