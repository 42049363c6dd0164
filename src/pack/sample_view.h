#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "dataset/index.h"
#include "decode/reencode.h"
#include "pack/class_map.h"
#include "shard/shard_encoder.h"

/// This header has the fields of a sample that are packed, and their shapes before the bytes are read. Pure.

namespace millrace {

/// Names a field of the source, and its name in the shards.
struct FieldChoice {
  std::string name;
  std::string as;
};

/// Has the fields of a sample that are packed, and their names there. Immutable.
struct SampleView {
  std::vector<FieldChoice> fields;  // empty: all, under their names
  std::optional<ClassMap> classes;  // the numbers of the class folders; absent: their places in bytewise order
  std::vector<std::string> class_names = {};  // by label; if it has none, the class is the key's folder
  ImageChange images = {};                    // what is done to fields that are images, by their names or encodings
  bool numbers_as_class = false;  // the stored field `cls` of every sample is an integer, as this program writes it

  /// Makes the view of the samples of an index, through which it walks. InvalidArgument for a chosen field that no
  /// sample has.
  static absl::StatusOr<SampleView> Of(const Index& index, std::vector<FieldChoice> fields,
                                       std::optional<ClassMap> classes);
};

/// Returns the fields of tables, such as Parquet of Hugging Face, under the names by which loaders know them. The one
/// image is `jpg` or `png`, and the integers of the column `label` are `cls`. Empty if there is nothing to rename.
absl::StatusOr<std::vector<FieldChoice>> NamesForLoaders(const Index& index);

/// Is a sample as it will be packed: its fields in the order in which their bytes come, the inline ones first.
struct PackedSample {
  SampleShape shape;
  std::vector<IndexedField> stored;  // all but the first fields, which are inline: their values are in the shape
  uint64_t most_bytes = 0;           // of all that is stored, or of all values
  bool is_exact = true;  // the lengths in the shape are right: the stored bytes of all fields are their values,
                         // and none is an image that is changed
};

/// Returns true if a field, as it is packed, holds an image.
bool IsPackedImage(const FieldShape& field);

/// Returns InvalidArgument if the class is not in the map, if the sample does not have any of the fields, or if two
/// fields get one name.
absl::Status ShapeOf(const IndexedSample& sample, const SampleView& view, PackedSample* out);

}  // namespace millrace
