#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

/// The values of options, the layout of --help, and the messages for a wrong command line.

namespace millrace::cli {

/// The option takes a whole number, `least` to `most`, in decimal.
void TakesNumber(CLI::Option* option, uint64_t least, uint64_t most = UINT64_MAX);

/// The option takes one of these words, which --help shows.
void TakesWord(CLI::Option* option, const std::vector<std::string>& words);

/// The size in bytes that `option` was given ("64MiB"), greater than 0; a usage error names the option.
absl::StatusOr<uint64_t> TakeSize(std::string_view option, std::string_view text);

/// For NotFound: the same error, with a hint if one of `uris` looks like a bucket without its
/// "s3://". Other errors stay as they are.
absl::Status HintAtS3(absl::Status status, const std::vector<std::string>& uris);

/// The layout of --help: as wide as the terminal, 100 columns at most. Lines of texts that begin with a space, such
/// as examples, stay as they are; the others make paragraphs, which an empty line ends.
std::shared_ptr<CLI::Formatter> HelpFormatter();

/// "millrace feed: there is no option --shufle; did you mean --shuffle?", for an error of app.parse().
std::string ExplainUsage(const CLI::App& app, const CLI::ParseError& error, std::string_view first_argument);

}  // namespace millrace::cli
