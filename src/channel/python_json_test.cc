#include "channel/python_json.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace millrace {
namespace {

// The writer is compared with Python itself, by way of SageMaker's toolkit, in tests/cli/test_hyperparameter_args.py.

std::string Dumped(std::string_view text) {
  const std::optional<PythonJson> value = ParsePythonJson(text);
  return value ? DumpPythonJson(*value) : "error";
}

TEST(PythonJson, IsReadAndWrittenAsPythonDoes) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {" [1, 2.0 ,NaN,\n-Infinity] ", "[1,2.0,NaN,-Infinity]"},
      {"18446744073709551616", "18446744073709551616"},
      {"-9223372036854775809", "-9223372036854775809"},
      {"-0", "0"},
      {"-0.0", "-0.0"},
      {"1e15", "1000000000000000.0"},
      {"1E+400", "Infinity"},
      {"1e-400", "0.0"},
      {R"({"b": {}, "a": [], "b": null})", R"({"a":[],"b":null})"},
      {"\"\xc3\xbc\\u00e9\\n\\\"\x7f\"", R"("\u00fc\u00e9\n\"\u007f")"},
      {"true", "true"},
  };
  for (const auto& [text, dumped] : table) EXPECT_EQ(Dumped(text), dumped) << text;
}

TEST(PythonJson, WhatIsNoneIsAnError) {
  for (const char* text : {"",      " ",   "nan",    "01",     "1.",  ".5",   "+1",      "1e",       "-",
                           "--1",   "1 2", "[1,]",   "[",      "[1",  "{",    "{\"a\"}", "{\"a\":}", "{\"a\":1,}",
                           "{a:1}", "\"",  "\"\\\"", "\"\n\"", "'a'", "True", "nulls",   "-NaN"})
    EXPECT_EQ(Dumped(text), "error") << text;
  EXPECT_EQ(Dumped(std::string(4300, '9')), std::string(4300, '9'));
  EXPECT_EQ(Dumped(std::string(4301, '9')), "error");
  EXPECT_EQ(Dumped(std::string(100'000, '[')), "error");
}

TEST(PythonJson, ItsTextIsThatOfPython) {
  EXPECT_EQ(PythonText(*ParsePythonJson(R"(["it's", NaN, 1e16, null, {"a": 18446744073709551616}])")),
            R"(["it's", nan, 1e+16, None, {'a': 18446744073709551616}])");
  EXPECT_EQ(PythonText(*ParsePythonJson(R"("it's")")), "it's");
}

TEST(PythonJson, CapitalsAreThoseOfPython) {
  EXPECT_EQ(PythonUpper("learning-rate_\xc3\xbc 1"), "LEARNING-RATE_\xc3\x9c 1");
  EXPECT_EQ(PythonUpper("stra\xc3\x9f"
                        "e"),
            "STRASSE");
  EXPECT_EQ(PythonUpper("\xd0\xb6\xe4\xb8\xad\xf0\x90\x90\xa8"), "\xd0\x96\xe4\xb8\xad\xf0\x90\x90\x80");
}

}  // namespace
}  // namespace millrace
