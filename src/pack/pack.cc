#include "pack/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/counted.h"
#include "base/crypto.h"
#include "pack/destination.h"
#include "pack/merge.h"
#include "pack/pack_job.h"
#include "pack/pack_plan.h"
#include "pack/packers.h"
#include "pack/shard_packer.h"
#include "shard/mds_writer.h"
#include "shard/sample_name.h"
#include "shard/shard_encoder.h"
#include "store/blocking.h"
#include "store/joined_objects.h"

namespace millrace {

namespace {

absl::Status CheckOptions(const Dataset& source, const PackOptions& options) {
  if (options.shard_bytes == 0) return absl::InvalidArgumentError("the size of a shard must be positive");
  RETURN_IF_ERROR(options.images.Check());
  if (options.part >= options.parts) return absl::InvalidArgumentError("there are fewer parts than that");
  if (options.parts > kMaxShards)
    return absl::InvalidArgumentError(fmt::format("more than {} parts, which is as many as shards can be", kMaxShards));
  if (options.force && options.parts > 1) {
    return absl::InvalidArgumentError(
        "--force would remove what the other parts have written; remove the destination first, and then start all "
        "parts without it");
  }
  if (options.classes && (source.index().class_names().empty() || !source.index().own_class_names().empty())) {
    return absl::InvalidArgumentError(
        fmt::format("{}: a class map gives numbers to class folders, and there are none", source.uri()));
  }
  return absl::OkStatus();
}

// The hash tells this source from others, and from itself after a change of the data or of the way they are cut into
// samples.
absl::StatusOr<std::string> HashSource(const Index& index) {
  Xxh3Stream hash;
  hash.UpdateLe64(index.fingerprint());
  IndexedObject object;
  for (uint64_t i = 0; i < index.objects(); ++i) {
    RETURN_IF_ERROR(index.LookupObject(static_cast<uint32_t>(i), &object));
    for (const std::string_view text : {std::string_view(object.key), std::string_view(object.etag)}) {
      hash.UpdateLe64(text.size());
      hash.Update(AsBytes(text));
    }
    hash.UpdateLe64(object.size);
  }
  return hash.Digest().Hex();
}

// Returns the shards that lost samples when they were indexed.
absl::StatusOr<std::vector<std::string>> IncompleteObjects(const Index& index,
                                                           const std::optional<PackOrigin>& origin) {
  std::set<std::string> keys;
  if (origin) {
    for (const auto& [now, key] : origin->damaged) keys.insert(key);
  }
  IndexedObject object;
  for (uint64_t i = 0; index.kind() != DataKind::kRawObjects && i < index.objects(); ++i) {
    RETURN_IF_ERROR(index.LookupObject(static_cast<uint32_t>(i), &object));
    if (object.incomplete && !(origin && origin->damaged.contains(object.key))) keys.insert(object.key);
  }
  return std::vector<std::string>(keys.begin(), keys.end());
}

// The objects of the destination may be removed, so no object of the source may lie below it.
absl::Status CheckKeepsSource(const Dataset& source, const Location& destination) {
  if (!source.is_manifest()) return CheckApart(source.place(), destination);
  const std::string to = destination.store->Uri(destination.Key(""));
  IndexedObject object;
  for (uint64_t i = 0; i < source.index().objects(); ++i) {  // the manifest is among them
    RETURN_IF_ERROR(source.index().LookupObject(static_cast<uint32_t>(i), &object));
    ASSIGN_OR_RETURN(const std::vector<ObjectInfo> parts, SplitJoined(object.key, ""));
    for (const ObjectInfo& part : parts) {
      const std::string uri = source.store().Uri(source.StoreKey(part.key));
      if (!uri.starts_with(to)) continue;
      return absl::InvalidArgumentError(
          fmt::format("cannot pack {} into {}: {} lies within the destination", source.uri(), to, uri));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWhole(const Dataset& source, const std::vector<std::string>& incomplete, bool skip_bad) {
  if (incomplete.empty() || skip_bad) return absl::OkStatus();
  const bool one = incomplete.size() == 1;
  return absl::FailedPreconditionError(fmt::format(
      "{}: {} of the source {} damaged when {} indexed, and {} samples from there on are missing{}; repair what is "
      "damaged and run `millrace index {}`, or give --skip-bad to pack the others",
      source.store().Uri(source.StoreKey(incomplete.front())), Counted(incomplete.size(), "shard"),
      one ? "was" : "were", one ? "it was" : "they were", one ? "its" : "their", one ? "" : " (this is the first)",
      source.uri()));
}

std::string HashFields(const std::vector<FieldChoice>& fields) {
  if (fields.empty()) return "";
  Xxh3Stream hash;
  for (const FieldChoice& field : fields) {
    for (const std::string_view text : {std::string_view(field.name), std::string_view(field.as)}) {
      hash.UpdateLe64(text.size());
      hash.Update(AsBytes(text));
    }
  }
  return hash.Digest().Hex();
}

std::string HashClasses(const std::optional<ClassMap>& classes) {
  if (!classes) return "";
  Xxh3Stream hash;
  for (const auto& [name, number] : *classes) {
    hash.UpdateLe64(name.size());
    hash.Update(AsBytes(name));
    hash.UpdateLe64(number);
  }
  return hash.Digest().Hex();
}

absl::StatusOr<PackJob> JobOf(const Dataset& source, const PackPlan& plan, const PackOptions& options) {
  PackJob job;
  if (options.origin) {
    job.source_uri = options.origin->uri;
    job.source = options.origin->id;
  } else {
    job.source_uri = source.place().uri;
    ASSIGN_OR_RETURN(job.source, HashSource(source.index()));
    if (source.labels_id() != 0) job.source += fmt::format("-{:016x}", source.labels_id());
    if (options.samples) job.source += fmt::format("-{:016x}", options.samples->fingerprint());
  }
  job.samples = plan.starts.back();
  job.format = KindName(options.format);
  job.shard_bytes = options.shard_bytes;
  job.order = options.shuffle_seed ? fmt::format("shuffled by seed {}", *options.shuffle_seed) : "kept";
  job.classes = HashClasses(options.classes);
  job.fields = options.names_for_loaders ? std::string(kNamesForLoaders) : HashFields(options.fields);
  job.images = ImagesOf(options.images);
  job.keys = KeysOf(options.format);
  job.shards = plan.shards();
  return job;
}

// Samples that an earlier run left out are accepted only by a run that would leave them out, too.
absl::Status CheckSkipped(const PackDestination& destination, const std::vector<SkippedSample>& skipped,
                          bool skip_bad) {
  if (skipped.empty() || skip_bad) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "{}: {} {} left out there by --skip-bad, the first of them '{}' ({}); give --skip-bad again to accept that, or "
      "repair the source and start again with --force",
      destination.Uri(), Counted(skipped.size(), "sample"), skipped.size() == 1 ? "was" : "were", skipped.front().key,
      skipped.front().why));
}

absl::Status Complete(PackDestination& destination, const PackPlan& plan, bool skip_bad, PackReport* report) {
  ASSIGN_OR_RETURN(report->skipped, destination.ReadSkipped());
  RETURN_IF_ERROR(CheckSkipped(destination, report->skipped, skip_bad));
  report->complete = true;
  report->missing = 0;
  report->shards = plan.shards();
  report->shard_bytes = destination.there().ShardBytes();
  report->samples = destination.record()->samples;
  report->index_bytes = destination.record()->index_bytes;
  return destination.CleanUp();
}

absl::Status CheckTotal(const PackDestination& destination, const PackPlan& plan, uint64_t samples, uint64_t skipped) {
  if (samples + skipped == plan.starts.back()) return absl::OkStatus();
  return absl::InternalError(
      fmt::format("{}: {} packed and {} left out, of {}: please report this; what was written is marked as incomplete",
                  destination.Uri(), Counted(samples, "sample"), skipped, plan.starts.back()));
}

// Writes the file with which readers of MDS begin.
absl::Status WriteMdsIndex(const PackDestination& destination, const SampleShape& first,
                           const std::vector<MdsShardEntry>& shards, const std::stop_token& stop) {
  if (destination.format() != DataKind::kMds) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<MdsColumn> columns, MdsColumnsOf(first));
  PutOptions put;
  put.content_type = "application/json";
  put.stop = stop;
  const std::string json = MdsIndexJson(columns, shards);
  const Location& to = destination.location();
  return PutBlocking(*to.store, to.Key(kMdsIndexName), AsBytes(json), put).status();
}

// Returns the names of the numbers that are packed as the class.
std::vector<std::string> ClassNamesOf(const Index& source, const SampleView& view, const PackOptions& options) {
  if (options.classes) return {};  // has other numbers
  std::string field(kClassField);
  const auto chosen = std::find_if(view.fields.begin(), view.fields.end(),
                                   [](const FieldChoice& choice) { return choice.as == kClassField; });
  if (chosen != view.fields.end()) field = chosen->name;
  const auto named = options.class_names.find(field);
  if (named != options.class_names.end()) return named->second;
  return field == kClassField ? source.own_class_names() : std::vector<std::string>();
}

// Merges the index, and records that the job is done unless shards were replaced meanwhile. NotFound if another run
// has completed the job.
absl::Status Merge(Runtime& runtime, PackDestination& destination, const PackWork& work, const PackOptions& options,
                   const std::vector<std::string>& incomplete_objects) {
  const std::string before = destination.there().HashShards();
  ASSIGN_OR_RETURN(MergedIndex merged, MergeFragments(destination, runtime.memory(), options.stop));
  RETURN_IF_ERROR(CheckSkipped(destination, merged.skipped, options.skip_bad));
  RETURN_IF_ERROR(CheckTotal(destination, work.plan, merged.index->samples(), merged.skipped.size()));
  RETURN_IF_ERROR(WriteMdsIndex(destination, work.first, merged.shards, options.stop));
  merged.index->SetClassNames(work.class_names);
  ASSIGN_OR_RETURN(const IndexSummary summary, merged.index->Finish());
  ASSIGN_OR_RETURN(const bool begun, destination.Look());
  if (!begun || destination.there().Missing() > 0 || destination.there().HashShards() != before)
    return absl::OkStatus();
  return destination.Record({.samples = summary.samples,
                             .index_bytes = summary.index_bytes,
                             .skipped = std::move(merged.skipped),
                             .incomplete_objects = incomplete_objects});
}

// Sums up the results of this part, in this run and in earlier ones.
absl::Status SumPart(Runtime& runtime, const PackDestination& destination, const PackOptions& options,
                     PackReport* report) {
  ASSIGN_OR_RETURN(PartSum sum, SumFragments(destination, options.part, options.parts, runtime.memory(), options.stop));
  report->samples = sum.samples;
  report->shard_bytes = sum.shard_bytes;
  report->skipped = std::move(sum.skipped);
  return absl::OkStatus();
}

// Makes the data set whole when all shards are there, in whichever run they were written.
absl::Status FinishJob(Runtime& runtime, PackDestination& destination, const PackWork& work, const PackOptions& options,
                       PackReport* report) {
  constexpr int kMaxTries = 5;
  ASSIGN_OR_RETURN(bool begun, destination.Look());
  for (int i = 0; begun && destination.there().Missing() == 0; ++i) {
    if (i == kMaxTries) {
      return absl::FailedPreconditionError(fmt::format(
          "{}: its shards are being replaced all the time; see that only this pack writes there", destination.Uri()));
    }
    absl::Status merged = Merge(runtime, destination, work, options, report->incomplete_objects);
    if (!merged.ok() && !absl::IsNotFound(merged)) return merged;
    if (destination.record()) break;
    ASSIGN_OR_RETURN(begun, destination.Look());
    if (begun && !merged.ok()) return merged;
  }
  if (destination.record()) return Complete(destination, work.plan, options.skip_bad, report);
  report->missing = destination.there().Missing();
  report->complete = false;
  if (begun && options.parts > 1 && report->missing > 0) {  // the others are at it
    absl::Status summed = SumPart(runtime, destination, options, report);
    if (!absl::IsNotFound(summed)) return summed;
    ASSIGN_OR_RETURN(begun, destination.Look());  // they have just ended
    if (destination.record()) return Complete(destination, work.plan, options.skip_bad, report);
  }
  if (begun) {
    return absl::FailedPreconditionError(fmt::format(
        "{}: shards changed while it was packed, and {} of them {} missing now; see to it that nothing else "
        "writes there, and run the same command again",
        destination.Uri(), report->missing, report->missing == 1 ? "is" : "are"));
  }
  return absl::FailedPreconditionError(fmt::format(
      "{}: while this was packed, somebody else has removed or replaced it; see what is there, and pack again",
      destination.Uri()));
}

}  // namespace

absl::Status CheckApart(const DatasetPlace& source, const Location& destination) {
  const std::string to = destination.store->Uri(destination.Key(""));
  for (const std::string& name : source.names) {
    const std::string uri = source.store->Uri(source.Key(name));
    if (!uri.starts_with(to)) continue;
    return absl::InvalidArgumentError(fmt::format("cannot pack {} into {}: it lies within the destination", uri, to));
  }
  const std::string from = source.store->Uri(source.Key(""));
  const bool into = to.starts_with(from) && !(source.selection && !source.selection->Contains(to.substr(from.size())));
  if (!source.names.empty() || (!into && !from.starts_with(to))) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("cannot pack {} into {}: one lies within the other", source.uri, to));
}

absl::StatusOr<PackReport> Pack(Runtime& runtime, Stores& stores, const Dataset& source,
                                std::string_view destination_uri, const PackOptions& options) {
  RETURN_IF_ERROR(CheckOptions(source, options));
  ASSIGN_OR_RETURN(const Location location, stores.Open(destination_uri));
  RETURN_IF_ERROR(CheckKeepsSource(source, location));

  PackReport report;
  ASSIGN_OR_RETURN(report.incomplete_objects, IncompleteObjects(source.index(), options.origin));
  RETURN_IF_ERROR(CheckWhole(source, report.incomplete_objects, options.skip_bad));

  const uint64_t samples = options.samples ? options.samples->size() : source.index().size();
  const SampleOrder order =
      SampleOrder::Among(options.samples, options.shuffle_seed ? SampleOrder::Shuffled(samples, *options.shuffle_seed)
                                                               : SampleOrder(samples));
  std::vector<FieldChoice> fields = options.fields;
  if (options.names_for_loaders) {
    ASSIGN_OR_RETURN(fields, NamesForLoaders(source.index()));
  }
  ASSIGN_OR_RETURN(SampleView view, SampleView::Of(source.index(), std::move(fields), options.classes));
  view.images = options.images;
  IndexedSample sample;
  PackedSample first;
  RETURN_IF_ERROR(source.index().Lookup(order.At(0), &sample));
  RETURN_IF_ERROR(ShapeOf(sample, view, &first));
  ASSIGN_OR_RETURN(const std::unique_ptr<ShardEncoder> encoder, MakeShardEncoder(options.format, first.shape));
  ASSIGN_OR_RETURN(const PackPlan plan, MakePackPlan(source.index(), order, view, *encoder, options.shard_bytes));
  ASSIGN_OR_RETURN(const PackJob job, JobOf(source, plan, options));
  ASSIGN_OR_RETURN(PackerMemory memory, ReserveForPackers(runtime.memory(), plan, *encoder, location, options.images));
  PackDestination destination(location, options.format, options.stop);
  RETURN_IF_ERROR(destination.Begin(job, options.force));

  report.without_image = plan.without_image;
  report.first_without_image = plan.first_without_image;
  report.lacking_fields = plan.lacking_fields;
  report.first_lacking_fields = plan.first_lacking_fields;
  report.source_samples = samples;
  if (destination.record()) {
    report.already_packed = true;
    report.shards_kept = plan.shards();
    RETURN_IF_ERROR(Complete(destination, plan, options.skip_bad, &report));
    return report;
  }
  std::vector<uint64_t> to_write;
  for (uint64_t shard = options.part; shard < plan.shards(); shard += options.parts) {
    ++report.shards;
    if (destination.there().Has(shard)) {
      ++report.shards_kept;
    } else {
      to_write.push_back(shard);
    }
  }
  const PackWork work{.source = source,
                      .order = order,
                      .plan = plan,
                      .view = view,
                      .first = first.shape,
                      .destination = destination,
                      .skip_bad = options.skip_bad,
                      .class_names = ClassNamesOf(source.index(), view, options)};
  if (!to_write.empty()) {
    Packers packers(work, memory, options.progress, options.stop, std::move(to_write));
    RETURN_IF_ERROR(packers.Run(&report.skipped));
  }
  memory = {};  // merging needs some
  RETURN_IF_ERROR(FinishJob(runtime, destination, work, options, &report));
  return report;
}

}  // namespace millrace
