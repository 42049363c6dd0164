#include "pack/parquet.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <system_error>

#include "base/bytes.h"
#include "base/child_process.h"
#include "base/python_child.h"

namespace millrace {

extern const char kParquetToMds[];  // parquet_to_mds.py, by CMakeLists.txt

namespace {

// The last line of stderr says why.
constexpr int kBadFile = 3;
constexpr int kBadPython = 4;
constexpr int kFullDisk = 5;

std::string_view LastLine(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  const size_t before = text.rfind('\n');
  return before == std::string_view::npos ? text : text.substr(before + 1);
}

// Returns the number of its samples, which it begins with; nullopt when it is not as long as that.
std::optional<uint64_t> SamplesOfMds(const std::filesystem::path& shard, uint64_t bytes) {
  std::error_code error;
  if (std::filesystem::file_size(shard, error) != bytes || error) return std::nullopt;
  std::ifstream file(shard, std::ios::binary);
  std::array<char, sizeof(uint32_t)> count;
  if (!file.read(count.data(), count.size())) return std::nullopt;
  return LoadLe<uint32_t>(count.data());
}

// The program writes this mark when all shards are there. Null if there is none.
nlohmann::json ReadDoneMark(const ParquetTarget& target) {
  std::ifstream file(std::filesystem::path(target.folder) / fmt::format(".{}.done", target.name));
  return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
}

}  // namespace

ColumnClasses ClassesOfParquet(const ParquetTarget& target) {
  ColumnClasses classes;
  const nlohmann::json mark = ReadDoneMark(target);
  if (!mark.is_object() || !mark.contains("classes") || !mark["classes"].is_object()) return classes;
  for (const auto& [column, names] : mark["classes"].items()) {
    std::vector<std::string>& all = classes[column];
    for (const nlohmann::json& name : names) all.push_back(name.is_string() ? name.get<std::string>() : "");
  }
  return classes;
}

bool HasParquetShards(const ParquetTarget& target) {
  const std::filesystem::path folder = target.folder;
  const nlohmann::json mark = ReadDoneMark(target);
  if (!mark.is_object() || !mark.contains("rows") || !mark.contains("shards") || !mark["shards"].is_array() ||
      !mark["rows"].is_number_unsigned()) {
    return false;
  }
  uint64_t rows = 0;
  size_t number = 0;
  for (const nlohmann::json& bytes : mark["shards"]) {
    if (!bytes.is_number_unsigned()) return false;
    const std::optional<uint64_t> samples =
        SamplesOfMds(folder / fmt::format("{}.{:05d}.mds", target.name, number++), bytes.get<uint64_t>());
    if (!samples) return false;
    rows += *samples;
  }
  return rows == mark["rows"].get<uint64_t>();
}

absl::Status ParquetToMds(const std::string& file, const ParquetTarget& target, const std::stop_token& stop) {
  const std::string python = DefaultPython();
  ChildCommand command;
  command.words = {python, "-", file, target.folder, target.name, target.key};
  command.input = PythonProgram(kParquetToMds);
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
  if (end->exit_status == kFullDisk) return absl::ResourceExhaustedError(std::string(why));
  if (end->exit_status == kBadFile) return absl::InvalidArgumentError(std::string(why));
  return absl::InternalError(fmt::format("reading Parquet by '{}' failed: {}", python, why));
}

}  // namespace millrace
