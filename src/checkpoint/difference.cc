#include "checkpoint/difference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace millrace {

namespace {

using StateJson = nlohmann::json;
using Sides = std::vector<uint64_t>;

constexpr uint64_t kHeldBytes = 64 << 20;
constexpr uint64_t kMaxStateBytes = 1 << 30;
constexpr int kMaxDepth = 1000;  // as deep as Python's parser goes, which reads and writes the state
constexpr const char* kStateName = "state.json";
constexpr const char* kDcpName = "dcp.json";

/// Is a run of bytes of a tensor that are stored together.
struct StoredChunk {
  size_t shard = 0;
  uint64_t offset = 0;
  Sides begin;
  Sides shape;
  uint64_t bytes = 0;
};

struct StoredTensor {
  std::string type;
  Sides shape;
  uint64_t item_bytes = 1;
  std::vector<StoredChunk> chunks;

  std::string Text() const { return fmt::format("{} [{}]", type, fmt::join(shape, ", ")); }
};

/// Has a state: its tensors, and the rest as text, by name.
struct StoredState {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> values;
};

/// Returns 0 if it is no type of safetensors.
uint64_t ItemBytes(const std::string& type) {
  if (type.starts_with("F8_") || type == "BOOL") return 1;
  const size_t digits = type.find_first_of("0123456789");
  if (digits == std::string::npos || digits == 0 || type.size() - digits > 2) return 0;
  return (type[digits] == '8' ? 8 : std::atoi(type.c_str() + digits)) / 8;
}

// DCP's metadata has torch's names.
std::string TypeOfTorch(const std::string& name) {
  static const std::map<std::string, std::string> kNames = {{"float64", "F64"},
                                                            {"float32", "F32"},
                                                            {"float16", "F16"},
                                                            {"bfloat16", "BF16"},
                                                            {"float8_e4m3fn", "F8_E4M3"},
                                                            {"float8_e5m2", "F8_E5M2"},
                                                            {"complex64", "C64"},
                                                            {"int64", "I64"},
                                                            {"int32", "I32"},
                                                            {"int16", "I16"},
                                                            {"int8", "I8"},
                                                            {"uint64", "U64"},
                                                            {"uint32", "U32"},
                                                            {"uint16", "U16"},
                                                            {"uint8", "U8"},
                                                            {"bool", "BOOL"}};
  const auto found = kNames.find(name);
  return found == kNames.end() ? name : found->second;
}

/// Throws if it is too large.
uint64_t Product(const Sides& sides) {
  uint64_t product = 1;
  for (const uint64_t side : sides) {
    if (__builtin_mul_overflow(product, side, &product)) throw std::invalid_argument("a shape is too large");
  }
  return product;
}

/// Throws: what walks through the JSON calls itself for each level.
bool CheckDepth(int depth, StateJson::parse_event_t /*event*/, StateJson& /*parsed*/) {
  if (depth > kMaxDepth) throw std::invalid_argument("it is nested too deeply");
  return true;
}

/// Reads the state of a checkpoint. nlohmann throws errors in the JSON, and Run catches them.
class StateReader {
 public:
  StateReader(const Checkpoints& checkpoints, const CheckpointManifest& manifest)
      : checkpoints_(checkpoints), manifest_(manifest) {
    for (size_t i = 0; i < manifest.shards.size(); ++i) shards_[manifest.shards[i].name] = i;
  }

  absl::StatusOr<StoredState> Run(const std::stop_token& stop) {
    const bool dcp = shards_.contains(kDcpName);
    const auto found = shards_.find(dcp ? kDcpName : kStateName);
    if (found == shards_.end() || manifest_.shards[found->second].bytes > kMaxStateBytes) {
      return absl::InvalidArgumentError(
          fmt::format("{}: step {} has no {}; only what millrace.Checkpoints or millrace.torch.StorageWriter has saved "
                      "can be compared",
                      checkpoints_.Uri(), manifest_.step, kStateName));
    }
    std::string text(manifest_.shards[found->second].bytes, '\0');
    RETURN_IF_ERROR(checkpoints_.ReadRangesOf(manifest_, {{found->second, 0, AsWritableBytes(text)}}, stop).status());
    try {
      const StateJson json = StateJson::parse(text, CheckDepth);
      if (dcp) {
        AddDcp(json);
      } else {
        Add("", json);
      }
    } catch (const std::exception& error) {
      return absl::DataLossError(fmt::format("{}: {} of step {} does not say what the state is: {}", checkpoints_.Uri(),
                                             found->first, manifest_.step, error.what()));
    }
    return std::move(state_);
  }

 private:
  static std::string Below(const std::string& name, const std::string& key) {
    return name.empty() ? key : name + '.' + key;
  }

  // NOLINTNEXTLINE(misc-no-recursion): as deep as the JSON, which CheckDepth has bounded
  void Add(const std::string& name, const StateJson& json) {
    if (json.is_array()) return AddEach(name, json);
    if (!json.is_object()) {
      state_.values[name] = json.dump();
      return;
    }
    if (!json.contains("$")) {
      for (const auto& [key, value] : json.items()) Add(Below(name, key), value);
      if (json.empty()) state_.values[name] = "{}";
      return;
    }
    const auto tag = json.at("$").get<std::string>();
    if (tag == "tensor" || tag == "array") {
      AddTensor(name, json.at("dtype").get<std::string>(), json);
    } else if (tag == "dict" || tag == "OrderedDict") {
      for (const StateJson& pair : json.at("of")) {
        const StateJson& key = pair.at(0);
        Add(Below(name, key.is_string() ? key.get<std::string>() : key.dump()), pair.at(1));
      }
      if (json.at("of").empty()) state_.values[name] = "{}";
    } else if (tag == "tuple") {
      AddEach(name, json.at("of"));
    } else {
      state_.values[name] = json.dump();
    }
  }

  // NOLINTNEXTLINE(misc-no-recursion)
  void AddEach(const std::string& name, const StateJson& list) {
    for (size_t i = 0; i < list.size(); ++i) Add(Below(name, std::to_string(i)), list.at(i));
    if (list.empty()) state_.values[name] = "[]";
  }

  void AddTensor(const std::string& name, const std::string& type, const StateJson& json) {
    StoredTensor tensor{
        .type = type, .shape = json.at("shape").get<Sides>(), .item_bytes = ItemBytes(type), .chunks = {}};
    if (tensor.item_bytes == 0) throw std::invalid_argument(fmt::format("{} has the type {}", name, type));
    for (const StateJson& chunk : json.at("chunks")) {
      StoredChunk stored{.shard = shards_.at(chunk.at("shard").get<std::string>()),
                         .offset = chunk.at("offset").get<uint64_t>(),
                         .begin = chunk.value("begin", Sides(tensor.shape.size(), 0)),
                         .shape = chunk.value("shape", tensor.shape)};
      if (stored.begin.size() != tensor.shape.size() || stored.shape.size() != tensor.shape.size())
        throw std::invalid_argument(fmt::format("a chunk of {} has other dimensions", name));
      Sides sides = stored.shape;
      sides.push_back(tensor.item_bytes);
      stored.bytes = Product(sides);
      const uint64_t shard_bytes = manifest_.shards[stored.shard].bytes;
      if (stored.offset > shard_bytes || stored.bytes > shard_bytes - stored.offset)
        throw std::invalid_argument(fmt::format("a chunk of {} does not lie in its shard", name));
      tensor.chunks.push_back(std::move(stored));
    }
    std::sort(tensor.chunks.begin(), tensor.chunks.end(),
              [](const StoredChunk& a, const StoredChunk& b) { return a.begin < b.begin; });
    state_.tensors[name] = std::move(tensor);
  }

  void AddDcp(const StateJson& json) {
    for (const auto& [name, tensor] : json.at("tensors").items())
      AddTensor(name, TypeOfTorch(tensor.at("dtype").get<std::string>()), tensor);
    for (const auto& [name, place] : json.at("bytes").items()) {
      AddTensor(
          name, "U8",
          StateJson::object({{"shape", StateJson::array({place.at("bytes")})}, {"chunks", StateJson::array({place})}}));
    }
  }

  const Checkpoints& checkpoints_;
  const CheckpointManifest& manifest_;
  std::map<std::string, size_t> shards_;
  StoredState state_;
};

/// Returns true if its bytes are those of its chunks, one behind the other.
bool IsSequence(const StoredTensor& tensor) {
  if (tensor.shape.empty()) return tensor.chunks.size() == 1;
  if (std::ranges::find(tensor.shape, 0) != tensor.shape.end()) return true;  // there are none
  uint64_t rows = 0;
  for (const StoredChunk& chunk : tensor.chunks) {
    if (chunk.begin[0] != rows) return false;
    rows += chunk.shape[0];
    for (size_t i = 1; i < tensor.shape.size(); ++i) {
      if (chunk.begin[i] != 0 || chunk.shape[i] != tensor.shape[i]) return false;
    }
  }
  return rows == tensor.shape[0];  // else a part of it is not there
}

bool SameChunks(const StoredTensor& a, const StoredTensor& b) {
  return std::equal(
      a.chunks.begin(), a.chunks.end(), b.chunks.begin(), b.chunks.end(),
      [](const StoredChunk& x, const StoredChunk& y) { return x.begin == y.begin && x.shape == y.shape; });
}

/// Compares the bytes of tensors, those of several with one read.
class ElementComparison {
 public:
  ElementComparison(const Checkpoints& first, const CheckpointManifest& first_manifest, const Checkpoints& second,
                    const CheckpointManifest& second_manifest, const std::stop_token& stop)
      : first_(first),
        second_(second),
        first_manifest_(first_manifest),
        second_manifest_(second_manifest),
        stop_(stop) {}

  /// Their chunks make equal sequences of bytes if the tensors are equal. `difference` counts; it stays where it is.
  absl::Status Add(const StoredTensor& a, const StoredTensor& b, uint64_t* difference) {
    size_t x = 0;
    size_t y = 0;
    uint64_t from_x = 0;
    uint64_t from_y = 0;
    while (x < a.chunks.size() && y < b.chunks.size()) {
      const StoredChunk& mine = a.chunks[x];
      const StoredChunk& other = b.chunks[y];
      const uint64_t length = std::min({mine.bytes - from_x, other.bytes - from_y, kHeldBytes / 8});
      if (length > 0 && !IsEqual(mine, from_x, other, from_y)) {
        pairs_.push_back({{mine.shard, mine.offset + from_x, {}},
                          {other.shard, other.offset + from_y, {}},
                          length,
                          a.item_bytes,
                          difference});
        held_ += length;
        if (held_ >= kHeldBytes) RETURN_IF_ERROR(Flush());
      }
      from_x += length;
      from_y += length;
      if (from_x == mine.bytes) {
        ++x;
        from_x = 0;
      }
      if (from_y == other.bytes) {
        ++y;
        from_y = 0;
      }
    }
    return absl::OkStatus();
  }

  absl::Status Flush() {
    std::vector<std::byte> a(held_);
    std::vector<std::byte> b(held_);
    std::vector<ShardRange> of_a;
    std::vector<ShardRange> of_b;
    uint64_t at = 0;
    for (Pair& pair : pairs_) {
      pair.a.into = MutableByteSpan(a).subspan(at, pair.bytes);
      pair.b.into = MutableByteSpan(b).subspan(at, pair.bytes);
      of_a.push_back(pair.a);
      of_b.push_back(pair.b);
      at += pair.bytes;
    }
    RETURN_IF_ERROR(first_.ReadRangesOf(first_manifest_, std::move(of_a), stop_).status());
    RETURN_IF_ERROR(second_.ReadRangesOf(second_manifest_, std::move(of_b), stop_).status());
    for (const Pair& pair : pairs_) {
      const std::byte* const x = pair.a.into.data();
      const std::byte* const y = pair.b.into.data();
      if (std::memcmp(x, y, pair.bytes) == 0) continue;
      for (uint64_t i = 0; i < pair.bytes; i += pair.item_bytes)
        *pair.difference += std::memcmp(x + i, y + i, pair.item_bytes) == 0 ? 0 : 1;
    }
    pairs_.clear();
    held_ = 0;
    return absl::OkStatus();
  }

 private:
  struct Pair {
    ShardRange a;
    ShardRange b;
    uint64_t bytes = 0;
    uint64_t item_bytes = 1;
    uint64_t* difference = nullptr;
  };

  // It compares the checksums alone.
  bool IsEqual(const StoredChunk& a, uint64_t from_a, const StoredChunk& b, uint64_t from_b) const {
    const CheckpointShard& mine = first_manifest_.shards[a.shard];
    const CheckpointShard& other = second_manifest_.shards[b.shard];
    return a.offset + from_a == b.offset + from_b && mine.bytes == other.bytes && mine.crc32c == other.crc32c &&
           mine.piece_crc32c == other.piece_crc32c;
  }

  const Checkpoints& first_;
  const Checkpoints& second_;
  const CheckpointManifest& first_manifest_;
  const CheckpointManifest& second_manifest_;
  const std::stop_token& stop_;
  std::vector<Pair> pairs_;
  uint64_t held_ = 0;
};

/// Calls `both` with what has the same name in both, and adds a difference for the rest.
template <typename Value, typename Text, typename Both>
void ForEachName(const std::map<std::string, Value>& a, const std::map<std::string, Value>& b, Text text, Both both,
                 std::vector<CheckpointDifference>& differences) {
  using Kind = CheckpointDifference::Kind;
  for (const auto& [name, value] : a) {
    if (const auto other = b.find(name); other != b.end()) {
      both(name, value, other->second);
    } else {
      differences.push_back({.name = name, .kind = Kind::kOnlyFirst, .first = text(value), .second = ""});
    }
  }
  for (const auto& [name, value] : b) {
    if (!a.contains(name))
      differences.push_back({.name = name, .kind = Kind::kOnlySecond, .first = "", .second = text(value)});
  }
}

}  // namespace

absl::StatusOr<std::vector<CheckpointDifference>> CompareCheckpoints(const Checkpoints& first,
                                                                     const CheckpointManifest& first_manifest,
                                                                     const Checkpoints& second,
                                                                     const CheckpointManifest& second_manifest,
                                                                     const std::stop_token& stop) {
  using Kind = CheckpointDifference::Kind;
  ASSIGN_OR_RETURN(const StoredState a, StateReader(first, first_manifest).Run(stop));
  ASSIGN_OR_RETURN(const StoredState b, StateReader(second, second_manifest).Run(stop));
  std::vector<CheckpointDifference> differences;
  std::map<std::string, uint64_t> counts;
  ElementComparison comparison(first, first_manifest, second, second_manifest, stop);
  absl::Status status;
  const auto compare = [&](const std::string& name, const StoredTensor& mine, const StoredTensor& other) {
    CheckpointDifference difference{.name = name, .first = mine.Text(), .second = other.Text()};
    if (mine.type != other.type || mine.shape != other.shape) {
      difference.kind = Kind::kType;
      differences.push_back(std::move(difference));
    } else if (SameChunks(mine, other) || (IsSequence(mine) && IsSequence(other))) {
      if (status.ok()) status = comparison.Add(mine, other, &counts[name]);
    } else {
      difference.kind = Kind::kLayout;
      differences.push_back(std::move(difference));
    }
  };
  ForEachName(
      a.tensors, b.tensors, [](const StoredTensor& tensor) { return tensor.Text(); }, compare, differences);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(comparison.Flush());
  for (const auto& [name, elements] : counts) {
    if (elements == 0) continue;
    const std::string text = a.tensors.at(name).Text();
    differences.push_back({.name = name, .kind = Kind::kElements, .first = text, .second = text, .elements = elements});
  }
  const auto compare_values = [&](const std::string& name, const std::string& mine, const std::string& other) {
    if (mine != other) differences.push_back({.name = name, .kind = Kind::kValue, .first = mine, .second = other});
  };
  ForEachName(
      a.values, b.values, [](const std::string& text) { return text; }, compare_values, differences);
  std::stable_sort(differences.begin(), differences.end(),
                   [](const CheckpointDifference& x, const CheckpointDifference& y) { return x.name < y.name; });
  return differences;
}

}  // namespace millrace
