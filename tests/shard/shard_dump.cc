// Prints the samples of a shard, whose kind its name shows, as JSON lines, for comparison with other readers:
//   shard_dump SHARD [CHUNK]
//
// Each line holds the key, the CRC32C of the span, and each field's name, place, type and SHA-256 of its value (and, up
// to 64 bytes of ASCII, the value).

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/crypto.h"
#include "shard/field_value.h"
#include "shard/shard_scanner.h"

namespace millrace {
namespace {

using Json = nlohmann::json;

Json Describe(const ShardField& field, ByteSpan shard) {
  Json json{{"offset", field.offset}, {"length", field.length}, {"encoding", field.encoding}};
  json["name"] = field.name;
  json["type"] = std::string(FieldTypeName(TypeOfEncoding(field.encoding)));
  std::string scratch;
  const absl::StatusOr<ByteSpan> value =
      FieldValue(field.encoding, shard.subspan(field.offset, field.length), &scratch);
  if (!value.ok()) {
    json["error"] = value.status().ToString();
    return json;
  }
  json["sha256"] = HexEncode(Sha256(*value));
  const std::string_view text = AsText(*value);
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (text.size() <= 64 && ascii) json["value"] = text;
  return json;
}

int Dump(const std::string& path, size_t chunk) {
  const std::optional<DataKind> kind = ShardKind(path);
  if (!kind) return 2;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string shard = std::move(text).str();
  const auto print = [&](const ShardSample& sample) {
    Json fields = Json::array();
    for (const ShardField& field : sample.fields) fields.push_back(Describe(field, AsBytes(shard)));
    const Json line{{"key", sample.key}, {"crc32c", sample.crc32c}, {"label", sample.label}, {"fields", fields}};
    fmt::print("{}\n", line.dump(-1, ' ', false, Json::error_handler_t::replace));
    return absl::OkStatus();
  };
  const std::unique_ptr<ShardScanner> scanner = MakeShardScanner(*kind);
  absl::Status status;
  for (size_t at = 0; at < shard.size() && status.ok(); at += chunk) {
    status = scanner->Feed(AsBytes(std::string_view(shard).substr(at, chunk)), print);
  }
  if (status.ok()) status = scanner->Finish(print);
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", status.ToString());
  return 1;
}

}  // namespace
}  // namespace millrace

// NOLINTNEXTLINE(bugprone-exception-escape): of libraries, on input that no test gives it
int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return millrace::Dump(argv[1], argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 65536);
}
