#include "cli/feed_tokens.h"

#include <fmt/format.h>

#include <vector>

#include "absl/strings/str_split.h"
#include "base/counted.h"
#include "base/number.h"

namespace millrace::cli {

namespace {

bool ParseBuckets(std::string_view text, std::vector<TokenOptions::Bucket>* buckets) {
  for (const absl::string_view piece : absl::StrSplit(ToAbsl(text), ',')) {
    const std::string_view part = ToStd(piece);
    TokenOptions::Bucket& bucket = buckets->emplace_back();
    const size_t times = part.find('x');
    if (times == std::string_view::npos || !ParseNumber(part.substr(0, times), &bucket.length) ||
        !ParseNumber(part.substr(times + 1), &bucket.batch)) {
      return false;
    }
  }
  return true;
}

bool ParseLayout(std::string_view name, TokenOptions* options) {
  for (const RowLayout layout : {RowLayout::kPad, RowLayout::kStream, RowLayout::kPack}) {
    if (name != RowLayoutName(layout)) continue;
    options->layout = layout;
    return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<TokenOptions> ParseTokens(std::string_view text) {
  const auto wrong = [text] {
    return absl::InvalidArgumentError(fmt::format(
        "--tokens: \"{}\" is neither LENGTH[:LAYOUT[:OPTION]] with the layouts pack (usual), pad and stream, nor "
        "LENGTHxBATCH,LENGTHxBATCH,...:bucket. The options are documents (stream), and split, truncate or "
        "refuse for long documents (pad, pack, bucket)",
        text));
  };
  TokenOptions options;
  options.documents = false;
  const std::vector<std::string> parts = absl::StrSplit(ToAbsl(text), ':');
  const bool bucket = parts.size() > 1 && parts[1] == "bucket";
  if (bucket) {
    options.layout = RowLayout::kPad;
    if (!ParseBuckets(parts.front(), &options.buckets)) return wrong();
  } else {
    if (!ParseNumber(parts.front(), &options.length)) return wrong();
    if (parts.size() > 1 && !ParseLayout(parts[1], &options)) return wrong();
  }
  if (parts.size() > 3) return wrong();
  if (parts.size() == 3) {
    const bool stream = options.layout == RowLayout::kStream;
    if (stream != (parts[2] == "documents")) return wrong();
    options.documents = stream;
    if (!stream) {
      const absl::StatusOr<LongSamples> longer = ParseLongSamples(parts[2]);
      if (!longer.ok()) return wrong();
      options.longer = *longer;
    }
  }
  const absl::Status sound = options.Check();
  if (!sound.ok()) return Annotate(sound, "--tokens");
  return options;
}

std::string RowsText(const TokenOptions* tokens, const std::vector<LoaderExplanation::Rows>& rows) {
  if (tokens == nullptr) return "";
  constexpr size_t kShown = 20;
  const bool buckets = !tokens->buckets.empty();
  std::string text =
      fmt::format("Rows: {}, {:.3f} % of their places are padding\n",
                  buckets ? "buckets by length" : std::string(RowLayoutName(tokens->layout)), 100 * PaddingOf(rows));
  for (size_t i = 0; i < std::min(kShown, rows.size()); ++i) {
    const LoaderExplanation::Rows& each = rows[i];
    const RowCounts& counts = each.counts;
    text += fmt::format("  {} of {} with {} of {} of the {}, {:.3f} % padding", Counted(counts.rows, "row"),
                        Counted(each.length, "token"), Counted(counts.tokens, "token"), counts.samples,
                        Counted(each.documents, "document"), 100 * (1 - counts.Fill(each.length)));
    if (buckets && each.steps > 0)
      text += fmt::format("; {} of {}", Counted(each.steps, "step"), Counted(each.batch, "row"));
    text += '\n';
  }
  if (rows.size() > kShown) text += fmt::format("  ... and {} more\n", rows.size() - kShown);
  uint64_t truncated = 0;
  uint64_t empty = 0;
  for (const LoaderExplanation::Rows& each : rows) {
    truncated += each.counts.truncated;
    empty += each.counts.empty;
    if (buckets) break;  // each of their tables counts those of all documents
  }
  if (truncated > 0)
    text += fmt::format("  {} of documents that are longer than a row are left out\n", Counted(truncated, "token"));
  if (empty > 0) text += fmt::format("  {} without tokens: in no row\n", Counted(empty, "document"));
  return text;
}

JsonObject RowsJson(const TokenOptions& tokens, const std::vector<LoaderExplanation::Rows>& rows) {
  JsonArray tables;
  for (const LoaderExplanation::Rows& each : rows) {
    const RowCounts& counts = each.counts;
    tables.Add(JSON_OF(each.length, counts.rows, counts.tokens, Named("pieces", counts.segments),
                       Named("documents", counts.samples), Named("fill", counts.Fill(each.length)), counts.truncated,
                       counts.empty, each.batch, each.steps, each.uri));
  }
  return {{"layout", tokens.buckets.empty() ? RowLayoutName(tokens.layout) : "bucket"},
          {"long", LongSamplesName(tokens.longer)},
          {"padding", PaddingOf(rows)},
          {"tables", tables}};
}

}  // namespace millrace::cli
