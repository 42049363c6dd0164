#include "pack/pack_job.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/crypto.h"

namespace millrace {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

}  // namespace

std::string PackJob::ToJson() const {
  const Json json{{"version", kVersion}, {"source_uri", source_uri}, {"source", source},
                  {"samples", samples},  {"format", format},         {"shard_bytes", shard_bytes},
                  {"order", order},      {"classes", classes},       {"shards", shards}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';  // names may be no UTF-8
}

absl::StatusOr<PackJob> PackJob::FromJson(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  PackJob job;
  const auto take = [&json](const char* name, auto* into) {
    using Value = std::remove_pointer_t<decltype(into)>;
    constexpr bool kText = std::is_same_v<Value, std::string>;
    const auto found = json.find(name);
    if (found == json.end() || !(kText ? found->is_string() : found->is_number_unsigned())) return false;
    *into = found->template get<Value>();
    return true;
  };
  uint64_t version = 0;
  const bool whole = json.is_object() && take("version", &version) && version == kVersion &&
                     take("source_uri", &job.source_uri) && take("source", &job.source) &&
                     take("samples", &job.samples) && take("format", &job.format) &&
                     take("shard_bytes", &job.shard_bytes) && take("order", &job.order) &&
                     take("classes", &job.classes) && take("shards", &job.shards);
  if (!whole) return absl::InvalidArgumentError("does not say what is being packed, or in words of another version");
  return job;
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
  if (begun.shard_bytes != asked.shard_bytes)
    return differs("--shard-size", fmt::format("{} bytes", begun.shard_bytes), fmt::format("{}", asked.shard_bytes));
  if (begun.order != asked.order) return differs("the order", begun.order, asked.order);
  if (begun.classes != asked.classes) return "the class map is another one";
  if (begun.Id() != asked.Id()) return "it was begun by another version of Millrace";
  return "";
}

}  // namespace millrace
