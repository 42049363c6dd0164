#include "pipeline/batch_field.h"

#include <cstring>
#include <type_traits>

namespace millrace {

static_assert(std::is_trivially_copyable_v<Frame>);

std::string EncodedImage::ToValue() const {
  std::string value(sizeof(Frame) + file.size(), '\0');
  std::memcpy(value.data(), &frame, sizeof(Frame));
  if (!file.empty()) std::memcpy(value.data() + sizeof(Frame), file.data(), file.size());
  return value;
}

EncodedImage EncodedImage::OfValue(std::string_view value) {
  EncodedImage image;
  std::memcpy(&image.frame, value.data(), sizeof(Frame));
  image.file = AsBytes(value.substr(sizeof(Frame)));
  return image;
}

}  // namespace millrace
