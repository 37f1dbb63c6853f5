#include "lattice/io/atomic_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>

#include "lattice/core/errors.h"

namespace lattice::io {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void raise(const std::string& path, const std::string& text) {
  throw Error(ErrorCode::file, path + ": " + text, "write_cloud", "path");
}

// An errno of 0 is no error.
int write_all(const fs::path& path, std::string_view bytes) {
  errno = 0;
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return errno ? errno : EIO;
  int error = 0;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() || std::fflush(file) != 0)
    error = errno ? errno : EIO;
  if (!error && fsync(fileno(file)) != 0 && errno != EINVAL) error = errno;  // a pipe has no disk
  if (std::fclose(file) != 0 && !error) error = errno ? errno : EIO;
  return error;
}

}  // namespace

void write_file(const std::string& path, std::string_view bytes) {
  std::error_code code;
  fs::path target = fs::weakly_canonical(path, code);
  if (code) target = path;
  const fs::file_status before = fs::status(target, code);
  if (fs::exists(before) && !fs::is_regular_file(before)) {
    if (fs::is_directory(before)) raise(path, "is a folder, expected a file");
    if (const int error = write_all(path, bytes)) raise(path, std::strerror(error));
    return;
  }
  // Two writers of one file must not share the temporary name.
  fs::path temporary = target;
  temporary.replace_filename(".writing-" + std::to_string(getpid()) + "-" +
                             std::to_string(std::random_device()()) + target.extension().string());
  if (const int error = write_all(temporary, bytes)) {
    fs::remove(temporary, code);
    raise(path, std::strerror(error));
  }
  if (fs::exists(before)) fs::permissions(temporary, before.permissions(), code);
  fs::rename(temporary, target, code);
  if (code) {
    const std::string text = code.message();
    fs::remove(temporary, code);
    raise(path, text);
  }
}

}  // namespace lattice::io
