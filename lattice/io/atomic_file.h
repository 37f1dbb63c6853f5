// Files that are whole or not there.
#pragma once

#include <string>
#include <string_view>

namespace lattice::io {

// Writes beside the place, flushes to the disk and renames. A write that fails, or a process that
// is killed, leaves the file that stood there before; its permissions stay, and a symbolic link
// stays a link. What is no regular file, such as a pipe, is written to directly. Throws
// lattice::Error with the words of the system.
void write_file(const std::string& path, std::string_view bytes);

}  // namespace lattice::io
