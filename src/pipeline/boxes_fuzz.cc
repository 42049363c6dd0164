// Any form of boxes and any bytes as their field must not crash, and shown boxes lie within the output.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "pipeline/boxes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto require = [](bool condition) {
    if (!condition) std::abort();
  };
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view form = input.substr(0, input.find('\n'));  // the rest is the field
  const std::string_view field = input.substr(std::min(size, form.size() + 1));
  const auto spec = BoxSpec::Parse(form);
  if (!spec.ok()) return 0;
  const ImageSize image{.width = 200, .height = 100};
  const auto boxes = ParseBoxes(AsBytes(field), *spec, image);
  require(boxes.ok() || absl::IsDataLoss(boxes.status()));
  if (!boxes.ok()) return 0;
  require(BoxesToNpy(*boxes).size() <= BoxBytesAtMost(field.size()));
  for (const bool flip : {false, true}) {
    const Frame frame{.image = image, .crop = {.x = 50, .y = 10, .width = 90, .height = 30, .flip = flip}};
    for (const Box& box : *boxes) {
      const Box shown = ShownBox(box, frame, 32, 24);
      require(0 <= shown.left && shown.left <= shown.right && shown.right <= 32);
      require(0 <= shown.top && shown.top <= shown.bottom && shown.bottom <= 24);
    }
  }
  return 0;
}
