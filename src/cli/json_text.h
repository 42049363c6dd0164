#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
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

}  // namespace millrace::cli
