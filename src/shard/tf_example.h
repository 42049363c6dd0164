#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

/// Reads the protocol buffer tf.train.Example: a map from names to lists of bytes, floats or integers. Pure.

namespace millrace {

/// Holds the value of a feature; only the list of its kind is filled. It has views of the parsed bytes.
struct TfValues {
  enum class Kind : uint8_t { kNone, kBytes, kFloats, kInts };
  Kind kind = Kind::kNone;
  uint64_t count = 0;
  std::vector<std::string_view> bytes;
  std::vector<float> floats;
  std::vector<int64_t> ints;
};

/// Describes a feature and its place.
struct TfFeature {
  std::string_view name;
  TfValues::Kind kind = TfValues::Kind::kNone;
  uint64_t count = 0;     // of values
  ByteSpan entry;         // the entry of the map: name and value
  std::string_view only;  // the value where kind is kBytes and count is 1
};

enum class TfParsed : uint8_t {
  kExample,
  kOther,    // not an Example, or one with parts that are not known here: nothing of it may be dropped
  kTooMany,  // features: more than kMaxSampleFields
};

/// Finds the features of a serialized Example in their stored order: the last of several with one name, and only those
/// that have a value. Numbers may be packed or not.
TfParsed ParseTfExample(ByteSpan record, std::vector<TfFeature>* features);

/// Parses one entry of the map, with its values. False if it is not valid.
bool ParseTfEntry(ByteSpan entry, TfFeature* feature, TfValues* values);

}  // namespace millrace
