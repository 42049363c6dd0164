#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "shard/manifest.h"

// The first byte chooses the format and what the rows name, the rest is the manifest.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  if (size == 0) return 0;
  const auto format = data[0] % 2 == 0 ? ManifestFormat::kCsv : ManifestFormat::kJson;
  const ManifestColumns columns{.rows = data[0] / 2 % 2 == 0 ? RowsName::kObjects : RowsName::kKeys};
  std::vector<std::pair<uint32_t, std::string>> cells;
  const auto manifest = ParseManifest(format, {reinterpret_cast<const char*>(data) + 1, size - 1}, columns,
                                      [&](const Manifest& known, const ManifestRow& row) {
                                        if (row.path.empty() || row.line == 0) std::abort();
                                        for (size_t i = 0; i < row.cells.size(); ++i) {
                                          const ManifestCell& cell = row.cells[i];
                                          const std::string& name = known.columns.at(cell.column).name;
                                          if (i > 0 && name <= known.columns.at(row.cells[i - 1].column).name)
                                            std::abort();
                                          cells.emplace_back(cell.column, cell.text);
                                        }
                                        return absl::OkStatus();
                                      });
  if (!manifest.ok()) return 0;
  for (const auto& [column, text] : cells) {
    if (manifest->columns.at(column).encoding.empty()) std::abort();
    ManifestValueText(manifest->columns[column], text);
  }
  return 0;
}
