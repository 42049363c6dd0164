#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dataset/object_selection.h"

namespace millrace {

/// Returns the part of a data set that a word names: "train", "val", "test", "eval"; "" for other words. The usual
/// spellings are recognized: "validation" and "Dev" are "val".
std::string_view SplitWord(std::string_view word);

/// Looks for signs in the names of shards that the data set is not what it should be. The signs are missing numbers,
/// different stems (train-000.tar, test-000.tar), folders called train and test, and shards both in a folder and below
/// it (old/000.tar). Memory: a number for each shard. Pure; not thread-safe.
class ShardNames {
 public:
  /// Takes the user's `selection` of shards; nullptr for all below a URI. A shard that it does not contain is not
  /// missing.
  explicit ShardNames(const ObjectSelection* selection) : selection_(selection) {}

  /// Adds the key of a shard below the data set.
  void Add(std::string_view key);

  /// Returns sentences that name the shards; empty if all is well.
  std::vector<std::string> Warnings() const;

 private:
  // Represents a series of names that differ in their number only.
  struct Series {
    std::string front;    // with the folder
    std::string between;  // "-of-00008", or ""
    std::string back;
    size_t width = 0;               // digits of a number
    std::optional<uint64_t> total;  // of "-of-00008"
    std::vector<uint64_t> numbers;

    std::string NameOf(uint64_t number) const;
  };
  // The shards of a folder whose names differ in numbers only.
  struct Stem {
    uint64_t shards = 0;
    bool numbered = false;
  };
  struct Parsed;

  static Parsed Parse(std::string_view key);
  void AddMissing(std::vector<std::string>* warnings) const;
  void AddTotals(std::vector<std::string>* warnings) const;
  void AddStems(std::vector<std::string>* warnings) const;
  void AddFolders(std::vector<std::string>* warnings) const;

  const ObjectSelection* const selection_;
  std::map<std::string, Series, std::less<>> series_;
  std::map<std::string, std::map<std::string, Stem>, std::less<>> folders_;  // their stems
  uint64_t shards_ = 0;
};

}  // namespace millrace
