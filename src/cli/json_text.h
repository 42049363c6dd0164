#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

/// JSON for others to read, in the order in which it is written. (nlohmann/json.hpp reads and changes it, too, and
/// takes three seconds to compile wherever it is included.)

namespace millrace::cli {

/// Represents a piece of JSON, as text.
class Json {
 public:
  // NOLINTBEGIN(google-explicit-constructor): each value that JSON can express may stand in a list of members.
  Json(std::nullptr_t) : text_("null") {}
  Json(bool value) : text_(value ? "true" : "false") {}
  template <std::integral T>
  Json(T value) : text_(std::to_string(value)) {}
  Json(double value);            // null unless it is finite
  Json(std::string_view value);  // what is not UTF-8 becomes U+FFFD
  Json(const std::string& value) : Json(std::string_view(value)) {}
  Json(const char* value) : Json(std::string_view(value)) {}
  template <typename T>
  Json(const std::vector<T>& values) : text_("[]") {
    for (const T& value : values) AddEntry(Json(value).text());
  }
  /// Takes values of types with a function JsonOf in their own namespace.
  template <typename T>
  requires requires(const T& value) { JsonOf(value); }
  Json(const T& value) : Json(JsonOf(value)) {}
  // NOLINTEND

  const std::string& text() const { return text_; }

 protected:
  struct Raw {};
  Json(Raw, std::string text) : text_(std::move(text)) {}
  /// Adds one more of "{...}" or "[...]".
  void AddEntry(std::string_view entry);

 private:
  std::string text_;
};

/// {"name": value, ...}
class JsonObject : public Json {
 public:
  JsonObject(std::initializer_list<std::pair<std::string_view, Json>> members = {});
  /// `name` is not there yet.
  JsonObject& Add(std::string_view name, const Json& value);
  /// Returns the object in one line, with its end.
  std::string Line() const { return text() + '\n'; }
  /// The same as Line, with {"schema": "millrace.COMMAND/1"} before the other members. All lines of --json are made by
  /// it. docs/reference/json.md lists the schemas, and says when a number grows. Words of a command are joined by dots.
  std::string Versioned(std::string_view command) const;
};

/// [value, ...]
class JsonArray : public Json {
 public:
  JsonArray(std::initializer_list<Json> values = {});
  JsonArray& Add(const Json& value);
};

/// Returns the array of `to_json` of each of the items.
template <typename Items, typename ToJson>
JsonArray JsonOfEach(const Items& items, const ToJson& to_json) {
  JsonArray json;
  for (const auto& item : items) json.Add(to_json(item));
  return json;
}

/// A member of JSON_OF whose name is not that of its expression.
using JsonMember = std::pair<std::string_view, Json>;
inline JsonMember Named(std::string_view name, const Json& value) {
  return {name, value};
}

/// Returns the last name of the first of these expressions, which have commas between them, and removes this one:
/// "bytes" of "report.bytes", "sizes->bytes()" and "bytes".
std::string_view TakeName(std::string_view* expressions);

template <typename... Values>
JsonObject ObjectOf(std::string_view expressions, const Values&... values) {
  JsonObject json;
  const auto add = [&](const auto& value) {
    const std::string_view name = TakeName(&expressions);
    if constexpr (std::same_as<std::decay_t<decltype(value)>, JsonMember>) {
      json.Add(value.first, value.second);
    } else {
      json.Add(name, value);
    }
  };
  (add(values), ...);
  return json;
}

}  // namespace millrace::cli

/// Makes the object whose members are called as these expressions, so that a figure is named once.
/// JSON_OF(report.bytes, seconds, Named("GET", requests.get)) is {"bytes": ..., "seconds": ..., "GET": ...}.
#define JSON_OF(...) ::millrace::cli::ObjectOf(#__VA_ARGS__, __VA_ARGS__)
