#include <cstdint>
#include <cstdlib>
#include <string>

#include "pack/pack_job.h"

// The input is a mark, a record, and a list of left-out samples. Each of them that can be read is written and read
// again, as it was.

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto job = PackJob::FromJson(text); job.ok()) {
    const auto again = PackJob::FromJson(job->ToJson());
    if (!again.ok() || again->Id() != job->Id() || !Difference(*job, *again).empty()) std::abort();
  }
  if (const auto record = PackRecord::FromJson(text); record.ok()) {
    const auto again = PackRecord::FromJson(record->ToJson());
    if (!again.ok() || again->ToJson() != record->ToJson()) std::abort();
  }
  if (const auto skipped = SkippedFromJsonLines(text); skipped.ok()) {
    const auto again = SkippedFromJsonLines(SkippedToJsonLines(*skipped));
    if (!again.ok() || again->size() != skipped->size()) std::abort();
    for (size_t i = 0; i < again->size(); ++i) {
      if ((*again)[i].key != (*skipped)[i].key || (*again)[i].why != (*skipped)[i].why) std::abort();
    }
  }
  return 0;
}
