// Decodes images for tests in other languages. Reads one request a line on stdin: FILE HEIGHT WIDTH CHANNELS
// center|augment[-turned][-exact] KEY (FILE without spaces). Answers each with one line, `ok X Y W H LEFT TOP RIGHT
// BOTTOM PART FLIP` (the rectangle of the source and by what part the codec shrank it) followed by the u8 HWC pixels,
// or with `error CODE MESSAGE`.

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/waiting_budget.h"
#include "decode/decode_memory.h"
#include "decode/geometry.h"
#include "decode/image.h"

namespace millrace {
namespace {

absl::Status Answer(std::istream& request, ImageDecoder& decoder) {
  std::string path;
  std::string mode;
  ImageSpec spec;
  uint64_t key = 0;
  if (!(request >> path >> spec.height >> spec.width >> spec.channels >> mode >> key)) {
    return absl::InvalidArgumentError("the request is not FILE HEIGHT WIDTH CHANNELS center|augment[-exact] KEY");
  }
  spec.augment = mode.starts_with("augment");
  spec.exif_orientation = mode.find("-turned") != std::string::npos;
  spec.exact = mode.ends_with("-exact");
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(fmt::format("cannot open {}", path));
  const std::string encoded{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  RETURN_IF_ERROR(spec.Check());
  std::vector<std::byte> out(spec.bytes());
  RETURN_IF_ERROR(decoder.Decode(AsBytes(encoded), spec, key, out));
  ASSIGN_OR_RETURN(const ImageSize size, ReadImageSize(AsBytes(encoded)));
  const SourceCrop crop = spec.augment ? RandomCrop(size, spec, key) : CenterCrop(size, spec);
  const int part = encoded.starts_with("\xff\xd8") && !spec.exact ? ChooseDenominator(crop, spec) : 1;
  fmt::print("ok {:.17g} {:.17g} {:.17g} {:.17g} {} {} {} {} {} {}\n", crop.x, crop.y, crop.width, crop.height,
             crop.left, crop.top, crop.right, crop.bottom, part, crop.flip ? 1 : 0);
  std::fwrite(out.data(), 1, out.size(), stdout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace millrace

int main() {
  millrace::WaitingBudget own(millrace::DecodeMemory::kLeastRefusedBytes);
  millrace::DecodeMemory memory(own, 0);
  millrace::ImageDecoder decoder(&memory);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream request(line);
    const absl::Status status = millrace::Answer(request, decoder);
    if (!status.ok())
      fmt::print("error {} {}\n", absl::StatusCodeToString(status.code()), millrace::ToStd(status.message()));
    std::fflush(stdout);
  }
  return 0;
}
