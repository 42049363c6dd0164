#include "diagnose/temporary_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/errno_status.h"
#include "base/process.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<TemporaryFolder>> TemporaryFolder::Make() {
  const std::string base = EnvironmentValue("TMPDIR");
  std::string path = (base.empty() ? "/tmp" : base) + "/millrace-bench-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return ErrnoStatus(errno, path, "making a temporary folder");
  return std::unique_ptr<TemporaryFolder>(new TemporaryFolder(std::move(path)));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace millrace
