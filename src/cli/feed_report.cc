#include "cli/feed_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/counted.h"
#include "base/process.h"
#include "base/size.h"
#include "cli/feed_source.h"
#include "cli/feed_tokens.h"
#include "cli/json_text.h"

namespace millrace::cli {

namespace {

std::string WorkersText(const LoaderReport& report) {
  std::string text;
  for (const WorkerReport& worker : report.workers) {
    text += fmt::format("Worker {}: {}", worker.worker, Counted(worker.rows, "row"));
    if (worker.failures > 0) {
      text += fmt::format(", {}; the last: {}", Counted(worker.failures, "failure"), worker.last_failure);
    } else if (!worker.last_failure.empty()) {
      text += fmt::format(", no failure, but {}", worker.last_failure);
    }
    text += '\n';
  }
  return text;
}

// Returns the counts of each part of a mix; of the first ones only, if there are many.
std::string PartsText(const Source& source, const LoaderReport& report) {
  constexpr size_t kShown = 10;
  std::string text;
  for (size_t part = 0; part < std::min(kShown, source.parts().size()) && source.parts().size() > 1; ++part) {
    const double share = report.samples > 0 ? 100.0 * static_cast<double>(report.part_samples[part]) /
                                                  static_cast<double>(report.samples)
                                            : 0;
    const Subset& subset = source.parts()[part];
    text += fmt::format("Part {} ({}): {}, {:.2f} %\n", part, PartTitle(subset.dataset->uri(), subset.class_name),
                        Counted(report.part_samples[part], "sample"), share);
  }
  return text;
}

}  // namespace

std::string FeedJson(const Source* source, const FeedResult& result, const RequestCounts& counters) {
  JsonObject stalls;
  for (size_t i = 0; i < kStallCauses; ++i) {
    stalls.Add(StallCauseName(static_cast<StallCause>(i)), result.report.stalls.seconds[i]);
  }
  const JsonArray quarantine = JsonOfEach(result.report.quarantine, [&](const QuarantinedSample& bad) {
    return JSON_OF(Named("sample", bad.uri), bad.reason, bad.replacement, bad.epoch);
  });
  JsonObject json = JSON_OF(
      result.report.samples, result.seconds, result.open_seconds, result.first_batch_seconds,
      Named("samples_per_second", result.seconds > 0 ? static_cast<double>(result.report.samples) / result.seconds : 0),
      result.cpu_seconds, Named("max_rss_bytes", PeakResidentBytes()), Named("digest", result.report.digest.Hex()),
      Named("position", result.report.position.ToString()), stalls, result.report.stalls.bottleneck(),
      Named("requests", JsonObject{{"GET", counters.get},
                                   {"HEAD", counters.head},
                                   {"PUT", counters.put},
                                   {"LIST", counters.list},
                                   {"DELETE", counters.del}}),
      counters.retries, counters.hedges, counters.bytes_read, result.batches, result.report.quarantined, quarantine,
      result.report.odd_images, Named("parts", result.report.part_samples));
  if (const std::optional<CacheReport>& cache = result.report.cache) {
    json.Add("cache", JSON_OF(cache->hit_bytes, cache->miss_bytes, cache->requests, cache->kept.written_bytes,
                              Named("no_room_bytes", cache->kept.not_admitted_bytes), cache->kept.dropped_bytes,
                              cache->memory_bytes));
  }
  if (!result.report.workers.empty()) {
    JsonArray workers;
    for (const WorkerReport& worker : result.report.workers) {
      workers.Add(JSON_OF(worker.worker, worker.rows, worker.failures, worker.last_failure));
    }
    json.Add("workers", workers);
  }
  if (source != nullptr && source->tokens() != nullptr) {
    json.Add("tokens", result.report.tokens)
        .Add("token_places", result.report.token_places)
        .Add("rows", RowsJson(*source->tokens(), DescribeRows(*source)));
  }
  return json.Versioned("feed");
}

std::string FeedText(std::string_view memory, std::string_view cache, const Source* source, const FeedResult& result,
                     const RequestCounts& counters) {
  const LoaderReport& report = result.report;
  const double samples = static_cast<double>(report.samples);
  const TokenOptions* tokens = source == nullptr ? nullptr : source->tokens();
  const std::string_view item = tokens != nullptr ? "row" : "sample";
  std::string text =
      fmt::format("{} in {:.2f} s: {:.0f} {}s/s, first batch after {:.3f} s, opening took {:.2f} s\n",
                  Counted(report.samples, item), result.seconds, result.seconds > 0 ? samples / result.seconds : 0,
                  item, result.first_batch_seconds, result.open_seconds);
  text += fmt::format("CPU: {:.2f} s, {:.3f} s per 1,000 {}s; peak memory {} of a budget of {} plus the program\n",
                      result.cpu_seconds, samples > 0 ? 1000 * result.cpu_seconds / samples : 0, item,
                      FormatSize(PeakResidentBytes()), memory);
  text += fmt::format("Read: {} in {}, {} of them repeated\n", FormatSize(counters.bytes_read),
                      Counted(counters.get, "GET request"), counters.retries);
  if (report.cache) {
    text += fmt::format("Cache: {} from {}, {} in {} from the store\n", FormatSize(report.cache->hit_bytes), cache,
                        FormatSize(report.cache->miss_bytes), Counted(report.cache->requests, "request"));
    if (const uint64_t dropped = report.cache->kept.dropped_bytes; dropped > 0) {
      text += fmt::format("  {} were not kept, since the disk did not keep up or failed\n", FormatSize(dropped));
    }
  }
  text += WorkersText(report);
  if (source != nullptr) text += RowsText(tokens, DescribeRows(*source));
  if (report.token_places > 0) {
    const auto places = static_cast<double>(report.token_places);
    text += fmt::format("Tokens: {} in batches with room for {}: {:.3f} % padding, {:.0f} tokens/s\n", report.tokens,
                        report.token_places, 100 * (1 - static_cast<double>(report.tokens) / places),
                        result.seconds > 0 ? static_cast<double>(report.tokens) / result.seconds : 0);
  }
  if (source != nullptr && (tokens == nullptr || tokens->buckets.empty())) text += PartsText(*source, report);
  text += fmt::format("The consumer waited {:.2f} s of {:.2f} s:", report.stalls.waited(), result.seconds);
  for (size_t i = 0; i < kStallCauses; ++i) {
    if (report.stalls.seconds[i] < 0.0005) continue;
    text += fmt::format(" {} {:.3f} s", StallCauseName(static_cast<StallCause>(i)), report.stalls.seconds[i]);
  }
  text += fmt::format("\nBottleneck: {}\n", report.stalls.bottleneck());
  if (report.quarantined > 0) {
    text += fmt::format("Replaced {}; the first: {}: {}\n", Counted(report.quarantined, "damaged sample"),
                        report.quarantine.front().uri, report.quarantine.front().reason);
  }
  if (report.odd_images > 0) {
    text += fmt::format("{} shown in spite of warnings of the codec\n", Counted(report.odd_images, "image"));
  }
  text += fmt::format("Digest: {}\nPosition: {}\n", report.digest.Hex(), report.position.ToString());
  return text;
}

}  // namespace millrace::cli
