#!/usr/bin/env bash
# Installs Chromium where Debian packages may be installed: tests of the viewer's page use it.
# Elsewhere it says so, and these tests are skipped. The demo does not need it.
set -uo pipefail
for program in chromium chromium-browser google-chrome; do
  command -v "$program" >/dev/null && exit 0
done
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
if command -v apt-get >/dev/null && "${as_root[@]}" true 2>/dev/null; then
  echo "installing chromium for the tests of the viewer"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1 && exit 0
fi
echo "no Chromium here: tests of the viewer in a browser are skipped"
