#include "pack/preflight.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "dataset/sample_objects.h"
#include "pack/destination.h"
#include "pack/pack_job.h"
#include "shard/data_kind.h"
#include "shard/mds_format.h"
#include "shard/shard_encoder.h"
#include "store/blocking.h"
#include "store/lister.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxTextBytes = 1 << 20;

// Represents the findings of a listing.
struct Seen {
  bool mark = false;
  bool record = false;
  bool index = false;
  bool more = false;     // of .millrace: what was left out, or what is to be cleaned up
  bool foreign = false;  // what belongs to no data set
  uint64_t shards = 0;
};

bool BelongsToShards(std::string_view name) {
  return ShardKind(name) || name == kMdsIndexName || name.ends_with(kCompanionSuffix);
}

absl::StatusOr<Seen> List(const Location& place, const std::stop_token& stop) {
  Seen seen;
  Lister lister(*place.store, place.Key(""), stop);
  while (true) {
    const absl::StatusOr<std::vector<ObjectInfo>> objects = lister.Next();
    if (absl::IsNotFound(objects.status())) return seen;  // a folder that is not there yet is empty
    RETURN_IF_ERROR(objects.status());
    if (objects->empty()) return seen;
    for (const ObjectInfo& object : *objects) {
      const std::string_view name = std::string_view(object.key).substr(place.Key("").size());
      if (name.empty() || name.ends_with('/')) continue;
      if (name == kIncompleteName) {
        seen.mark = true;
      } else if (name == kRecordName) {
        seen.record = true;
      } else if (name.starts_with(kDatasetFolder)) {
        (name == kIndexName ? seen.index : seen.more) = true;
      } else if (BelongsToShards(name)) {
        seen.shards += ShardKind(name) ? 1 : 0;
      } else {
        seen.foreign = true;
      }
    }
  }
}

// The job of the options, as far as it is known; the rest is that of `there`.
PackJob JobLike(const PackJob& there, const PackOptions& options) {
  PackJob job = there;
  job.source_uri = options.origin->uri;
  job.source = options.origin->id;
  job.format = KindName(options.format);
  job.shard_bytes = options.shard_bytes;
  job.order = options.shuffle_seed ? fmt::format("shuffled by seed {}", *options.shuffle_seed) : "kept";
  job.images = ImagesOf(options.images);
  job.keys = KeysOf(options.format);
  if (!options.classes) job.classes = "";
  if (options.fields.empty()) job.fields = options.names_for_loaders ? kNamesForLoaders : "";
  return job;
}

// Returns the job that is kept there; nullopt if there is none that this version understands.
template <typename Kept>
std::optional<Kept> ReadKept(const Location& place, std::string_view name) {
  const absl::StatusOr<std::string> text = ReadAll(*place.store, place.Key(name), kMaxTextBytes);
  if (!text.ok()) return std::nullopt;
  absl::StatusOr<Kept> kept = Kept::FromJson(*text);
  if (!kept.ok()) return std::nullopt;
  return *std::move(kept);
}

PackReport ReportOf(const PackDestination& done, const PackRecord& record) {
  PackReport report;
  report.already_packed = true;
  report.samples = report.source_samples = record.samples;
  report.shards = report.shards_kept = record.job.shards;
  report.shard_bytes = done.there().ShardBytes();
  report.index_bytes = record.index_bytes;
  return report;
}

}  // namespace

absl::StatusOr<std::optional<PackReport>> PreflightDestination(const Location& destination,
                                                               const PackOptions& options) {
  ASSIGN_OR_RETURN(const Seen seen, List(destination, options.stop));
  PackDestination there(destination, options.format, options.stop);
  if (seen.mark) {
    const auto begun = ReadKept<PackJob>(destination, kIncompleteName);
    if (!begun) return std::nullopt;
    const PackJob job = JobLike(*begun, options);
    const bool other = !options.force && !Difference(*begun, job).empty();
    if (seen.foreign || other) RETURN_IF_ERROR(there.Check(job));
    return std::nullopt;
  }
  const auto record = seen.record ? ReadKept<PackRecord>(destination, kRecordName) : std::nullopt;
  const PackJob job = JobLike(record ? record->job : PackJob(), options);
  if (!seen.foreign && (options.force || (seen.shards == 0 && !seen.index))) return std::nullopt;
  const bool known = !options.classes && options.fields.empty();
  const bool same = record && Difference(record->job, job).empty();
  if (same && !seen.foreign && (!known || seen.more || seen.shards != job.shards)) return std::nullopt;
  RETURN_IF_ERROR(there.Check(job));
  if (!there.record() || !same || !known || seen.more || options.force) return std::nullopt;
  return ReportOf(there, *record);
}

}  // namespace millrace
