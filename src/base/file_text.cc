#include "base/file_text.h"

#include <algorithm>
#include <array>
#include <fstream>

namespace millrace {

absl::StatusOr<std::string> ReadFileText(const std::string& path, size_t max_bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(path + " cannot be opened");
  std::string text;
  std::array<char, size_t{16} << 10> piece;
  while (file && text.size() < max_bytes) {
    file.read(piece.data(), static_cast<std::streamsize>(std::min(piece.size(), max_bytes - text.size())));
    text.append(piece.data(), static_cast<size_t>(file.gcount()));
  }
  if (file.bad()) return absl::UnknownError(path + " cannot be read");
  return text;
}

}  // namespace millrace
