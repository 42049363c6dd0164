#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dataset/index_walk.h"
#include "inspect/size_counts.h"
#include "shard/field_value.h"

/// A survey describes a data set as a whole, from its index, without reading the data.

namespace millrace {

/// A sample is huge if it is larger than this, and larger than this many times the median.
inline constexpr uint64_t kHugeBytes = uint64_t{64} << 20;
inline constexpr uint64_t kHugeMedians = 100;

/// If at least this share of the samples have a field, the others lack it.
inline constexpr double kUsualShare = 0.95;

struct FieldCounts {
  uint64_t samples = 0;
  uint64_t bytes = 0;
  std::set<FieldType> types;  // a list of numbers is an int if it holds one, else an ndarray
  Finding empty;              // samples that have other bytes, but none in this field
};

/// Counts samples without a field that nearly all others have. Image files that differ in their ending only (jpg, jpeg,
/// png) stand in for one another.
struct LackingField {
  std::vector<std::string> names;  // in bytewise order; one, but for images
  Finding samples;
};

struct Survey {
  SizeCounts sizes;
  std::map<std::string_view, FieldCounts> fields;  // names live as long as the index
  Finding empty;                                   // samples without a byte in any stored field
  uint64_t huge_above = 0;                         // bytes
  Finding huge;
  std::vector<LackingField> lacking;
  std::vector<std::string> incomplete;  // keys of shards that were damaged (IndexedObject::incomplete)
  bool keys_ascend = true;              // each key is larger than the one before: no two are equal
};

/// Goes through the index once, and once more if samples are huge or lack a field. The memory is that of a few samples
/// for each name of a field, and the keys of incomplete shards. The index must outlive the result. Errors are those of
/// WalkIndex.
absl::StatusOr<Survey> MakeSurvey(const Index& index, const LongTask& task);

/// Returns true if samples of one class lie together so much that reading in index order would show a model one class
/// at a time.
bool IsClassSorted(const Index& index);

}  // namespace millrace
