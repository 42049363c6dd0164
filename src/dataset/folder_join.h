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

/// Represents folders that lie beside each other, and whose files of the same name are one sample. An example is
/// URI/{image=JPEGImages/{}.jpg,mask=SegmentationClass/{}.png}. Each field has a pattern, in which {} stands for the
/// key of the sample, which may have folders. Immutable.
class FolderJoin {
 public:
  /// Parses such a URI; each alternative in the braces is NAME=PATTERN. Returns nullopt for a URI that does not end
  /// with such braces. InvalidArgument for a pattern with other braces, wildcards or more than one {}; for two patterns
  /// or names that are the same; for a single pattern.
  static absl::StatusOr<std::optional<FolderJoin>> Parse(std::string_view uri);

  /// Returns the URI of the folder that has all of them below it.
  const std::string& folder() const { return folder_; }
  /// Returns 16 hexadecimal digits, which are the same for the same fields and for no others.
  std::string Id() const;

  /// Returns the samples that have a file for each field, as joined objects (store/joined_objects.h). They are in the
  /// order of the keys of the first field's files; keys are below `place`. Files without the others are counted.
  /// Memory: about 150 bytes a file of all fields but the first.
  absl::StatusOr<std::vector<ObjectInfo>> List(const Location& place, const std::stop_token& stop,
                                               SkippedObjects* skipped) const;

  /// Splits a sample of List into its fields. InvalidArgument for another object.
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

/// Returns the encoding (shard/field_value.h) of a file as a field, by the end of its name.
std::string_view EncodingByName(std::string_view name);

/// Returns the sample of a raw object, by FolderJoin::SampleOf, or by RawSampleOf if `join` is null.
absl::StatusOr<RawSample> SampleOfObject(const FolderJoin* join, const IndexedObject& object);

}  // namespace millrace
