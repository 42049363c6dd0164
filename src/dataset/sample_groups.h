#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "dataset/index.h"
#include "s3/object.h"

namespace millrace {

/// Groups the raw objects that are one sample. For example, 7.jpg, 7.txt and 7.json are one sample, since they differ
/// in their last extension only. So is 7.mask.png with them, since there is a 7.jpg and `mask` is no number. Without a
/// 7.jpg the sample of 7.mask.png is `7.mask`. 7.2024.png is always one of its own, as is 7.jpg.png.
///
/// Takes objects in ascending order of keys, and returns samples in ascending order of their first objects, as soon as
/// their siblings have passed. The result depends on the keys alone. More than 32 objects, or two of one field (7.jpg,
/// 7.JPG), stay samples of their own; siblings that lie more than 4,096 objects apart are not looked for. Pure; not
/// thread-safe.
class SampleGroups {
 public:
  /// Adds an object. Its key is below the data set, above the last one, and one that SplitObjectName splits.
  void Add(ObjectInfo object);
  /// Ends the objects; none comes after it.
  void End();

  /// Returns the next sample, joined (store/joined_objects.h) if it has several objects; nullopt as long as none is
  /// ready.
  std::optional<ObjectInfo> Next();

 private:
  using Group = std::vector<ObjectInfo>;
  // Represents a candidate for the key of a sample: a name up to one of its dots. The nodes of the last object are
  // open.
  struct Node {
    std::string key;
    Group own;
    std::vector<Group> joinable;  // of keys with a word more
    bool alone = false;           // some of its objects have been passed on
  };

  void CloseLast();
  void Settle();
  void PassOn();
  static bool Joins(const Node& node, const Group& group, const Group& more);

  std::vector<Node> open_;  // each begins with the one before
  std::vector<Group> waiting_;
  uint64_t held_ = 0;
  std::deque<ObjectInfo> ready_;
};

/// Represents a raw object, or joined ones, as a sample.
struct RawSample {
  struct Field {
    std::string name;
    uint64_t offset = 0;
    uint64_t length = 0;
    std::string_view encoding = {};  // shard/field_value.h
  };
  std::string key;
  std::vector<Field> fields;      // by offset; at least one
  std::optional<Field> class_of;  // the file that holds its class as text (7.cls), behind all fields
};

/// Splits a raw object, or joined ones, into fields. InvalidArgument for a key that SampleGroups does not make.
absl::StatusOr<RawSample> RawSampleOf(const IndexedObject& object);

/// This is the maximal size of a file of a class. Larger files called .cls are fields like others.
inline constexpr uint64_t kMaxClassFileBytes = 64;

}  // namespace millrace
