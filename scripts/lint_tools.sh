#!/usr/bin/env bash
# Installs the tools of scripts/lint_requirements.txt into build/lint and prints the folder of their
# programs. A second run finds the tools in place.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=scripts/lint_requirements.txt
if ! cmp -s "$wanted" build/lint/installed; then
  "${PYTHON:-python3}" -m venv build/lint
  build/lint/bin/python -m pip install -q --disable-pip-version-check -r "$wanted"
  cp "$wanted" build/lint/installed
fi
echo "$PWD/build/lint/bin"
