# Makes .venv and installs the pinned versions; sourced by scripts/run and scripts/test. Quick when nothing changed.
# Call: setup EXTRAS
setup() {
  local extras=$1 python=${PYTHON:-python3} stamp sum
  if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "asciime_gym needs Python 3.11 or newer; '$python' is $("$python" --version 2>&1). Set PYTHON=/path/to/python3.11" >&2
    return 1
  fi
  [ -x .venv/bin/python ] || { echo "Making .venv" >&2; "$python" -m venv .venv || return 1; }
  stamp=".venv/.installed-$extras"
  sum=$(cat pyproject.toml scripts/constraints.txt | cksum)
  if [ "$(cat "$stamp" 2>/dev/null)" != "$sum" ]; then
    echo "Installing asciime_gym[$extras] (about 600 MB the first time)" >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -c scripts/constraints.txt -e ".[$extras]" || return 1
    echo "$sum" >"$stamp"
  fi
}
