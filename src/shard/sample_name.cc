#include "shard/sample_name.h"

#include <fmt/format.h>

namespace millrace {

namespace {

bool IsMetaName(std::string_view name) {
  const std::string_view first = name.substr(0, name.find('/'));
  return first.size() >= 4 && first.starts_with("__") && first.ends_with("__");
}

}  // namespace

std::optional<SampleName> SplitSampleName(std::string_view name) {
  while (name.starts_with("./")) name.remove_prefix(2);
  if (IsMetaName(name)) return std::nullopt;
  const size_t slash = name.rfind('/');
  const size_t base = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return std::nullopt;
  SampleName split{.key = name.substr(0, dot), .field = std::string(name.substr(dot + 1))};
  for (char& c : split.field) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return split;
}

std::string_view ClassFolder(std::string_view sample_key) {
  const size_t slash = sample_key.find('/');
  return slash == std::string_view::npos ? std::string_view() : sample_key.substr(0, slash);
}

bool IsImageField(std::string_view name) {
  const std::string_view extension = name.substr(name.rfind('.') + 1);  // all of it where there is no dot
  return extension == "jpg" || extension == "jpeg" || extension == "png";
}

std::string RecordKey(std::string_view object_key, uint64_t number) {
  return fmt::format("{}/{:08}", object_key, number);
}

}  // namespace millrace
