// Prints the samples of a tar shard as JSON lines, for comparison with other readers:
//   tar_dump SHARD [CHUNK]
// Each line holds the key, the CRC32C of the span, and each field's name, offset, length and SHA-256.

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/crypto.h"
#include "shard/tar_samples.h"

namespace millrace {
namespace {

int Dump(const std::string& path, size_t chunk) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string shard = std::move(text).str();
  const auto print = [&](const ShardSample& sample) {
    nlohmann::json fields = nlohmann::json::array();
    for (const ShardField& field : sample.fields) {
      const ByteSpan bytes = AsBytes(shard).subspan(field.offset, field.length);
      fields.push_back({{"name", field.name},
                        {"offset", field.offset},
                        {"length", field.length},
                        {"sha256", HexEncode(Sha256(bytes))}});
    }
    fmt::print("{}\n", nlohmann::json({{"key", sample.key}, {"crc32c", sample.crc32c}, {"fields", fields}}).dump());
    return absl::OkStatus();
  };
  TarSampleScanner scanner;
  absl::Status status;
  for (size_t at = 0; at < shard.size() && status.ok(); at += chunk) {
    status = scanner.Feed(AsBytes(std::string_view(shard).substr(at, chunk)), print);
  }
  if (status.ok()) status = scanner.Finish(print);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.ToString());
  return 1;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return millrace::Dump(argv[1], argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 65536);
}
