#include "pack/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "dataset/progress.h"
#include "dataset/sample_objects.h"
#include "pack/sample_reader.h"
#include "pack/shard_writer.h"
#include "shard/data_kind.h"
#include "shard/sample_name.h"
#include "store/blocking.h"

namespace millrace {

namespace {

bool IsShardName(std::string_view name) {
  constexpr std::string_view kStart = "shard-", kEnd = ".tar";
  if (!name.starts_with(kStart) || !name.ends_with(kEnd) || name.size() != kStart.size() + 6 + kEnd.size())
    return false;
  return name.substr(kStart.size(), 6).find_first_not_of("0123456789") == std::string_view::npos;
}

// What lies at the destination: nothing, or with `force` shards of an earlier run; the names of these.
absl::StatusOr<std::vector<std::string>> OldShards(const Location& destination, bool force) {
  const std::string prefix = destination.Key("");
  std::vector<std::string> shards;
  const absl::Status status = ForEachPage(*destination.store, prefix, "", [&](const ListPage& page) -> absl::Status {
    for (const ObjectInfo& object : page.objects) {
      std::string name = object.key.substr(prefix.size());
      if (name.empty() || name.ends_with('/')) continue;  // folder markers
      const bool ours = IsShardName(name) || name.starts_with(kDatasetFolder);
      if (!ours || !force) {
        return absl::AlreadyExistsError(fmt::format(
            "{}: the destination is not empty; {}", destination.store->Uri(object.key),
            ours ? "--force replaces the shards that are there" : "remove what is there, or choose another"));
      }
      if (IsShardName(name)) shards.push_back(std::move(name));
    }
    return absl::OkStatus();
  });
  if (!status.ok() && !absl::IsNotFound(status)) return status;  // a folder that is not there yet is empty
  return shards;
}

}  // namespace

absl::Status CheckApart(const Location& source, const Location& destination) {
  const std::string from = source.store->Uri(source.Key(""));
  const std::string to = destination.store->Uri(destination.Key(""));
  if (!to.starts_with(from) && !from.starts_with(to)) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("cannot pack {} into {}: one lies within the other", from, to));
}

absl::StatusOr<PackReport> Pack(Runtime& runtime, Stores& stores, const Dataset& source,
                                std::string_view destination_uri, const PackOptions& options) {
  if (options.shard_bytes == 0) return absl::InvalidArgumentError("the size of a shard must be positive");
  if (const DataKind kind = source.index().kind(); kind != DataKind::kRawObjects && kind != DataKind::kTar) {
    return absl::InvalidArgumentError(
        fmt::format("{}: packing from {} is not supported yet; `millrace feed` and Python read such data "
                    "as they are",
                    source.uri(), KindTitle(kind)));
  }
  ASSIGN_OR_RETURN(const Location destination, stores.Open(destination_uri));
  RETURN_IF_ERROR(CheckApart({&source.store(), source.StoreKey("")}, destination));
  ASSIGN_OR_RETURN(const std::vector<std::string> old_shards, OldShards(destination, options.force));
  ObjectStore& store = *destination.store;

  const std::string marker = destination.Key(kIncompleteName);
  RETURN_IF_ERROR(PutBlocking(store, marker, AsBytes("millrace pack\n")).status());
  RETURN_IF_ERROR(DeleteBlocking(store, destination.Key(kIndexName)));
  PutOptions put;
  put.stop = options.stop;
  ASSIGN_OR_RETURN(std::unique_ptr<ObjectWriter> index, store.Write(destination.Key(kIndexName), put));
  ShardWriter shards(destination, options.shard_bytes, std::move(index), options.stop);
  ProgressMeter progress(options.progress);
  PackReport report;
  uint64_t done = 0;
  SampleReader samples(runtime, source, options.stop);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<SampleReader::Part> part, samples.Next());
    if (!part) break;
    RETURN_IF_ERROR(shards.Add(*part->sample, part->offset, part->bytes, part->last));
    if (part->last && std::none_of(part->sample->fields.begin(), part->sample->fields.end(),
                                   [](const IndexedField& field) { return IsImageField(field.name); })) {
      if (report.without_image++ == 0) report.first_without_image = part->sample->key;
    }
    done += part->bytes.size();
    progress.Update(done, source.index().total_bytes());
  }
  ASSIGN_OR_RETURN(const IndexSummary summary, shards.Finish());
  for (const std::string& old : old_shards) {
    if (old >= ShardWriter::ShardName(shards.shards())) RETURN_IF_ERROR(DeleteBlocking(store, destination.Key(old)));
  }
  RETURN_IF_ERROR(DeleteBlocking(store, marker));
  report.samples = summary.samples;
  report.shards = shards.shards();
  report.shard_bytes = shards.shard_bytes();
  report.index_bytes = summary.index_bytes;
  return report;
}

}  // namespace millrace
