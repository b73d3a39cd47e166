"""The page's text: everything in one file, and nothing in it that a browser could fetch."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any

SCRIPTS = (
    "tools.js",
    "poses.js",
    "layouts.js",
    "slices.js",
    "map.js",
    "orbit.js",
    "stage.js",
    "player.js",
    "words.js",
    "page.js",
)
THREE = "three/three.module.min.js"


def page(title: str, data: dict[str, Any], poses: Sequence[str]) -> str:
    """The page of an archive; `poses` are pieces of base64, which `data` says how to find."""
    three, script, style = _three(), _own(), source("page.css")
    parts = {
        "policy": _policy([three, script], style),
        "title": html.escape(title),
        "style": style,
        "data": embedded(data),
        "poses": "".join(poses),
        "licence": html.escape(source("three/LICENSE")),
        "three": three,
        "script": script,
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], source("page.html"))


def embedded(data: Any) -> str:
    """JSON that cannot end the element that it stands in, whatever names a file has in it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def source(name: str) -> str:
    """A file of this folder."""
    return resources.files(__name__.rpartition(".")[0]).joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _three() -> str:
    """Three.js as a plain script: pages opened from a disk may not import modules, so its exports become an object."""
    body, _, exports = source(THREE).rpartition("export{")
    names = [entry.split(" as ") for entry in exports.strip().rstrip(";").rstrip("}").split(",")]
    members = ",".join(f"{names[-1]}:{names[0]}" for names in names)
    return f'const THREE=(()=>{{"use strict";{body}return{{{members}}}}})();'


def _own() -> str:
    parts = "\n".join(source(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


def _policy(scripts: Sequence[str], style: str) -> str:
    """What the browser may run: these very scripts, and no connection to anywhere."""
    hashed = lambda text: f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    allowed = " ".join(map(hashed, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {hashed(style)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )
