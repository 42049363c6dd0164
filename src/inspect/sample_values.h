#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "dataset/index.h"

/// These functions interpret the bytes of a sample: fields, images, labels. Pure.

namespace millrace {

/// Returns true if the field holds an image file, in a data set with these image fields (Index::image_fields).
bool IsImage(const IndexedField& field, const std::vector<std::string>& image_fields);

/// Returns the class of a sample according to the index, without its bytes. It is the folder of a raw object, the label
/// of a manifest, or the number in `cls` of shards. It may have any bytes; "" if there is no class.
std::string_view ClassOf(const IndexedSample& sample, const Index& index);

/// Returns the sample's class for display, as a person would call it. It is ClassOf, else the value of `cls`, of
/// `label` or of a field that ends so ("image/class/label"). Else it is the first field that is a short text or a
/// number. Any bytes; "" if there is no such field.
std::string LabelOf(const IndexedSample& sample, ByteSpan bytes, const Index& index);

/// Makes a line for each field: "name: value" if the value looks like text, else its size.
std::string DescribeFields(const IndexedSample& sample, ByteSpan bytes);

}  // namespace millrace
