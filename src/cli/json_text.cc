#include "cli/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"

namespace millrace::cli {

namespace {

std::string Quoted(std::string_view text) {
  constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
  std::string quoted = "\"";
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    const char first = text.front();
    if (length == 0) {
      quoted += kReplacement;
    } else if (first == '"' || first == '\\') {
      quoted.append({'\\', first});
    } else if (first == '\n') {
      quoted += "\\n";
    } else if (static_cast<unsigned char>(first) < 0x20) {
      quoted += fmt::format("\\u{:04x}", first);
    } else {
      quoted += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return quoted + '"';
}

// Writes the shortest text that reads back as the same number; with a point, so that readers take it for a float.
std::string Decimal(double value) {
  if (!std::isfinite(value)) return "null";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

Json::Json(double value) : text_(Decimal(value)) {}

Json::Json(std::string_view value) : text_(Quoted(value)) {}

void Json::AddEntry(std::string_view entry) {
  const char end = text_.back();
  text_.pop_back();
  if (text_.size() > 1) text_ += ',';
  text_.append(entry).push_back(end);
}

JsonObject::JsonObject(std::initializer_list<std::pair<std::string_view, Json>> members) : Json(Raw(), "{}") {
  for (const auto& [name, value] : members) Add(name, value);
}

JsonObject& JsonObject::Add(std::string_view name, const Json& value) {
  AddEntry(fmt::format("{}:{}", Quoted(name), value.text()));
  return *this;
}

std::string JsonObject::Versioned(std::string_view command) const {
  const std::string_view members = std::string_view(text()).substr(1);  // with the closing brace
  return fmt::format(R"({{"schema":"millrace.{}/1"{}{})", command, members.size() > 1 ? "," : "", members) + '\n';
}

JsonArray::JsonArray(std::initializer_list<Json> values) : Json(Raw(), "[]") {
  for (const Json& value : values) Add(value);
}

JsonArray& JsonArray::Add(const Json& value) {
  AddEntry(value.text());
  return *this;
}

std::string_view TakeName(std::string_view* expressions) {
  size_t length = 0;
  bool in_quotes = false;
  for (int depth = 0; length < expressions->size(); ++length) {
    const char here = (*expressions)[length];
    if (here == '\\') ++length;
    if (here == '"') in_quotes = !in_quotes;
    if (in_quotes) continue;
    if (here == '(' || here == '{') ++depth;
    if (here == ')' || here == '}') --depth;
    if (here == ',' && depth == 0) break;
  }
  std::string_view name = expressions->substr(0, length);
  expressions->remove_prefix(std::min(expressions->size(), length + 1));
  if (name.ends_with("()")) name.remove_suffix(2);
  name.remove_prefix(name.find_last_of(" .>") + 1);
  return name;
}

}  // namespace millrace::cli
