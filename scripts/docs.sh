#!/usr/bin/env bash
# Builds the site into build/site. Its tools live in build/docs-venv; the package comes from .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=scripts/docs_requirements.txt
if ! cmp -s "$wanted" build/docs-venv/installed; then
  .venv/bin/python -m venv build/docs-venv
  build/docs-venv/bin/python -m pip install -q --disable-pip-version-check -r "$wanted"
  cp "$wanted" build/docs-venv/installed
fi
.venv/bin/python scripts/api_pages.py --check
packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
NO_MKDOCS_2_WARNING=1 PYTHONPATH="$packages" build/docs-venv/bin/mkdocs build --quiet --clean
.venv/bin/python scripts/check_site.py build/site
echo "site: build/site/index.html"
