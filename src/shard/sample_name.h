#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// How names become samples: one rule for the members of a tar shard and for raw objects, so that raw data and the
/// shards packed from them hold the same keys and fields. Names are bytes; nothing is decoded.

namespace millrace {

/// Longer names are refused by everything that reads or writes shards and indexes.
inline constexpr size_t kMaxNameBytes = 4096;

/// The field that holds a class: the one of a raw object's folder, `cls` members of tar shards.
inline constexpr std::string_view kClassField = "cls";

struct SampleName {
  std::string_view key;  // a part of the name that was split
  std::string field;     // lower case (ASCII)
};

/// Splits "./dir/0001.Seg.PNG" into the key "dir/0001" and the field "seg.png": every leading "./" is dropped and
/// the key ends at the first dot of the basename. Nothing for names that hold no sample: a basename without a dot or
/// starting with one, and whatever lies in a folder (or is a file) called __like_this__ at the top.
std::optional<SampleName> SplitSampleName(std::string_view name);

/// The folder that is the class of a raw object: the first path component of its key; "" when it lies in no folder.
std::string_view ClassFolder(std::string_view sample_key);

/// Whether a field of that name ("jpg", "left.png") holds an image that can be decoded.
bool IsImageField(std::string_view name);

/// The key of a sample whose format has no keys, made of its place: "train.rec/00000017".
std::string RecordKey(std::string_view object_key, uint64_t number);

}  // namespace millrace
