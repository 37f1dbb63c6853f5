#!/usr/bin/env bash
# Builds and runs the C and C++ examples, separate projects, against an installed library, found by
# CMake and by pkg-config: example.sh <prefix>
#
# label_c and label_cpp then run without Python: with an empty environment, and, where the user is
# root, inside of a folder that holds nothing but the program and the libraries that it loads.
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=$(cd "$1" && pwd)
build=$PWD/build/example
rm -rf "$build"
cmake -G Ninja -S examples/cpp -B "$build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$build" -- --quiet
python examples/write_minkunet.py "$build/net"
ctest --test-dir "$build" --output-on-failure

flags=$(PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --cflags --libs lattice)
# shellcheck disable=SC2086  # the flags are words
c++ examples/cpp/info.cpp -o "$build/by_pkg_config" $flags
"$build/by_pkg_config"

echo "== points to labels in C and C++"
cmake -G Ninja -S examples/label_cpp -B "$build/label_cpp" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$build/label_cpp" -- --quiet
cp -R examples/label_c "$build/label_c"
make -s -C "$build/label_c" PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
python examples/write_program.py "$build/net"
program=$build/net/net.lattice.safetensors scan=$build/net/scan.bin
for language in c cpp; do
  env -i "$build/label_$language/label" "$program" "$scan" >"$build/labels.txt"
  cmp "$build/labels.txt" "$build/net/labels.txt"
done
echo "the labels of C and C++ are those of Python"

echo "== points to boxes in C and C++"
cmake -G Ninja -S examples/detect_cpp -B "$build/detect_cpp" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$build/detect_cpp" -- --quiet
cp -R examples/detect_c "$build/detect_c"
make -s -C "$build/detect_c" PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
python examples/write_detector.py "$build/boxes"
for language in c cpp; do
  env -i "$build/detect_$language/detect" "$build/boxes/net.lattice.safetensors" \
    "$build/boxes/scan.bin" >"$build/boxes.txt"
  cmp "$build/boxes.txt" "$build/boxes/boxes.txt"
done
[ -s "$build/boxes.txt" ]
echo "the boxes of C and C++ are those of Python"

if [ "$(id -u)" = 0 ] && [ "$(uname -s)" = Linux ]; then
  alone=$build/alone
  mkdir -p "$alone"
  cp "$build/label_c/label" "$program" "$scan" "$alone"
  ldd "$build/label_c/label" | grep -o '/[^ ]*' | sort -u | while read -r library; do
    mkdir -p "$alone$(dirname "$library")"
    cp -L "$library" "$alone$library"
  done
  # ldd prints the path through ../, as the loader takes it.
  env -i "$(PATH=$PATH:/usr/sbin command -v chroot)" "$alone" /label /net.lattice.safetensors /scan.bin >"$build/labels.txt"
  cmp "$build/labels.txt" "$build/net/labels.txt"
  echo "the same in $(du -sm "$alone" | cut -f1) MB without Python"
fi
