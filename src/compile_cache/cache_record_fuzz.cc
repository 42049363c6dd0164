// Takes any bytes as the record of a compile cache: there is no crash. Paths of an accepted record lead nowhere but
// below the folders of the compilers, and it stays the same when it is written and read again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "compile_cache/cache_folders.h"
#include "compile_cache/cache_record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto require = [](bool condition) {
    if (!condition) std::abort();
  };
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<CacheRecord> record = CacheRecord::FromJson(text);
  if (!record.ok()) return 0;
  for (const CachedFile& file : record->files) {
    require(file.path.find("/../") == std::string::npos && !file.path.starts_with('/'));
    require(file.sha256.find('/') == std::string::npos && !file.sha256.empty());
    require(file.path.starts_with(CacheGroup(file.path)));
    const std::string place = PlaceOfCachedFile({{.name = "jax", .path = "/c"}}, file.path);
    require(place.empty() || place.starts_with("/c/"));
    require(record->Find(file.path) == &file);
  }
  const absl::StatusOr<CacheRecord> again = CacheRecord::FromJson(record->ToJson());
  require(again.ok() && again->ToJson() == record->ToJson() && again->files == record->files);
  return 0;
}
