#include "devstore/etag_overrides.h"

#include <fmt/format.h>

#include "base/crypto.h"

namespace millrace {

void ETagOverrides::Change(std::string_view subject) {
  std::lock_guard lock(mutex_);
  Override& override_ = overrides_[std::string(subject)];
  ++override_.generation;
  override_.base.clear();
  any_ = true;
}

std::string ETagOverrides::Effective(const std::string& bucket, const std::string& key, const std::string& etag) {
  if (!any_) return etag;
  std::lock_guard lock(mutex_);
  const auto found = overrides_.find(bucket + "/" + key);
  if (found == overrides_.end()) return etag;
  Override& override_ = found->second;
  if (override_.base.empty()) override_.base = etag;
  if (override_.base != etag) {  // written again since
    overrides_.erase(found);
    return etag;
  }
  const size_t dash = etag.find('-');
  return HexEncode(Md5(AsBytes(fmt::format("{} {}", etag, override_.generation)))) +
         (dash == std::string::npos ? "" : etag.substr(dash));
}

}  // namespace millrace
