#include "shard/sample_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "base/status.h"

namespace millrace {

namespace {

std::string_view WithoutDotFolders(std::string_view name) {
  while (name.starts_with("./")) name.remove_prefix(2);
  return name;
}

bool IsMetaName(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('/'));
  return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

size_t BaseOf(std::string_view name) {
  const size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? 0 : slash + 1;
}

std::optional<SampleName> Split(std::string_view name, bool at_last) {
  const size_t base = BaseOf(name);
  const size_t first = name.find('.', base);
  if (first == std::string_view::npos || first == base) return std::nullopt;
  const size_t dot = at_last ? name.rfind('.') : first;
  return SampleName{.key = name.substr(0, dot), .field = absl::AsciiStrToLower(ToAbsl(name.substr(dot + 1)))};
}

}  // namespace

std::optional<SampleName> SplitSampleName(std::string_view name) {
  name = WithoutDotFolders(name);
  return IsMetaName(name) ? std::nullopt : Split(name, /*at_last=*/false);
}

std::optional<SampleName> SplitObjectName(std::string_view name) {
  return Split(WithoutDotFolders(name), /*at_last=*/true);
}

std::string_view OwnerOfKey(std::string_view key) {
  const size_t base = BaseOf(key);
  const size_t dot = key.rfind('.');
  if (dot == std::string_view::npos || dot <= base) return {};
  const std::string_view word = key.substr(dot + 1);
  const bool number = word.find_first_not_of("0123456789") == std::string_view::npos;  // or nothing
  return number ? std::string_view() : key.substr(0, dot);
}

std::string_view ClassFolder(std::string_view sample_key) {
  const size_t slash = sample_key.find('/');
  return slash == std::string_view::npos ? std::string_view() : sample_key.substr(0, slash);
}

bool IsImageField(std::string_view name) {
  const std::string_view extension = name.substr(name.rfind('.') + 1);  // all of it where there is no dot
  // Browsers save JPEGs as .jfif, .pjpeg and .pjp, older programs as .jpe and .jif, cameras several ones as .mpo;
  // animated PNGs are .apng.
  constexpr std::array<std::string_view, 16> kImages = {"jpg",  "jpeg", "png", "webp",  "tif", "tiff", "bmp",  "gif",
                                                        "jfif", "jpe",  "jif", "pjpeg", "pjp", "dib",  "apng", "mpo"};
  return std::find(kImages.begin(), kImages.end(), extension) != kImages.end();
}

std::string RecordKey(std::string_view object_key, uint64_t number) {
  return fmt::format("{}/{:08}", object_key, number);
}

}  // namespace millrace
