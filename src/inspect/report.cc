#include "inspect/report.h"

#include <fmt/format.h>

#include <utility>

#include "dataset/dataset_warnings.h"
#include "inspect/shard_advice.h"
#include "inspect/shuffle_advice.h"
#include "plan/order_policy.h"

namespace millrace {

namespace {

absl::StatusOr<uint64_t> ObjectBytes(const Index& index) {
  if (index.kind() == DataKind::kRawObjects) return index.total_bytes();
  uint64_t bytes = 0;
  IndexedObject object;
  for (uint64_t i = 0; i < index.objects(); ++i) {
    RETURN_IF_ERROR(index.LookupObject(static_cast<uint32_t>(i), &object));
    bytes += object.size;
  }
  return bytes;
}

}  // namespace

uint64_t CountObjects(const Index& index) {
  return index.kind() == DataKind::kRawObjects ? index.size() : index.objects();
}

absl::StatusOr<std::vector<std::string>> AdviseOnDataset(const Dataset& dataset) {
  const Index& index = dataset.index();
  std::vector<std::string> advice;
  const OrderPolicy policy =
      OrderPolicy::ForSamples(Shuffle::kWindow, index.mean_span_bytes(), index.kind() == DataKind::kRawObjects);
  if (IsClassSorted(index)) {
    std::optional<std::string> shuffle =
        AdviseShuffle({.samples = index.size(), .classes = index.class_counts().size()}, policy);
    if (shuffle) advice.push_back(*std::move(shuffle));
  }
  ASSIGN_OR_RETURN(const uint64_t bytes, ObjectBytes(index));
  std::optional<std::string> shards =
      AdviseShards({.kind = index.kind(), .objects = CountObjects(index), .bytes = bytes}, dataset.uri());
  if (shards) advice.push_back(*std::move(shards));
  if (!dataset.is_manifest()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, WarningsOfNames(dataset.place(), index));
    for (const std::string& name : names) advice.push_back(fmt::format("Warning: {}.", name));
  }
  return advice;
}

}  // namespace millrace
