#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

/// What options take, what --help looks like, and what is said of a command line that makes no sense.

namespace millrace::cli {

/// The option takes a whole number, `least` to `most`, in decimal.
void TakesNumber(CLI::Option* option, uint64_t least, uint64_t most = UINT64_MAX);

/// The option takes one of these words, which --help shows.
void TakesWord(CLI::Option* option, const std::vector<std::string>& words);

/// The size in bytes that `option` was given ("64MiB"), more than none; a usage error names the option.
absl::StatusOr<uint64_t> TakeSize(std::string_view option, std::string_view text);

/// For what was not found: the same error, with a hint where one of `uris` looks like a bucket's whose "s3://" was
/// forgotten. Other errors stay as they are.
absl::Status HintAtS3(absl::Status status, const std::vector<std::string>& uris);

/// How --help is laid out: as wide as the terminal, 100 columns at most. Lines of texts that begin with a space, such
/// as examples, stay as they are; the others make paragraphs, which an empty line ends.
std::shared_ptr<CLI::Formatter> HelpFormatter();

/// "millrace feed: there is no option --shufle; did you mean --shuffle?", for an error of app.parse().
std::string ExplainUsage(const CLI::App& app, const CLI::ParseError& error, std::string_view first_argument);

}  // namespace millrace::cli
