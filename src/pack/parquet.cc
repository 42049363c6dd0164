#include "pack/parquet.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "base/child_process.h"

namespace millrace {

extern const char kParquetToMds[];  // parquet_to_mds.py, by CMakeLists.txt

namespace {

// The last line of stderr says why.
constexpr int kBadFile = 3;
constexpr int kBadPython = 4;

std::string_view LastLine(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  const size_t before = text.rfind('\n');
  return before == std::string_view::npos ? text : text.substr(before + 1);
}

}  // namespace

absl::Status ParquetToMds(const std::string& file, const ParquetTarget& target, const std::stop_token& stop) {
  const char* const named = std::getenv("MILLRACE_PYTHON");
  const std::string python = named == nullptr || *named == '\0' ? "python3" : named;
  ChildCommand command;
  command.words = {python, "-", file, target.folder, target.name, target.key};
  command.input = kParquetToMds;
  command.keep_errors = true;
  const absl::StatusOr<ChildEnd> end = RunChild(command, stop);
  if (absl::IsNotFound(end.status())) {
    return absl::FailedPreconditionError(
        fmt::format("Parquet is read by Python's pyarrow, and there is no '{}': install Python and pyarrow, or name a "
                    "Python that has it by MILLRACE_PYTHON",
                    python));
  }
  if (!end.ok()) return Annotate(end.status(), fmt::format("reading Parquet by '{}', which", python));
  if (end->exit_status == 0) return absl::OkStatus();
  const std::string_view why = LastLine(end->errors);
  if (end->exit_status == kBadPython)
    return absl::FailedPreconditionError(fmt::format("Parquet is read by '{}', and {}", python, why));
  if (end->exit_status == kBadFile) return absl::InvalidArgumentError(std::string(why));
  return absl::InternalError(fmt::format("reading Parquet by '{}' failed: {}", python, why));
}

}  // namespace millrace
