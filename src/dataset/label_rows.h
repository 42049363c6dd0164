#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_budget.h"
#include "base/status.h"
#include "shard/manifest.h"

namespace millrace {

/// Keeps the rows of a file of labels, by the keys of samples. Only 88 bits of a key's hash are kept: among 10^8 keys,
/// two have the same one once in 10^10 files. Memory, out of the budget: about 17 bytes a row, and its texts with a
/// byte or two for the length of each and up to five for the line.
class LabelRows {
 public:
  /// Makes room for at most so many rows. The budget must live as long. ResourceExhausted if there is no memory for
  /// them.
  static absl::StatusOr<LabelRows> Create(uint64_t most_rows, MemoryBudget& memory);

  /// Adds a row. ResourceExhausted if there is no memory for it; InvalidArgument if it is longer than an index can
  /// hold.
  absl::Status Add(std::string_view key, const ManifestRow& row);

  struct Twice {
    uint64_t line = 0;
    uint64_t other_line = 0;
  };
  /// Sorts the rows, after the last Add. Returns the lines of a key that comes twice; nullopt if there is none.
  std::optional<Twice> Sort();

  size_t size() const { return entries_.size(); }

  /// Views into memory of the rows.
  struct Row {
    uint64_t line = 0;
    std::string_view label;
    std::vector<ManifestCell> cells;
  };
  /// Finds the row of a key, after Sort(). `row` is reused; false if there is none of that key. The place of a row is
  /// its number in the order of hashes: for marks of the caller.
  bool Find(std::string_view key, Row* row, size_t* place) const;
  uint64_t LineAt(size_t place) const;

 private:
  // An entry has the 64 bits by which entries are sorted, and 24 further ones with the place of the row.
  struct Entry {
    uint64_t hash = 0;
    uint64_t rest = 0;  // bits of the hash << kPlaceBits | place
  };
  static constexpr int kPlaceBits = 40;
  static constexpr uint64_t kPlaceMask = (uint64_t{1} << kPlaceBits) - 1;

  explicit LabelRows(MemoryBudget& memory) : memory_(&memory) {}
  static Entry EntryOf(std::string_view key);
  absl::Status Reserve(uint64_t bytes);
  const char* RowAt(uint64_t place) const;

  MemoryBudget* memory_;
  Reservation reserved_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> first_;  // of the entries whose hashes have these upper bits
  int shift_ = 64;               // to the upper bits
  std::vector<std::unique_ptr<char[]>> pieces_;
  size_t used_ = 0;  // of the last
  std::string scratch_;
};

}  // namespace millrace
