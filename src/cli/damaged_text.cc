#include "cli/damaged_text.h"

#include <fmt/format.h>

#include "base/counted.h"

namespace millrace::cli {

std::string DamagedText(const DamagedSamples& damaged, const std::string& uri) {
  const QuarantinedSample& first = *damaged.first();
  return fmt::format(
      "{}, whose places others took; the first: {}: {}. `millrace inspect '{}' --decode all` lists them.",
      Counted(damaged.count(), "sample"), first.uri, first.reason, uri);
}

void AddDamaged(const DamagedSamples& damaged, JsonObject* json) {
  json->Add("bad_samples", uint64_t{damaged.count()});
  const std::optional<QuarantinedSample>& first = damaged.first();
  json->Add("first_bad_sample", first ? Json(JSON_OF(Named("sample", first->uri), first->reason)) : Json(nullptr));
}

}  // namespace millrace::cli
