#include "supervisor/failure_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/atomic_file.h"

namespace millrace {

namespace {

constexpr size_t kShownBytes = 1024;

}  // namespace

void ClearFailure(const std::string& path) {
  unlink(path.c_str());
}

std::string ReadFailure(const std::string& path) {
  std::ifstream file(path);
  std::string text(kShownBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

absl::Status WriteFailure(const std::string& path, std::string_view sentence, std::string_view output) {
  if (access(path.c_str(), F_OK) == 0) return absl::OkStatus();
  std::string text = fmt::format("{}\n", sentence.substr(0, kShownBytes - 1));
  const size_t room = kShownBytes - text.size();
  if (output.size() > room) {
    output.remove_prefix(output.size() - room);
    // The text does not begin from the middle of a line.
    if (const size_t end = output.find('\n'); end != std::string_view::npos) output.remove_prefix(end + 1);
  }
  text.append(output);
  return WriteFileAtomically(path, text);
}

}  // namespace millrace
