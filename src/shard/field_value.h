#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

/// These functions turn the stored bytes of a field into its value, which is the same whatever format it was stored in.
/// Pure.

namespace millrace {

/// Users see these types. The value is bytes in any case. Values of kInt and kFloat are decimal digits in ASCII ("-7",
/// "0.1", "nan"; as short as they can be read back). Values of kText and kJson are UTF-8, and a value of kNdarray is
/// the contents of an .npy file.
enum class FieldType : uint8_t { kBytes, kInt, kFloat, kText, kJson, kNdarray };
std::string_view FieldTypeName(FieldType type);  // "bytes", "int", "float", "text", "json", "ndarray"

/// Describes a field by its value, for writers.
struct ValueField {
  std::string_view name;
  FieldType type = FieldType::kBytes;
  ByteSpan value;
};

/// Says how stored bytes become a value. These texts are kept in index files: never change what one means.
///
/// Encodings of numbers, all little-endian, are "i1" "i2" "i4" "i8" "u1" "u2" "u4" "u8" "f2" "f4" "f8", for one number.
/// With an "s" at the end ("f4s"), it is all numbers that there are, as an array of one dimension. MDS has "ndarray",
/// "ndarray:DTYPE" and "ndarray:DTYPE:SHAPE" as in its columns. Any encoding may follow kRecordIoParts.
namespace encoding {
inline constexpr std::string_view kBytes;            // the stored bytes are the value, of type bytes,
inline constexpr std::string_view kJpeg = "jpeg";    //   which are a JPEG file,
inline constexpr std::string_view kPng = "png";      //   or a PNG file
inline constexpr std::string_view kText = "text";    // the stored bytes are the value, of type text,
inline constexpr std::string_view kJson = "json";    //   JSON,
inline constexpr std::string_view kInt = "int";      //   int
inline constexpr std::string_view kFloat = "float";  //   and float
inline constexpr std::string_view kPil = "pil";      // pixels of an image as MDS keeps them: an array
inline constexpr std::string_view kNdarray = "ndarray";
inline constexpr std::string_view kTfInt = "tf.int";      // an entry of the map of a tf.train.Example, with one integer
inline constexpr std::string_view kTfInts = "tf.ints";    // none or several
inline constexpr std::string_view kTfFloat = "tf.float";  // one float
inline constexpr std::string_view kTfFloats = "tf.floats";       // none or several
inline constexpr std::string_view kTfTexts = "tf.texts";         // none or several byte strings: a JSON array, in which
                                                                 // what is no UTF-8 is {"base64": "..."}
inline constexpr std::string_view kRecordIoParts = "recordio:";  // parts of a record, with the heads between them
}  // namespace encoding

/// Returns kJpeg or kPng if the bytes begin like such a file, else kBytes.
std::string_view ImageEncoding(ByteSpan bytes);

/// Returns whether fields of that encoding hold image files.
bool IsImageEncoding(std::string_view encoding);

/// Returns the type of fields of that encoding; kBytes for an unknown encoding.
FieldType TypeOfEncoding(std::string_view encoding);

/// Returns whether the stored bytes of fields of that encoding are their value.
bool IsStoredAsValue(std::string_view encoding);

/// Returns the approximate length of the value of so many stored bytes: the length itself if they are the value.
uint64_t ValueBytesAbout(std::string_view encoding, uint64_t stored_bytes);

/// Returns an upper bound of it: the memory to provide.
uint64_t ValueBytesAtMost(std::string_view encoding, uint64_t stored_bytes);

/// Returns the value of a field: the stored bytes themselves, or bytes in `scratch`, which is overwritten. Returns
/// DataLoss if the stored bytes are not valid in that encoding, InvalidArgument for an unknown encoding.
absl::StatusOr<ByteSpan> FieldValue(std::string_view encoding, ByteSpan stored, std::string* scratch);

/// Returns the value of a field `cls` if it is a short decimal number, white space around it allowed; else "". It is
/// for the statistics of classes.
std::string ClassNumber(std::string_view encoding, ByteSpan stored);

}  // namespace millrace
