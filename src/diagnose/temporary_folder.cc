#include "diagnose/temporary_folder.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/errno_status.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<TemporaryFolder>> TemporaryFolder::Make() {
  const char* const base = std::getenv("TMPDIR");
  std::string path = fmt::format("{}/millrace-bench-XXXXXX", base != nullptr && *base != '\0' ? base : "/tmp");
  if (mkdtemp(path.data()) == nullptr) return ErrnoStatus(errno, path, "making a temporary folder");
  return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(std::move(path)));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace millrace
