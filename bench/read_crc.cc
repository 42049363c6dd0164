// One pass over the files of a folder: finds them, reads them in order of their names, and makes the CRC32C of each.
// The ceiling of building an index. One JSON object on stdout.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/crypto.h"
#include "base/process.h"
#include "base/unique_fd.h"

namespace millrace {
namespace {

int Read(const std::string& folder) {
  constexpr size_t kChunk = 1 << 20;
  Buffer buffer(kChunk);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const bool hidden = entry.path().string().find("/.", folder.size()) != std::string::npos;
    if (entry.is_regular_file() && !hidden) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  uint64_t bytes = 0, sum = 0;
  for (const std::string& path : paths) {
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    uint32_t crc = 0;
    ssize_t got = file ? 1 : -1;
    while (got > 0) {
      got = read(file.get(), buffer.data(), buffer.size());
      if (got <= 0) break;
      bytes += static_cast<uint64_t>(got);
      crc = Crc32c(buffer.span().first(static_cast<size_t>(got)), crc);
    }
    if (got < 0) {
      std::perror(path.c_str());
      return 1;
    }
    sum += crc;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("{\"files\": %zu, \"bytes\": %llu, \"sum\": %llu, \"seconds\": %.4f, \"cpu_seconds\": %.4f}\n",
              paths.size(), static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(sum), seconds,
              CpuSeconds());
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  if (argc == 2) return millrace::Read(argv[1]);
  std::fprintf(stderr, "usage: read_crc FOLDER\n");
  return 2;
}
