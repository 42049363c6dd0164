#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Turns names into samples. Members of a tar shard are split at the first dot, as WebDataset does. Raw objects are
/// split at the last, since anyone chooses their names (dataset/sample_groups.h says which of them are one sample).
/// Names are bytes; nothing is decoded.

namespace millrace {

/// Longer names are refused by everything that reads or writes shards and indexes.
inline constexpr size_t kMaxNameBytes = 4096;

/// This field holds a class: the one of a raw object's folder, `cls` members of tar shards.
inline constexpr std::string_view kClassField = "cls";

struct SampleName {
  std::string_view key;  // a part of the name that was split
  std::string field;     // lower case (ASCII)
};

/// Splits "./dir/0001.Seg.PNG" into the key "dir/0001" and the field "seg.png": every leading "./" is dropped and the
/// key ends at the first dot of the basename. Returns nullopt for names that hold no sample. These are a basename
/// without a dot or starting with one, and anything in a folder (or a file) called __like_this__ at the top.
std::optional<SampleName> SplitSampleName(std::string_view name);

/// Splits the name of a raw object, whose key ends at the *last* dot: "dir/scan.2024.1.JPG" into "dir/scan.2024.1" and
/// "jpg". Nothing for a basename without a dot or starting with one: folders called __like_this__ are classes as any
/// other.
std::optional<SampleName> SplitObjectName(std::string_view name);

/// Returns the key whose sample a raw object of that key belongs to, if there is an object of that key itself: "dir/7"
/// for "dir/7.mask", whose field is "mask.png" then. Returns "" if the last word is a number (frames, dates) or there
/// is none.
std::string_view OwnerOfKey(std::string_view key);

/// Returns the folder that is the class of a raw object: the first path component of its key; "" when it is in no
/// folder.
std::string_view ClassFolder(std::string_view sample_key);

/// Returns whether a field of that name ("jpg", "left.png") holds an image that can be decoded.
bool IsImageField(std::string_view name);

/// Returns the key of a sample whose format has no keys, made of its place: "train.rec/00000017".
std::string RecordKey(std::string_view object_key, uint64_t number);

}  // namespace millrace
