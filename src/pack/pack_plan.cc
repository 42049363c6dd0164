#include "pack/pack_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/rng.h"
#include "shard/field_value.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {

constexpr uint64_t kShuffleDomain = 0x7061636b;  // "pack"

bool HasImage(const IndexedSample& sample) {
  return std::any_of(sample.fields.begin(), sample.fields.end(),
                     [](const IndexedField& field) { return IsImageField(field.name); });
}

absl::StatusOr<std::string> InlineText(const IndexedSample& sample, const IndexedField& field,
                                       const ClassMap* classes) {
  if (classes == nullptr) return std::string(field.inline_text);
  const std::string_view folder = ClassFolder(sample.key);
  const auto found = classes->find(folder);
  if (found != classes->end()) return fmt::format("{}", found->second);
  return absl::InvalidArgumentError(
      fmt::format("sample '{}': the class map has no class '{}'; add it, or leave its folder out", sample.key, folder));
}

// Whether the stored bytes are the value, so that they can be packed as they are.
bool IsStoredAsValue(std::string_view name) {
  constexpr std::string_view kAsTheyAre[] = {encoding::kBytes, encoding::kJpeg, encoding::kPng,  encoding::kText,
                                             encoding::kJson,  encoding::kInt,  encoding::kFloat};
  return std::find(std::begin(kAsTheyAre), std::end(kAsTheyAre), name) != std::end(kAsTheyAre);
}

class Planner {
 public:
  Planner(const ShardEncoder& encoder, uint64_t shard_bytes) : encoder_(encoder), limit_(shard_bytes) {}

  absl::Status Add(uint64_t position, const SampleShape& shape) {
    if (position > 0 && shape.key == last_key_ && encoder_.KeysTellSamplesApart()) {
      return absl::InvalidArgumentError(
          fmt::format("two samples in a row have the key '{}', which in a shard would make them one: files that "
                      "differ only behind the first dot of their names cannot be packed apart; rename one of them",
                      shape.key));
    }
    last_key_ = shape.key;
    ASSIGN_OR_RETURN(const uint64_t bytes, encoder_.SampleBytes(shape));
    const uint64_t grown = samples_bytes_ + bytes;
    if (plan_.starts.empty() || grown > limit_ || limit_ - grown < encoder_.OverheadBytes(samples_ + 1)) {
      RETURN_IF_ERROR(BeginShard(position));
    }
    samples_bytes_ += bytes;
    ++samples_;
    return absl::OkStatus();
  }

  PackPlan Finish(uint64_t samples) {
    EndShard();
    plan_.starts.push_back(samples);
    return std::move(plan_);
  }

 private:
  absl::Status BeginShard(uint64_t position) {
    EndShard();
    if (plan_.starts.size() == kMaxShards)
      return absl::InvalidArgumentError(fmt::format("more than {} shards: raise --shard-size", kMaxShards));
    plan_.starts.push_back(position);
    return absl::OkStatus();
  }

  void EndShard() {
    if (!plan_.starts.empty()) plan_.bytes.push_back(samples_bytes_ + encoder_.OverheadBytes(samples_));
    samples_bytes_ = 0;
    samples_ = 0;
  }

  const ShardEncoder& encoder_;
  const uint64_t limit_;
  PackPlan plan_;
  uint64_t samples_bytes_ = 0;  // of the open shard
  uint64_t samples_ = 0;        // likewise
  std::string last_key_;
};

}  // namespace

PackOrder PackOrder::Shuffled(uint64_t samples, uint64_t seed) {
  PackOrder order(samples);
  order.permutation_.emplace(samples, HashKey(kShuffleDomain, {seed}));
  return order;
}

uint64_t PackPlan::total_bytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
}

absl::Status ShapeOf(const IndexedSample& sample, const ClassMap* classes, PackedSample* out) {
  out->shape.key = sample.key;
  out->shape.fields.clear();
  out->inline_texts.clear();
  out->stored.clear();
  for (const IndexedField& field : sample.fields) {
    if (!field.is_inline) {
      if (!IsStoredAsValue(field.encoding)) {
        return absl::InvalidArgumentError(
            fmt::format("sample '{}': its field '{}' is stored as '{}', which cannot be packed yet: only fields whose "
                        "stored bytes are their value can",
                        sample.key, field.name, field.encoding));
      }
      out->stored.push_back(field);
      continue;
    }
    ASSIGN_OR_RETURN(std::string text, InlineText(sample, field, classes));
    out->shape.fields.push_back({.name = std::string(field.name), .length = text.size()});
    out->inline_texts.push_back(std::move(text));
  }
  std::sort(out->stored.begin(), out->stored.end(), [](const IndexedField& a, const IndexedField& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.length < b.length;
  });
  for (const IndexedField& field : out->stored)
    out->shape.fields.push_back({.name = std::string(field.name), .length = field.length});
  return absl::OkStatus();
}

absl::StatusOr<PackPlan> MakePackPlan(const Index& index, const PackOrder& order, const ClassMap* classes,
                                      const ShardEncoder& encoder, uint64_t shard_bytes) {
  Planner planner(encoder, shard_bytes);
  IndexedSample sample;
  PackedSample packed;
  uint64_t without_image = 0;
  std::string first_without_image;
  for (uint64_t position = 0; position < order.size(); ++position) {
    RETURN_IF_ERROR(index.Lookup(order.At(position), &sample));
    RETURN_IF_ERROR(ShapeOf(sample, classes, &packed));
    RETURN_IF_ERROR(planner.Add(position, packed.shape));
    if (!HasImage(sample) && without_image++ == 0) first_without_image = sample.key;
  }
  PackPlan plan = planner.Finish(order.size());
  plan.without_image = without_image;
  plan.first_without_image = std::move(first_without_image);
  return plan;
}

}  // namespace millrace
