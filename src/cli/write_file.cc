#include "cli/write_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace millrace::cli {

absl::Status WriteFileAtomically(const std::string& path, std::string_view contents) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  bool ok = file != nullptr;
  if (ok) ok = std::fwrite(contents.data(), 1, contents.size(), file) == contents.size();
  if (file != nullptr) ok = std::fclose(file) == 0 && ok;
  if (ok) ok = std::rename(temporary.c_str(), path.c_str()) == 0;
  if (ok) return absl::OkStatus();
  const int error = errno;
  std::remove(temporary.c_str());
  const std::string message = fmt::format("{}: cannot write: {}", path, std::generic_category().message(error));
  return error == ENOSPC ? absl::ResourceExhaustedError(message) : absl::UnknownError(message);
}

}  // namespace millrace::cli
