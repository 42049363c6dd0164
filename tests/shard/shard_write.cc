// Writes a shard, for comparison with other readers:
//   shard_write KIND SHARD [INDEX] <SAMPLES
// KIND is tfrecord, recordio or mds. SAMPLES are JSON lines {"key": ..., "fields": [[name, type, value in hex], ...]};
// INDEX becomes the .idx or index.json of the shard.

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/hex.h"
#include "shard/mds_writer.h"
#include "shard/recordio_writer.h"
#include "shard/tfrecord_writer.h"

namespace millrace {
namespace {

struct Sample {
  std::string key;
  std::vector<std::string> texts;  // names and values
  std::vector<ValueField> fields;  // views of them
};

FieldType TypeNamed(const std::string& name) {
  for (const FieldType type :
       {FieldType::kInt, FieldType::kFloat, FieldType::kText, FieldType::kJson, FieldType::kNdarray}) {
    if (FieldTypeName(type) == name) return type;
  }
  return FieldType::kBytes;
}

Sample Parse(const std::string& line) {
  const auto json = nlohmann::json::parse(line);
  Sample sample{.key = json["key"], .texts = {}, .fields = {}};
  sample.texts.reserve(2 * json["fields"].size());
  for (const auto& field : json["fields"]) {
    const std::string& name = sample.texts.emplace_back(field[0].get<std::string>());
    const std::string& value = sample.texts.emplace_back(HexDecode(field[2].get<std::string>()).value());
    sample.fields.push_back({.name = name, .type = TypeNamed(field[1]), .value = AsBytes(value)});
  }
  return sample;
}

absl::Status WriteRecords(bool tfrecord, std::string* shard, std::string* index) {
  uint64_t number = 0;
  for (std::string line; std::getline(std::cin, line); ++number) {
    const Sample sample = Parse(line);
    std::string record;
    if (!tfrecord) AppendRecordIoIndexLine(*index, number, shard->size());
    RETURN_IF_ERROR(tfrecord ? AppendTfExample(record, sample.key, sample.fields)
                             : AppendMxnetSample(record, sample.key, number, sample.fields));
    RETURN_IF_ERROR(tfrecord ? AppendTfRecord(*shard, AsBytes(record)) : AppendRecordIo(*shard, AsBytes(record)));
  }
  return absl::OkStatus();
}

absl::Status WriteMds(const std::string& name, std::string* shard, std::string* index) {
  std::vector<Sample> samples;
  for (std::string line; std::getline(std::cin, line);) samples.push_back(Parse(line));
  ASSIGN_OR_RETURN(const std::vector<MdsColumn> columns, MdsColumnsFor(samples.front().fields));
  MdsShardWriter writer(columns);
  for (const Sample& sample : samples) RETURN_IF_ERROR(writer.Add(sample.key, sample.fields));
  *shard = writer.Head() + writer.data();
  if (shard->size() != writer.bytes()) return absl::InternalError("bytes() is not what they are");
  const MdsShardEntry entry{.name = name, .bytes = shard->size(), .samples = writer.samples()};
  *index = MdsIndexJson(columns, {&entry, 1});
  return absl::OkStatus();
}

int Write(const std::string& kind, const std::string& path, const std::string& index_path) {
  std::string shard;
  std::string index;
  const absl::Status status = kind == "mds" ? WriteMds(path.substr(path.rfind('/') + 1), &shard, &index)
                                            : WriteRecords(kind == "tfrecord", &shard, &index);
  if (!status.ok()) {
    fmt::print(stderr, "{}\n", status.ToString());
    return 1;
  }
  std::ofstream(path, std::ios::binary) << shard;
  if (!index_path.empty()) std::ofstream(index_path, std::ios::binary) << index;
  return 0;
}

}  // namespace
}  // namespace millrace

// NOLINTNEXTLINE(bugprone-exception-escape): of libraries, on input that no test gives it
int main(int argc, char** argv) {
  return argc < 3 ? 2 : millrace::Write(argv[1], argv[2], argc > 3 ? argv[3] : "");
}
