#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "dataset/index.h"
#include "dataset/sample_groups.h"
#include "dataset/skipped_objects.h"
#include "s3/object.h"
#include "store/stores.h"

namespace millrace {

/// Folders that lie beside each other, and whose files of one name are one sample: URI/{image=JPEGImages/{}.jpg,
/// mask=SegmentationClass/{}.png}. Each field has a pattern, in which {} stands for the key of the sample, which may
/// have folders. Immutable.
class FolderJoin {
 public:
  /// None for a URI that does not end with such braces: each alternative is NAME=PATTERN. InvalidArgument for a pattern
  /// with other braces, wildcards or more than one {}; two patterns or names that are the same; a single pattern.
  static absl::StatusOr<std::optional<FolderJoin>> Parse(std::string_view uri);

  /// URI of the folder that has all of them below it.
  const std::string& folder() const { return folder_; }
  /// The same for the same fields, and for no others: 16 hexadecimal digits.
  std::string Id() const;

  /// The samples that have a file for each field, as joined objects (store/joined_objects.h), in the order of keys of
  /// the first field's; keys below `place`. Files without the others are counted. Memory: about 150 bytes a file of all
  /// fields but the first.
  absl::StatusOr<std::vector<ObjectInfo>> List(const Location& place, const std::stop_token& stop,
                                               SkippedObjects* skipped) const;

  /// A sample of List, by its fields. InvalidArgument for another object.
  absl::StatusOr<RawSample> SampleOf(const IndexedObject& object) const;

 private:
  struct Pattern {
    std::string field;
    std::string before;  // of the key
    std::string after;

    std::optional<std::string_view> KeyOf(std::string_view name) const;
  };

  absl::StatusOr<std::vector<ObjectInfo>> ListOne(const Pattern& pattern, const Location& place,
                                                  const std::stop_token& stop) const;

  std::string folder_;
  std::vector<Pattern> patterns_;
};

/// The encoding (shard/field_value.h) of a file as a field, by the end of its name.
std::string_view EncodingByName(std::string_view name);

/// The sample of a raw object: FolderJoin::SampleOf, or RawSampleOf if `join` is null.
absl::StatusOr<RawSample> SampleOfObject(const FolderJoin* join, const IndexedObject& object);

}  // namespace millrace
