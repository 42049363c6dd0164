#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/command_line.h"

namespace millrace::cli {

/// Represents options of `millrace pack` for texts that become tokens.
struct PackTextFlags {
  std::string tokenizer;  // "": no texts are packed
  std::optional<std::string> field;
  std::optional<std::string> bos;
  std::optional<std::string> eos;
  std::optional<std::string> dtype;
};

void AddPackTextOptions(Command pack, PackTextFlags* flags);

/// Runs millrace._text_corpus of DefaultPython() (base/python_child.h) in place of this process: it
/// has the package `tokenizers`, if any. Returns only if there is no Python.
absl::Status RunPackText(const std::vector<std::string>& sources, const std::string& destination,
                         const PackTextFlags& flags, bool skip_bad, bool force, bool json);

}  // namespace millrace::cli
