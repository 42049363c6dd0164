#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

/// Quotes JSON of other programs in messages: in ASCII, and short.

namespace millrace {

inline constexpr size_t kBriefBytes = 100;

/// Writes only the type of an array or object: it may be nested too deeply to be written without a stack overflow.
inline std::string BriefJson(const nlohmann::json& value) {
  using Json = nlohmann::json;
  if (value.is_structured()) return value.type_name();
  if (value.is_string() && value.get_ref<const std::string&>().size() > kBriefBytes)
    return BriefJson(value.get_ref<const std::string&>().substr(0, kBriefBytes));
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

/// Returns a name, in quotes.
inline std::string BriefName(std::string_view name) {
  return BriefJson(std::string(name.substr(0, kBriefBytes)));
}

}  // namespace millrace
