#include "loader_options.h"

#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "arguments.h"
#include "errors.h"
#include "gil_release.h"
#include "service/worker_tls.h"
#include "service/worker_token.h"

namespace millrace::python {

Source SourceOf(const std::vector<std::shared_ptr<DatasetHandle>>& datasets) {
  std::vector<Subset> parts;
  for (const std::shared_ptr<DatasetHandle>& dataset : datasets) {
    dataset->CheckOwnProcess();
    parts.push_back(dataset->subset());
  }
  return Source(std::move(parts));
}

MixOptions ToMixOptions(const MixTuple& mix) {
  const auto& [length, stages, draws, fresh_passes] = mix;
  MixOptions options;
  options.length = length;
  for (const auto& [from, weights] : stages) options.stages.push_back({from, ValueOrThrow(MixWeights(weights))});
  options.draws = ValueOrThrow(ParseDraws(draws));
  options.fresh_passes = fresh_passes;
  return options;
}

TokenOptions ToTokenOptions(const TokensTuple& tokens) {
  const auto& [layout, length, buckets, documents, longer, field, stored] = tokens;
  TokenOptions options;
  options.layout = Choose<RowLayout>("layout", layout,
                                     {{"pad", RowLayout::kPad},
                                      {"stream", RowLayout::kStream},
                                      {"pack", RowLayout::kPack},
                                      {"bucket", RowLayout::kPad}});
  options.length = length;
  for (const auto& [row, batch] : buckets) options.buckets.push_back({row, batch});
  options.documents = documents;
  options.longer = ValueOrThrow(ParseLongSamples(longer));
  options.field = field;
  options.stored = stored;
  ThrowIfError(options.Check());
  return options;
}

ServiceOptions ToServiceOptions(const WorkersTuple& workers) {
  const auto& [places, streams, local_streams, token_file, tls, tls_name, compress, function] = workers;
  ServiceOptions service;
  service.workers = places;
  service.streams = ToNatural("streams", streams);
  service.compress = compress;
  if (function) {
    const auto& [name, uri, wants_tensors] = *function;
    service.function = RowFunction{.name = name, .uri = uri, .wants_tensors = wants_tensors};
  }
  service.local_follows = !local_streams;
  if (local_streams) service.local_streams = ToNatural("local_streams", *local_streams);
  service.token = ValueOrThrow(ReadWorkerToken(token_file));
  if (!tls.empty()) {
    service.tls = ValueOrThrow(ReadWorkerTls(tls));
    service.tls->name = tls_name;
  }
  return service;
}

RangeCacheOptions ToCacheOptions(const std::string& folder, const std::string& size, const std::string& tenant) {
  RangeCacheOptions options{.folder = folder, .tenant = tenant};
  if (!size.empty()) options.size_bytes = ToBytes("the size of a cache", size);
  ThrowIfError(Annotate(CheckCacheTenant(tenant), "the tenant of the cache"));
  return options;
}

std::shared_ptr<RangeCache> OpenCache(std::shared_ptr<Process> process, const std::string& folder,
                                      const std::string& size, const std::string& tenant) {
  if (folder.empty()) return nullptr;
  const RangeCacheOptions options = ToCacheOptions(folder, size, tenant);
  static auto& open = *new std::map<std::tuple<pid_t, std::string, uint64_t, std::string>, std::weak_ptr<RangeCache>>();
  std::error_code error;
  const std::string path = options.in_memory() ? folder : std::filesystem::weakly_canonical(folder, error).string();
  const std::tuple key(getpid(), error ? folder : path, options.size_bytes, tenant);
  std::erase_if(open, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = open.find(key); found != open.end()) {
    if (std::shared_ptr<RangeCache> cache = found->second.lock()) return cache;
  }
  std::optional<GilRelease> release;
  // In memory with the GIL: of two threads that open it at once, the second one finds what the first one has made.
  if (!options.in_memory()) release.emplace();
  absl::StatusOr<std::unique_ptr<RangeCache>> opened = RangeCache::Open(options, process->runtime.memory());
  release.reset();
  std::unique_ptr<RangeCache> made = ValueOrThrow(std::move(opened));
  if (made == nullptr) return nullptr;
  // One in memory has a part of the process's budget.
  std::shared_ptr<RangeCache> cache(
      made.release(), [process = std::move(process), own = DeleteInOwnProcess<RangeCache>()](RangeCache* gone) mutable {
        own(gone);
        process.reset();
      });
  open[key] = cache;
  return cache;
}

}  // namespace millrace::python
