#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// What options take, and what is said of a command line that makes no sense.

namespace millrace::cli {

/// The option takes a whole number, `least` to `most`, in decimal.
void TakesNumber(CLI::Option* option, uint64_t least, uint64_t most = UINT64_MAX);

/// The option takes one of these words, which --help shows.
void TakesWord(CLI::Option* option, const std::vector<std::string>& words);

/// "millrace feed: there is no option --shufle; did you mean --shuffle?", for an error of app.parse().
std::string ExplainUsage(const CLI::App& app, const CLI::ParseError& error, std::string_view first_argument);

}  // namespace millrace::cli
