#include "compile_cache/cache_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_members.h"
#include "base/number.h"
#include "base/utf8.h"

namespace millrace {

namespace {

using CacheJson = nlohmann::ordered_json;

constexpr const char* kCacheFormat = "millrace-compile-cache";
constexpr uint64_t kCacheVersion = 1;
constexpr size_t kSha256Digits = 64;

bool TakeFile(const CacheJson& json, CachedFile* file) {
  return JsonMembers(json)
             .Take("path", &file->path)
             .Take("bytes", &file->bytes)
             .Take("sha256", &file->sha256)
             .TakeCrc("crc32c", &file->crc32c)
             .Take("stored_ms", &file->stored_ms)
             .whole() &&
         IsCachePath(file->path) && file->sha256.size() == kSha256Digits && IsLowerHex(file->sha256);
}

bool TakeLease(const CacheJson& json, CompileLease* lease) {
  return JsonMembers(json)
      .Take("holder", &lease->holder)
      .Take("host", &lease->host)
      .Take("renewals", &lease->renewals)
      .Take("term_ms", &lease->term_ms)
      .whole();
}

}  // namespace

const CachedFile* CacheRecord::Find(std::string_view path) const {
  const auto found =
      std::lower_bound(files.begin(), files.end(), path,
                       [](const CachedFile& file, std::string_view wanted) { return file.path < wanted; });
  return found != files.end() && found->path == path ? &*found : nullptr;
}

uint64_t CacheRecord::Bytes() const {
  uint64_t bytes = 0;
  for (const CachedFile& file : files) bytes += file.bytes;
  return bytes;
}

std::string CacheRecord::ToJson() const {
  CacheJson list = CacheJson::array();
  for (const CachedFile& file : files) {
    list.push_back({{"path", file.path},
                    {"bytes", file.bytes},
                    {"sha256", file.sha256},
                    {"crc32c", fmt::format("{:08x}", file.crc32c)},
                    {"stored_ms", file.stored_ms}});
  }
  CacheJson json = {
      {"format", kCacheFormat}, {"version", kCacheVersion}, {"about", about}, {"publications", publications}};
  json["lease"] = nullptr;
  if (lease) {
    json["lease"] = {
        {"holder", lease->holder}, {"host", lease->host}, {"renewals", lease->renewals}, {"term_ms", lease->term_ms}};
  }
  json["files"] = std::move(list);
  return json.dump(1, ' ', false, CacheJson::error_handler_t::replace) + '\n';
}

absl::StatusOr<CacheRecord> CacheRecord::FromJson(std::string_view text) {
  const CacheJson json = CacheJson::parse(text, nullptr, /*allow_exceptions=*/false);
  std::string format;
  uint64_t version = 0;
  if (!JsonMembers(json).Take("format", &format).Take("version", &version).whole() || format != kCacheFormat)
    return absl::DataLossError("is damaged, or no list of a compile cache at all; remove it");
  if (version != kCacheVersion) {
    return absl::InvalidArgumentError(
        fmt::format("has version {}, and this Millrace knows version {}; use a newer one", version, kCacheVersion));
  }
  CacheRecord record;
  const absl::Status damaged = absl::DataLossError("is damaged: a member is missing or of another type; remove it");
  const auto lease = json.find("lease");
  const auto files = json.find("files");
  if (!JsonMembers(json).Take("about", &record.about).Take("publications", &record.publications).whole() ||
      lease == json.end() || files == json.end() || !files->is_array() || files->size() > kMaxCachedFiles)
    return damaged;
  if (!lease->is_null() && !TakeLease(*lease, &record.lease.emplace())) return damaged;
  for (const CacheJson& file : *files) {
    if (!TakeFile(file, &record.files.emplace_back())) return damaged;
  }
  const bool ascending =
      std::adjacent_find(record.files.begin(), record.files.end(), [](const CachedFile& a, const CachedFile& b) {
        return a.path >= b.path;
      }) == record.files.end();
  if (!ascending) return damaged;
  return record;
}

bool IsCachePath(std::string_view path) {
  constexpr size_t kMaxPath = 1000;
  if (path.size() > kMaxPath || FirstNotUtf8(path) != path.size()) return false;
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(path.begin(), path.end(), is_control)) return false;
  size_t components = 0;
  for (size_t begin = 0; begin <= path.size(); ++components) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view name = path.substr(begin, end - begin);
    if (name.empty() || name == "." || name == "..") return false;
    begin = end + 1;
  }
  return components >= 2;
}

std::string CacheGroup(std::string_view path) {
  const std::string_view parent = path.substr(0, path.rfind('/'));
  if (path.starts_with("neuron/")) {
    const size_t module = path.find("/MODULE_");
    const size_t end = module == std::string_view::npos ? module : path.find('/', module + 1);
    return std::string(end == std::string_view::npos ? path : path.substr(0, end));
  }
  // Inductor keeps kernels of Triton below a folder of its own unless TRITON_CACHE_DIR is set.
  const bool triton = path.starts_with("triton/") || path.find("/triton/") != std::string_view::npos;
  return std::string(triton && parent.find('/') != std::string_view::npos ? parent : path);
}

}  // namespace millrace
