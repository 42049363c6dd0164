#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "dataset/folder_join.h"
#include "dataset/index_writer.h"
#include "dataset/manifest_set.h"
#include "dataset/new_sample.h"
#include "dataset/sample_groups.h"

namespace millrace {

/// Writes the samples of raw objects to an index, one after the other. Not thread-safe; after an error only destruction
/// is allowed.
class RawSampleWriter {
 public:
  /// Takes up an object. `join` is that of the data set, or null.
  absl::Status Begin(const FolderJoin* join, const IndexedObject& object);
  /// Returns true if the object has a file with its class.
  bool has_class_file() const { return raw_.class_of.has_value(); }
  /// Takes what belongs to the file with the class out of the object's next bytes, and returns the others.
  ByteSpan TakeClass(ByteSpan bytes, uint64_t offset);
  /// Adds the object. A file with the class is a field as long as it has not been read. InvalidArgument if it holds no
  /// number, or if the classes of other samples are their folders.
  absl::Status Add(bool class_read, std::optional<uint32_t> crc, IndexWriter& writer);

  /// Adds an object as its manifest describes it.
  absl::Status AddListed(const ManifestSamples& manifest, const IndexedObject& object, std::optional<uint32_t> crc,
                         IndexWriter& writer);

 private:
  absl::StatusOr<std::string_view> AddClassOfFile();

  RawSample raw_;                       // in hand, unless a manifest lists them
  std::string class_text_;              // of it
  std::string numbered_;                // a sample that has a file with its class; "" as long as there is none
  std::string by_folder_;               // one whose class is its folder; "" as long as there is none
  std::vector<NewSampleField> fields_;  // reused
  std::vector<NewSampleValue> values_;  // reused
};

}  // namespace millrace
