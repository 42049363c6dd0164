// Takes any bytes as each document of the instance metadata service: there is no crash, and people and programs get
// plain text.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "supervisor/notice.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto check = [](const Notice& notice) {
    const std::string text = NoticeText(notice);
    const auto plain = [](char c) { return c >= ' ' && c <= '~'; };
    if (!std::all_of(text.begin(), text.end(), plain) || text.size() > 200) std::abort();
  };
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto notice = ParseInstanceAction(text); notice.ok()) check(*notice);
  if (const auto notice = ParseRebalance(text); notice.ok()) check(*notice);
  if (const auto notice = ParseMaintenance(text, absl::UnixEpoch()); notice.ok() && *notice) check(**notice);
  if (const auto notice = ParseTargetState(text)) check(*notice);
  return 0;
}
