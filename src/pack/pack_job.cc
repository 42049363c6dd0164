#include "pack/pack_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/counted.h"
#include "base/crypto.h"
#include "base/json_members.h"
#include "base/size.h"

namespace millrace {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';  // names may be no UTF-8
}

Json ToValue(const PackJob& job) {
  Json value = {{"version", kVersion},    {"source_uri", job.source_uri}, {"source", job.source},
                {"samples", job.samples}, {"format", job.format},         {"shard_bytes", job.shard_bytes},
                {"order", job.order},     {"classes", job.classes},       {"fields", job.fields},
                {"shards", job.shards}};
  // Versions that could not do these have no such members.
  if (!job.images.empty()) value["images"] = job.images;
  if (!job.keys.empty()) value["keys"] = job.keys;
  return value;
}

bool FromValue(const Json& json, PackJob* job) {
  uint64_t version = 0;
  JsonMembers members(json);
  members.Take("version", &version)
      .Take("source_uri", &job->source_uri)
      .Take("source", &job->source)
      .Take("samples", &job->samples)
      .Take("format", &job->format)
      .Take("shard_bytes", &job->shard_bytes)
      .Take("order", &job->order)
      .Take("classes", &job->classes)
      .Take("fields", &job->fields)
      .Take("shards", &job->shards);
  if (members.whole() && json.contains("images")) members.Take("images", &job->images);
  if (members.whole() && json.contains("keys")) members.Take("keys", &job->keys);
  return members.whole() && version == kVersion;
}

absl::Status Refused() {
  return absl::InvalidArgumentError("does not say what is being packed, or in words of another version");
}

}  // namespace

std::string ImagesOf(const ImageChange& images) {
  std::string words;
  if (images.shorter_side > 0) words = fmt::format("resized to {} at quality {}", images.shorter_side, images.quality);
  if (images.jpeg_tiles) words += words.empty() ? "tiled" : " and tiled";
  return words;
}

std::string KeysOf(DataKind format) {
  return format == DataKind::kTar ? "escaped" : "";
}

std::string PackJob::ToJson() const {
  return Dump(ToValue(*this));
}

absl::StatusOr<PackJob> PackJob::FromJson(std::string_view text) {
  PackJob job;
  if (!FromValue(Json::parse(text, nullptr, /*allow_exceptions=*/false), &job)) return Refused();
  return job;
}

std::string PackRecord::ToJson() const {
  Json json = ToValue(job);
  json["done"] = {{"shards", shards}, {"samples", samples}, {"skipped", skipped}, {"index_bytes", index_bytes}};
  return Dump(json);
}

absl::StatusOr<PackRecord> PackRecord::FromJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  PackRecord record;
  if (!FromValue(json, &record.job) || !json.contains("done")) return Refused();
  JsonMembers done(json["done"]);
  done.Take("shards", &record.shards)
      .Take("samples", &record.samples)
      .Take("skipped", &record.skipped)
      .Take("index_bytes", &record.index_bytes);
  if (!done.whole()) return Refused();
  return record;
}

std::string SkippedToJsonLines(const std::vector<SkippedSample>& skipped) {
  std::string lines;
  for (const SkippedSample& sample : skipped) lines += Dump({{"key", sample.key}, {"why", sample.why}});
  return lines;
}

std::string IncompleteToJsonLines(const std::vector<std::string>& objects) {
  constexpr std::string_view kWhy = "was damaged when it was indexed: its samples from there on are left out";
  std::string lines;
  for (const std::string& object : objects) lines += Dump({{"object", object}, {"why", kWhy}});
  return lines;
}

absl::StatusOr<std::vector<SkippedSample>> SkippedFromJsonLines(std::string_view lines) {
  std::vector<SkippedSample> skipped;
  for (uint64_t number = 1; !lines.empty(); ++number) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    SkippedSample sample;
    std::string object;
    if (JsonMembers(json).Take("object", &object).Take("why", &sample.why).whole()) continue;
    if (!JsonMembers(json).Take("key", &sample.key).Take("why", &sample.why).whole())
      return absl::InvalidArgumentError(fmt::format("line {} names no sample that was left out", number));
    skipped.push_back(std::move(sample));
  }
  return skipped;
}

uint64_t PackJob::Id() const {
  PackJob same = *this;
  same.source_uri.clear();
  return Xxh3(AsBytes(same.ToJson()));
}

std::string Difference(const PackJob& begun, const PackJob& asked) {
  const auto differs = [](std::string_view what, std::string_view there, std::string_view here) {
    return fmt::format("{} is {} there and {} now", what, there, here);
  };
  if (begun.source != asked.source && begun.source_uri != asked.source_uri)
    return differs("the source", begun.source_uri, asked.source_uri);
  if (begun.source != asked.source) return fmt::format("the objects of {} have changed since", asked.source_uri);
  if (begun.format != asked.format) return differs("--format", begun.format, asked.format);
  if (begun.shard_bytes != asked.shard_bytes) {
    const std::string there = FormatSize(begun.shard_bytes);
    const std::string here = FormatSize(asked.shard_bytes);
    if (there != here) return differs("--shard-size", there, here);
    return differs("--shard-size", Counted(begun.shard_bytes, "byte"), Counted(asked.shard_bytes, "byte"));
  }
  if (begun.order != asked.order) return differs("the order", begun.order, asked.order);
  if (begun.classes != asked.classes) return "the class map is another one";
  if (begun.fields != asked.fields) return "the chosen fields (--field) are others";
  if (begun.images != asked.images) {
    const auto word = [](const std::string& images) {
      return images.empty() ? std::string("kept as they are") : images;
    };
    return fmt::format("images are {} there and {} now (--resize, --quality, --jpeg-tiles)", word(begun.images),
                       word(asked.images));
  }
  if (begun.keys != asked.keys) return "it was begun by another version of Millrace, which wrote keys in another way";
  const auto number = [&](std::string_view what, uint64_t there, uint64_t here) {
    return differs(fmt::format("the number of {}", what), fmt::format("{}", there), fmt::format("{}", here));
  };
  if (begun.samples != asked.samples) return number("samples in the source", begun.samples, asked.samples);
  if (begun.shards != asked.shards)
    return number("shards", begun.shards, asked.shards) + ": it was begun by another version of Millrace";
  if (begun.Id() != asked.Id()) return "it was begun by another version of Millrace";
  return "";
}

}  // namespace millrace
