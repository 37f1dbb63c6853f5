// Writes files so that they appear whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace lattice::io {

// Writes beside the place, flushes to the disk and renames. A write that fails, or a process that
// is killed, leaves the previous file in place. The permissions of the file stay, and a symbolic
// link stays a link. Anything but a regular file, such as a pipe, is written to directly. Throws
// lattice::Error with the message of the system.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace lattice::io
