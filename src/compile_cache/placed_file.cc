#include "compile_cache/placed_file.h"

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "compile_cache/cache_record.h"

namespace millrace {

namespace {

using GroupJson = nlohmann::ordered_json;

}  // namespace

std::optional<std::string> LocalTritonGroup(std::string_view path, const std::string& place, std::string_view text) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (CacheGroup(path) == path || !name.starts_with("__grp__")) return std::nullopt;
  GroupJson json = GroupJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  const auto children = json.find("child_paths");
  if (children == json.end() || !children->is_object()) return std::nullopt;
  const std::filesystem::path folder = std::filesystem::path(place).parent_path();
  for (const auto& [child, old_path] : children->items()) {
    if (!old_path.is_string()) return std::nullopt;
    const std::filesystem::path old(old_path.get<std::string>());
    children->at(child) = (folder / old.filename()).string();
  }
  return json.dump(-1, ' ', false, GroupJson::error_handler_t::replace);
}

void AddJaxTimeOfUse(std::string_view path, const std::string& place) {
  constexpr std::string_view kEntry = "-cache";
  const bool is_of_jax = path.starts_with("jax/") || path.starts_with("jax-");
  if (!is_of_jax || !place.ends_with(kEntry)) return;
  const std::string time_of_use = place.substr(0, place.size() - kEntry.size()) + "-atime";
  std::error_code error;
  if (std::filesystem::exists(time_of_use, error) || error) return;
  // JAX reads nanoseconds since 1970, little-endian.
  uint64_t now = static_cast<uint64_t>(UnixMilliseconds()) * 1'000'000;
  std::string bytes;
  for (int i = 0; i < 8; ++i, now >>= 8) bytes.push_back(static_cast<char>(now & 0xff));
  const auto out = AtomicFile::Create(time_of_use, time_of_use, Durability::kUnsynced);
  if (!out.ok() || !(*out)->Append(AsBytes(bytes)).ok()) return;
  (*out)->Commit(/*only_if_absent=*/true).status().IgnoreError();
}

}  // namespace millrace
