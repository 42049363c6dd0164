#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_budget.h"
#include "base/status.h"
#include "shard/manifest.h"

namespace millrace {

/// A row of a manifest as ManifestRows returns it. Views into its memory.
struct StoredRow {
  bool in_folder = false;  // below the folder of the manifest
  std::string_view rest;   // of the object's key: behind that folder, else all of it
  uint64_t name_at = 0;    // where in `rest` the name of the sample begins
  uint64_t line = 0;
  std::string_view label;
  std::vector<ManifestCell> cells;
};

/// Keeps the rows of a manifest, by the keys of their objects. Each row is one piece of memory, which comes out of the
/// budget: its texts, a byte or two for the length of each, and 8 bytes.
class ManifestRows {
 public:
  /// Takes the `folder` of the manifest. The budget must live as long.
  ManifestRows(std::string folder, MemoryBudget& memory) : folder_(std::move(folder)), memory_(memory) {}

  /// Adds a row: all of `row` except its path. The name of the sample begins at `name_at` of the key. ResourceExhausted
  /// if there is no memory for it.
  absl::Status Add(std::string_view object_key, uint64_t name_at, const ManifestRow& row);

  void Sort();
  size_t size() const { return rows_.size(); }
  /// Returns a row, after Sort(). Rows are in the order of the keys of objects; those of the same object are in the
  /// order of lines.
  StoredRow At(size_t i) const;
  std::string KeyAt(size_t i) const;
  uint64_t LineAt(size_t i) const;
  std::optional<size_t> Find(std::string_view object_key) const;
  bool SameObject(size_t a, size_t b) const;

 private:
  // Reads all but the label and the cells, which begin at `end`.
  static StoredRow Head(const char* row, size_t* end = nullptr);
  std::string_view FolderOf(const StoredRow& row) const { return row.in_folder ? folder_ : std::string_view(); }
  absl::Status Reserve(uint64_t bytes);
  absl::StatusOr<char*> Room(size_t bytes);

  const std::string folder_;
  MemoryBudget& memory_;
  Reservation reserved_;
  std::vector<std::unique_ptr<char[]>> pieces_;
  size_t piece_bytes_ = 0;  // of the last
  size_t used_ = 0;         // of the last
  std::deque<const char*> rows_;
  std::string scratch_;
};

}  // namespace millrace
