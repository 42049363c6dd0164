#include "pack/class_map.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "shard/json_brief.h"

namespace millrace {

namespace {

using PlainJson = nlohmann::json;

// JSON parsers keep the last of two equal names, which is never what was meant.
class UniqueNames {
 public:
  bool operator()(int depth, PlainJson::parse_event_t event, PlainJson& parsed) {
    if (depth != 1 || event != PlainJson::parse_event_t::key) return true;
    const auto name = parsed.get<std::string>();
    if (!seen_.emplace(name, 0).second) twice_ = name;
    return true;
  }
  const std::string& twice() const { return twice_; }

 private:
  ClassMap seen_;
  std::string twice_;
};

absl::StatusOr<ClassMap> ParseJson(std::string_view text) {
  UniqueNames names;
  const PlainJson json = PlainJson::parse(text, std::ref(names), /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::InvalidArgumentError("begins like JSON but cannot be read as such");
  if (!names.twice().empty())
    return absl::InvalidArgumentError(fmt::format("the class {} is there twice", BriefName(names.twice())));
  ClassMap map;
  for (const auto& [name, number] : json.items()) {
    if (!number.is_number_unsigned()) {
      return absl::InvalidArgumentError(
          fmt::format("the class {} has {}, not a whole number from 0 on", BriefName(name), BriefJson(number)));
    }
    map.emplace(name, number.get<uint64_t>());
  }
  return map;
}

absl::StatusOr<ClassMap> ParseLines(std::string_view text) {
  ClassMap map;
  uint64_t next = 0;
  for (uint64_t line = 1; !text.empty(); ++line) {
    const size_t length = text.find('\n');
    std::string_view name = text.substr(0, length);
    text.remove_prefix(length == std::string_view::npos ? text.size() : length + 1);
    if (name.ends_with('\r')) name.remove_suffix(1);
    if (name.empty()) continue;
    if (!map.emplace(name, next++).second)
      return absl::InvalidArgumentError(fmt::format("line {}: the class {} is there twice", line, BriefName(name)));
  }
  return map;
}

}  // namespace

absl::StatusOr<ClassMap> ParseClassMap(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t\r\n");
  const bool json = start != std::string_view::npos && text[start] == '{';
  ASSIGN_OR_RETURN(ClassMap map, json ? ParseJson(text) : ParseLines(text));
  if (map.empty()) return absl::InvalidArgumentError("names no class");
  return map;
}

}  // namespace millrace
