#include "cli/feed_explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "base/counted.h"
#include "base/size.h"
#include "cli/console.h"
#include "cli/feed_source.h"
#include "cli/feed_tokens.h"
#include "cli/forecast_text.h"
#include "cli/json_text.h"
#include "pipeline/cache_forecast.h"
#include "pipeline/explain.h"
#include "pipeline/image_samples.h"

namespace millrace::cli {

namespace {

std::string_view LastName(LastBatch last) {
  switch (last) {
    case LastBatch::kDrop:
      return "drop";
    case LastBatch::kPad:
      return "pad";
    case LastBatch::kWrap:
      return "wrap";
    case LastBatch::kShort:
      return "short";
  }
  return "";
}

std::string Bytes(double bytes) {
  return FormatSize(static_cast<uint64_t>(bytes));
}

uint64_t Objects(const Source& source) {
  uint64_t objects = 0;
  std::set<const Dataset*> seen;
  for (const Subset& part : source.parts()) {
    if (seen.insert(part.dataset).second) objects += part.index().objects();
  }
  return objects;
}

/// Says why a run reads much more than its samples, and the way out; empty if it does not.
std::string WarningOf(const LoaderOptions& options, const LoaderExplanation& found) {
  constexpr double kMuch = 1.5;
  if (found.fetches.amplification() <= kMuch) return "";
  std::string text =
      fmt::format("{:.1f} times the bytes of its samples are read, since", found.fetches.amplification());
  const bool windowed = found.policy.shuffle == Shuffle::kWindow;
  if (windowed && found.fetches.readers > kMuch && !std::has_single_bit(options.world)) {
    text +=
        fmt::format(" {} ranks share nearly every extent; a number of ranks that is a power of two, up to {}, does not",
                    options.world, found.policy.lanes);
  } else if (windowed && !found.reaches_window) {
    text += " a window does not fit into the memory; raise --memory";
  } else {
    text +=
        " samples that are wanted at one time lie far apart, and reading the bytes between them costs less than more "
        "requests";
  }
  return text;
}

JsonObject ToJson(const Source& source, const LoaderOptions& options, const LoaderExplanation& found) {
  const LoaderExplanation::Fetches& fetches = found.fetches;
  JsonObject order = JSON_OF(Named("shuffle", ShuffleName(found.policy.shuffle)), options.seed,
                             Named("position", found.start.ToString()), found.policy.extent,
                             Named("extent_bytes", static_cast<uint64_t>(found.extent_bytes)), found.extents);
  if (found.policy.shuffle == Shuffle::kWindow) {
    order.Add("window", found.policy.window)
        .Add("window_bytes", static_cast<uint64_t>(found.window_bytes))
        .Add("windows", found.windows)
        .Add("lanes", found.policy.lanes);
  }
  JsonArray first;
  for (const LoaderExplanation::Sample& sample : found.first) {
    JsonObject one = JSON_OF(sample.position, sample.part, sample.sample, sample.key, sample.object, sample.span.offset,
                             Named("bytes", sample.span.length));
    if (source.tokens() != nullptr) one.Add("pieces", sample.pieces).Add("tokens", sample.tokens);
    first.Add(one);
  }
  const JsonArray parts = JsonOfEach(found.parts, [&](const LoaderExplanation::Part& part) {
    return JSON_OF(part.uri, Named("class", part.class_name), part.samples, part.wanted, part.drawn, part.passes());
  });
  JsonObject json = JSON_OF(
      source.uri(), found.samples, Named("objects", Objects(source)), Named("bytes", source.total_bytes()), order,
      Named("batches", JSON_OF(options.batch, options.rank, options.world, Named("last", LastName(options.last)),
                               found.steps, Named("samples", found.rank_samples))),
      Named("memory", JSON_OF(Named("bytes", options.memory_bytes), Named("batches", found.slots),
                              Named("batch_bytes", found.slot_bytes), found.fetch_bytes, found.reserve_bytes,
                              found.account_bytes, found.unused_bytes, found.reach_positions)),
      Named("expected", JSON_OF(fetches.requests, fetches.bytes, fetches.sample_bytes, fetches.amplification(),
                                Named("readers_per_extent", fetches.readers),
                                Named("requests_times_world", fetches.requests * options.world),
                                Named("bytes_times_world", fetches.bytes * options.world), fetches.estimated)),
      first);
  if (const std::string warning = WarningOf(options, found); !warning.empty()) json.Add("warning", warning);
  if (!found.left_out.empty()) json.Add("left_out", found.left_out);
  if (source.tokens() != nullptr) json.Add("rows", RowsJson(*source.tokens(), found.rows));
  if (!found.parts.empty()) {
    json.Add("mix", JSON_OF(Named("draws", DrawsName(found.draws)), found.fresh_passes, parts));
  }
  return json;
}

/// Returns the noun for the items that are ordered.
std::string_view Item(const LoaderExplanation& found) {
  return found.rows.empty() ? "sample" : "row";
}

std::string OrderText(const LoaderOptions& options, const LoaderExplanation& found) {
  const OrderPolicy& policy = found.policy;
  const uint64_t shuffled = !found.parts.empty()    ? found.parts.front().samples
                            : found.rows.size() > 1 ? found.rows.front().counts.rows
                                                    : found.samples;
  std::string text = fmt::format("Order: {}, seed {}, epoch {}, from position {}\n", ShuffleName(policy.shuffle),
                                 options.seed, found.start.epoch, found.start.ToString());
  switch (policy.shuffle) {
    case Shuffle::kNone:
      text += found.rows.empty() ? "  samples come as the index has them: by name of the object, then by offset\n"
                                 : "  rows come as they were made, along the index\n";
      break;
    case Shuffle::kGlobal:
      text += fmt::format("  every {} may come anywhere, so nearly each costs {}\n", Item(found),
                          found.rows.empty() ? "a request of its own" : "requests of its own");
      break;
    case Shuffle::kWindow:
      if (!found.parts.empty() || found.rows.size() > 1) text += "  of the first part:\n";
      text += fmt::format("  {} of {} ({}), shuffled\n", Counted(found.extents, "extent"),
                          Counted(policy.extent, Item(found)), Bytes(found.extent_bytes));
      text += fmt::format("  {} of up to {} ({}, {}), whose {}s are shuffled in {}\n", Counted(found.windows, "window"),
                          Counted(policy.window, "extent"),
                          Counted(std::min(shuffled, policy.window * policy.extent), Item(found)),
                          Bytes(found.window_bytes), Item(found), Counted(policy.lanes, "lane"));
      break;
  }
  return text;
}

std::string LastText(LastBatch last) {
  switch (last) {
    case LastBatch::kDrop:
      return "a short last step is dropped";
    case LastBatch::kPad:
      return "a short last step is padded";
    case LastBatch::kWrap:
      return "a short last step repeats the first samples";
    case LastBatch::kShort:
      return "a short last step has fewer rows";
  }
  return "";
}

std::string MemoryText(const LoaderOptions& options, const LoaderExplanation& found) {
  std::string text = fmt::format(
      "Memory: {}, of which {} for {}s that were fetched, {} for {} batches of {}, {} in reserve, {} for {}\n",
      FormatSize(options.memory_bytes), FormatSize(found.fetch_bytes), Item(found),
      FormatSize(found.slots * found.slot_bytes), found.slots, FormatSize(found.slot_bytes),
      FormatSize(found.reserve_bytes), FormatSize(found.account_bytes),
      found.rows.empty() ? "keys and states" : "tables of rows, keys and states");
  if (found.unused_bytes > 0) {
    text += fmt::format("  an epoch fits into it, and {} are not used\n", FormatSize(found.unused_bytes));
  }
  if (found.policy.shuffle == Shuffle::kNone) return text;
  text += fmt::format("  a sample is fetched with those of its neighbours that come within {} positions",
                      found.reach_positions);
  if (found.policy.shuffle == Shuffle::kWindow) {
    text += found.reaches_window ? ": a whole window"
                                 : ", less than a window: more --memory means fewer requests, in the same order";
  }
  return text + '\n';
}

std::string FetchText(const LoaderOptions& options, const LoaderExplanation& found) {
  const LoaderExplanation::Fetches& fetches = found.fetches;
  std::string text = fmt::format("Expected{}: {}, {} for {} of samples ({:.3f} times as much)\n",
                                 options.world > 1 ? fmt::format(" of rank {}", options.rank) : "",
                                 Counted(fetches.requests, "request"), FormatSize(fetches.bytes),
                                 FormatSize(fetches.sample_bytes), fetches.amplification());
  if (options.world > 1) {
    text += fmt::format("  all {} ranks: about {} requests, {}; on average {:.2f} ranks read from an extent\n",
                        options.world, fetches.requests * options.world, FormatSize(fetches.bytes * options.world),
                        fetches.readers);
  }
  if (fetches.estimated) text += "  (estimated from the rank's first million samples)\n";
  return text;
}

std::string MixText(const LoaderExplanation& found) {
  if (found.parts.empty()) return "";
  constexpr size_t kShown = 20;
  std::string text = fmt::format("Mix: {}, {} an epoch, draws are {}{}\n", Counted(found.parts.size(), "part"),
                                 Counted(found.samples, "sample"), DrawsName(found.draws),
                                 found.draws != Draws::kExact ? ""
                                 : found.fresh_passes         ? ", every epoch begins new passes"
                                                              : ", passes continue from epoch to epoch");
  text +=
      fmt::format("  {:>10} {:>10} {:>9} {:>9} {:>8}  data set\n", "samples", "drawn", "wanted", "achieved", "passes");
  for (size_t i = 0; i < std::min(kShown, found.parts.size()); ++i) {
    const LoaderExplanation::Part& part = found.parts[i];
    text += fmt::format("  {:>10} {:>10} {:>8.3f}% {:>8.3f}% {:>8.3f}  {}\n", part.samples, part.drawn,
                        100 * part.wanted, 100.0 * static_cast<double>(part.drawn) / static_cast<double>(found.samples),
                        part.passes(), PartTitle(part.uri, part.class_name));
  }
  if (found.parts.size() > kShown) text += fmt::format("  ... and {} more\n", found.parts.size() - kShown);
  if (found.draws != Draws::kIndependent)
    text += "  shares are rounded down or up in turn: epochs make up for each other\n";
  return text;
}

std::string HeadText(const Source& source, const LoaderExplanation& found) {
  const Subset& part = source.parts().front();
  const Index& index = part.index();
  const bool whole = found.parts.empty() && !part.selection;
  const std::string objects = Counted(index.objects(), ObjectTitle(index.kind()));
  const std::string size = FormatSize(whole ? index.total_bytes() : source.total_bytes());
  if (whole) return fmt::format("{}: {} in {}, {}\n", source.uri(), Counted(part.size(), "sample"), objects, size);
  if (found.parts.empty()) {
    return fmt::format("{}: {} of the {} in {}, {}\n", source.uri(), part.size(), Counted(index.size(), "sample"),
                       objects, size);
  }
  return fmt::format("{}: {}, {}\n", source.uri(), Counted(source.size(), Item(found)), size);
}

std::string FirstText(const Source& source, const LoaderOptions& options, const LoaderExplanation& found) {
  std::string text = fmt::format("First {}s{}:\n", Item(found), options.world > 1 ? " of this rank" : "");
  if (source.tokens() != nullptr) {
    text +=
        fmt::format("  {:>10} {:>10} {:>10}  first document: sample, key, object\n", "position", "tokens", "pieces");
  } else {
    text += fmt::format("  {:>10} {:>10} {:>10}  key, object\n", "position", "sample", "size");
  }
  for (const LoaderExplanation::Sample& sample : found.first) {
    text +=
        source.tokens() != nullptr
            ? fmt::format("  {:>10} {:>10} {:>10}  {}, ", sample.position, sample.tokens, sample.pieces, sample.sample)
            : fmt::format("  {:>10} {:>10} {:>10}  ", sample.position, sample.sample, FormatSize(sample.span.length));
    text += fmt::format("{}, {}\n", Printable(sample.key), Printable(sample.object));
  }
  return text;
}

std::string ToText(const Source& source, const LoaderOptions& options, const LoaderExplanation& found) {
  std::string text = HeadText(source, found);
  for (const std::string& sentence : found.left_out) text += fmt::format("  {}\n", Printable(sentence));
  text += RowsText(source.tokens(), found.rows) + MixText(found);
  text += OrderText(options, found);
  const bool buckets = source.tokens() != nullptr && !source.tokens()->buckets.empty();
  text += fmt::format("Batches: {}{}; rank {} of {} gets {}; {}\n", Counted(found.steps, "step"),
                      buckets ? "" : fmt::format(", of {} for each rank", Counted(options.batch, Item(found))),
                      options.rank, options.world, Counted(found.rank_samples, Item(found)), LastText(options.last));
  text += MemoryText(options, found);
  text += FetchText(options, found);
  if (const std::string warning = WarningOf(options, found); !warning.empty()) text += "  Warning: " + warning + '\n';
  return text + FirstText(source, options, found);
}

}  // namespace

absl::StatusOr<std::string> ExplainFeed(const Source& all, const LoaderOptions& options, uint64_t cache_bytes,
                                        bool json) {
  ASSIGN_OR_RETURN(const LoaderExplanation found, Explain(all, options));
  ASSIGN_OR_RETURN(const ImageSamples samples, OnlyImageSamples(all, WantedFields::Of(options)));
  const Source& source = samples.source;
  JsonObject as_json = ToJson(source, options, found);
  std::string text = ToText(source, options, found);
  if (cache_bytes > 0) {
    const uint64_t epochs = std::clamp<uint64_t>(options.epochs, 2, 5);
    ASSIGN_OR_RETURN(
        const CacheForecast forecast,
        ForecastCache(all, options,
                      {.capacity_bytes = cache_bytes, .epochs = epochs, .local_ranks = options.local_ranks}));
    as_json.Add("cache", ForecastJson(cache_bytes, forecast));
    text += ForecastText(cache_bytes, forecast);
  }
  return json ? as_json.Versioned("feed.explain") : text;
}

}  // namespace millrace::cli
