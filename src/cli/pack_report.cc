#include "cli/pack_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/counted.h"
#include "base/size.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/skipped_text.h"

namespace millrace::cli {

namespace {

constexpr size_t kMaxShown = 10;

void WarnOfIncomplete(const std::vector<std::string>& objects) {
  if (objects.empty()) return;
  const bool one = objects.size() == 1;
  PrintError(
      "millrace pack: warning: {} of the source {} damaged when {} indexed; {} samples from there on were left out:\n",
      Counted(objects.size(), "shard"), one ? "was" : "were", one ? "it was" : "they were", one ? "its" : "their");
  for (size_t i = 0; i < std::min(kMaxShown, objects.size()); ++i) PrintError("  {}\n", Printable(objects[i]));
  if (objects.size() > kMaxShown) PrintError("  and others; --json lists all\n");
}

}  // namespace

void WarnOfPack(const PackReport& report) {
  if (report.lacking_fields > 0) {
    PrintError("millrace pack: warning: {} {} one of the fields that --field names, the first of them '{}'\n",
               Counted(report.lacking_fields, "sample"), report.lacking_fields == 1 ? "lacks" : "lack",
               Printable(report.first_lacking_fields));
  }
  if (report.without_image > 0 && report.without_image < report.source_samples) {
    PrintError(
        "millrace pack: warning: {} of {} {} no image (a field such as jpg or png), the first of them '{}'. Feed will "
        "refuse them: remove or move their files, and pack again with --force\n",
        report.without_image, Counted(report.source_samples, "sample"), report.without_image == 1 ? "has" : "have",
        Printable(report.first_without_image));
  }
  WarnOfIncomplete(report.incomplete_objects);
  if (report.skipped.empty()) return;
  PrintError("millrace pack: warning: {} {} left out:\n", Counted(report.skipped.size(), "sample"),
             report.skipped.size() == 1 ? "was" : "were");
  for (size_t i = 0; i < std::min(kMaxShown, report.skipped.size()); ++i)
    PrintError("  {}: {}\n", Printable(report.skipped[i].key), Printable(report.skipped[i].why));
  if (report.skipped.size() > kMaxShown) PrintError("  and others; --json lists all\n");
}

std::string PackReportJson(const PackResult& result, double seconds) {
  const PackReport& report = result.report;
  JsonArray skipped;
  for (const SkippedSample& sample : report.skipped) skipped.Add(JsonObject{{"key", sample.key}, {"why", sample.why}});
  JsonObject line = JSON_OF(report.samples, report.shards, Named("bytes", report.shard_bytes), report.index_bytes,
                            report.complete, Named("missing_shards", report.missing),
                            Named("kept_shards", report.shards_kept), report.already_packed, seconds);
  line.Add("skipped", skipped).Add("incomplete_objects", report.incomplete_objects);
  line.Add("left_out", JsonObject{{"samples", result.left_out.samples}, {"why", result.left_out.sentence}});
  return line.Add("passed_over", SkippedJson(result.passed_over)).Versioned("pack");
}

std::string PackReportText(const PackReport& report, std::string_view part, std::string_view destination,
                           double seconds) {
  const std::string samples = Counted(report.samples, "sample");
  const std::string shards = Counted(report.shards, "shard");
  if (report.already_packed) {
    return fmt::format("already packed: {} in {}, {}; nothing to do\n", samples, shards,
                       FormatSize(report.shard_bytes));
  }
  std::string text =
      fmt::format("packed {} into {}, {}, in {:.1f} s", samples, shards, FormatSize(report.shard_bytes), seconds);
  if (report.shards_kept == 0) {
    text += fmt::format(" ({}/s)", FormatSize(static_cast<uint64_t>(static_cast<double>(report.shard_bytes) /
                                                                    std::max(seconds, 1e-3))));
  } else {
    text += fmt::format("; {} of the shards {} there from an earlier run", report.shards_kept,
                        report.shards_kept == 1 ? "was" : "were");
  }
  if (!report.complete) {
    text += fmt::format("; this was part {}; {} of other parts {} missing, and the last part to end completes {}", part,
                        Counted(report.missing, "shard"), report.missing == 1 ? "is" : "are", destination);
  }
  return text + '\n';
}

}  // namespace millrace::cli
