#include "pipeline/batch_field.h"

#include <cstring>
#include <type_traits>

namespace millrace {

static_assert(std::is_trivially_copyable_v<ImageSize> && std::is_trivially_copyable_v<SourceCrop>);

std::string EncodedImage::ToValue() const {
  std::string value(kHeadBytes + file.size(), '\0');
  std::memcpy(value.data(), &size, sizeof(size));
  std::memcpy(value.data() + sizeof(size), &crop, sizeof(crop));
  if (!file.empty()) std::memcpy(value.data() + kHeadBytes, file.data(), file.size());
  return value;
}

EncodedImage EncodedImage::OfValue(std::string_view value) {
  EncodedImage image;
  std::memcpy(&image.size, value.data(), sizeof(image.size));
  std::memcpy(&image.crop, value.data() + sizeof(image.size), sizeof(image.crop));
  image.file = AsBytes(value.substr(kHeadBytes));
  return image;
}

}  // namespace millrace
