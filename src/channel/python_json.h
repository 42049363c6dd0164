#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

/// These functions handle values of JSON as Python's module json reads and writes them, and text as Python changes it.
/// Pure.

namespace millrace {

/// Objects keep the order of their members. A number may be infinite or NaN. An integer that 64 bits do not hold is a
/// binary value, whose bytes are its digits.
using PythonJson = nlohmann::ordered_json;

/// Returns what json.loads(text) returns. Nullopt if that raises a ValueError, and for more than 200 levels.
std::optional<PythonJson> ParsePythonJson(std::string_view text);

/// Returns json.dumps(value, sort_keys=True, separators=(",", ":")).
std::string DumpPythonJson(const PythonJson& value);

/// Returns str(value), where JSON's null is None.
std::string PythonText(const PythonJson& value);

/// Returns text.upper() of UTF-8 text. But for the German sharp s, a letter whose capital is several letters stays as
/// it is.
std::string PythonUpper(std::string_view text);

}  // namespace millrace
