#include "pack/merge.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "dataset/sample_objects.h"
#include "transfer/object_reader.h"

namespace millrace {

namespace {

absl::Status AddFragment(ByteSpan bytes, MergedIndex* merged) {
  std::vector<NewSampleField> fields;
  ASSIGN_OR_RETURN(
      Fragment fragment, ReadFragment(bytes, [&](const ShardSample& sample) {
        fields.clear();
        for (const ShardField& field : sample.fields)
          fields.push_back(
              {.name = field.name, .offset = field.offset, .length = field.length, .encoding = field.encoding});
        return merged->index->AddSample(
            {.key = sample.key, .fields = fields, .crc32c = sample.crc32c, .label = sample.label});
      }));
  for (SkippedSample& sample : fragment.skipped) merged->skipped.push_back(std::move(sample));
  merged->shards.push_back({.name = fragment.shard.key, .bytes = fragment.shard.size, .samples = fragment.samples});
  return merged->index->AddObject(fragment.shard);
}

// Hands out the fragments, in order.
absl::Status ReadEach(ObjectStore& store, const std::vector<ObjectInfo>& fragments, MemoryBudget& memory,
                      const std::stop_token& stop, absl::FunctionRef<absl::Status(ByteSpan)> each) {
  size_t asked = 0;
  ObjectReader reads(
      store, memory,
      [&]() -> absl::StatusOr<std::optional<ObjectReader::Request>> {
        if (asked == fragments.size()) return std::nullopt;
        const ObjectInfo& fragment = fragments[asked++];
        // One that another run has written once more says the same.
        ObjectReader::Request request = ObjectReader::All({.key = fragment.key, .size = fragment.size});
        request.in_one = true;
        return request;
      },
      stop);
  for (const ObjectInfo& fragment : fragments) {
    ASSIGN_OR_RETURN(const std::optional<ObjectReader::Piece> piece, reads.Next());
    RETURN_IF_ERROR(Annotate(each(piece->bytes), store.Uri(fragment.key)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PartSum> SumFragments(const PackDestination& destination, uint64_t part, uint64_t parts,
                                     MemoryBudget& memory, const std::stop_token& stop) {
  PartSum sum;
  RETURN_IF_ERROR(ReadEach(
      *destination.location().store, destination.there().Fragments(part, parts), memory, stop,
      [&sum](ByteSpan bytes) -> absl::Status {
        ASSIGN_OR_RETURN(Fragment fragment, ReadFragment(bytes, [](const ShardSample&) { return absl::OkStatus(); }));
        sum.samples += fragment.samples;
        sum.shard_bytes += fragment.shard.size;
        std::move(fragment.skipped.begin(), fragment.skipped.end(), std::back_inserter(sum.skipped));
        return absl::OkStatus();
      }));
  return sum;
}

absl::StatusOr<MergedIndex> MergeFragments(const PackDestination& destination, MemoryBudget& memory,
                                           const std::stop_token& stop) {
  const Location& location = destination.location();
  PutOptions put;
  put.stop = stop;
  ASSIGN_OR_RETURN(std::unique_ptr<ObjectWriter> out, location.store->Write(location.Key(kIndexName), put));
  MergedIndex merged;
  merged.index = std::make_unique<IndexWriter>(destination.format(), std::move(out));
  RETURN_IF_ERROR(ReadEach(*location.store, destination.there().Fragments(), memory, stop,
                           [&merged](ByteSpan bytes) { return AddFragment(bytes, &merged); }));
  if (merged.index->samples() == 0) {
    return absl::DataLossError(destination.Uri() +
                               ": none of the samples could be read: repair the source, and start again with --force" +
                               (merged.skipped.empty() ? "" : "; the first: " + merged.skipped.front().why));
  }
  return merged;
}

}  // namespace millrace
