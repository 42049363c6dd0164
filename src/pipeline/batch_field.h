#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "decode/image.h"
#include "decode/label.h"
#include "pipeline/boxes.h"

namespace millrace {

/// Represents an entry of every batch, made of one field of each sample.
struct BatchField {
  enum class Kind : uint8_t {
    kImage,  // pixels, an array of the batch; or, if it is encoded, a value
    kLabel,  // an integer (an array), a number (a float32 array) or a text (a value)
    // Values: bytes of any length, one for each row (Batch::values).
    kText,   // UTF-8
    kJson,   // JSON, or what Python's json module takes for it (NaN, Infinity)
    kArray,  // an .npy file
    kBytes,  // as they are
    kBoxes,  // boxes of the image `like`: an .npy file, float32 [n, 4], in pixels of the batch
  };
  std::string name;   // of the entry
  std::string field;  // of the sample; "" of an image: its one field that is an image (IsImageField)
  Kind kind = Kind::kBytes;
  ImageSpec image;   // kImage
  std::string like;  // kImage: the entry, an image, whose part of the scene it shows; "": a part of its own. kBoxes
  LabelSpec label;   // kLabel
  BoxSpec boxes;     // kBoxes

  /// True if its rows are values and not an array.
  bool is_value() const {
    if (kind == Kind::kImage) return image.encoded;
    return kind != Kind::kLabel || label.kind == LabelSpec::Kind::kText;
  }
};

/// Represents the number that the array of an entry holds in rows without a sample, in place of the usual one.
struct FieldPadding {
  std::string name;  // of the entry
  double value = 0;

  friend bool operator==(const FieldPadding&, const FieldPadding&) = default;
};

/// An image that is encoded (ImageSpec::encoded). As a value of a batch it stays in the process.
struct EncodedImage {
  ImageSize size;
  SourceCrop crop;
  ByteSpan file;

  std::string ToValue() const;
  /// Reads a value that ToValue has made; the value must outlive the result.
  static EncodedImage OfValue(std::string_view value);

  static constexpr size_t kHeadBytes = sizeof(ImageSize) + sizeof(SourceCrop);
};

/// Returns the name that batches and messages use: "image", "label", "text" ...
std::string_view KindNameOf(const BatchField& field);

}  // namespace millrace
