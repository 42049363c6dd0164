#include "cli/feed_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/number.h"
#include "base/size.h"
#include "cli/console.h"
#include "cli/usage.h"

namespace millrace::cli {

namespace {

std::vector<std::string> Split(std::string_view list) {
  return absl::StrSplit(ToAbsl(list), ',');
}

// Returns the text before the first `separator` and the text after it; if there is none, all of it and nothing.
std::pair<std::string_view, std::string_view> Halves(std::string_view text, char separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + 1)};
}

absl::StatusOr<KeyRange> ParseSplit(const SourceFlags& flags) {
  std::vector<std::string> names;
  std::vector<double> fractions;
  for (const std::string& part : Split(flags.split)) {
    const size_t equals = part.find('=');
    double fraction = 0;
    if (equals == 0 || equals == std::string::npos || !ParseNumber(part.substr(equals + 1), &fraction)) {
      return absl::InvalidArgumentError(
          fmt::format("--split takes NAME=FRACTION,NAME=FRACTION... such as train=0.9,valid=0.1, not \"{}\"", part));
    }
    names.emplace_back(part.substr(0, equals));
    fractions.push_back(fraction);
  }
  const auto taken = std::find(names.begin(), names.end(), flags.take);
  if (taken == names.end() || std::count(names.begin(), names.end(), flags.take) > 1) {
    return absl::InvalidArgumentError(
        fmt::format("--take names one part of --split {}; \"{}\" is not one of them", flags.split, flags.take));
  }
  const absl::StatusOr<std::vector<KeyRange>> parts = SplitKeys(fractions, flags.split_seed);
  if (!parts.ok()) return Annotate(parts.status(), "--split");
  return (*parts)[static_cast<size_t>(taken - names.begin())];
}

absl::Status ParseBytes(std::string_view range, Filter* filter) {
  const auto [least, most] = Halves(range, '-');
  if (range.find('-') == std::string_view::npos)
    return absl::InvalidArgumentError("bytes=LEAST-MOST, either may be empty");
  if (!least.empty()) {
    ASSIGN_OR_RETURN(filter->min_bytes, ParseSize(least));
  }
  if (!most.empty()) {
    ASSIGN_OR_RETURN(filter->max_bytes, ParseSize(most));
  }
  if (filter->min_bytes > filter->max_bytes)
    return absl::InvalidArgumentError("no size is at least LEAST and at most MOST");
  return absl::OkStatus();
}

absl::Status ParseSamples(std::string_view list, SourceRequest* request) {
  std::vector<SourceRequest::Range> ranges;
  for (const std::string& item : Split(list)) {
    const auto [first, last] = Halves(item, '-');
    SourceRequest::Range range;
    const bool one = item.find('-') == std::string_view::npos;
    if (!ParseNumber(first, &range.first) || !ParseNumber(one ? first : last, &range.last) ||
        range.last < range.first || (!ranges.empty() && range.first <= ranges.back().last)) {
      return absl::InvalidArgumentError("samples=A-B,C,... takes numbers in ascending order, from 0");
    }
    ranges.push_back(range);
  }
  if (request->samples) return absl::InvalidArgumentError("samples= may be given once");
  request->samples = std::move(ranges);
  return absl::OkStatus();
}

absl::Status ParseCondition(std::string_view condition, SourceRequest* request) {
  const auto [what, value] = Halves(condition, '=');
  Filter filter;
  if (what == "class" && !value.empty()) {
    const std::vector<std::string> names = Split(value);
    filter.classes.emplace(names.begin(), names.end());
  } else if (what == "has" && !value.empty()) {
    filter.has = Split(value);
  } else if (what == "has-any" && !value.empty()) {
    filter.has_any = Split(value);
  } else if (what == "bytes") {
    RETURN_IF_ERROR(ParseBytes(value, &filter));
  } else if (what == "samples") {
    return ParseSamples(value, request);
  } else {
    return absl::InvalidArgumentError(
        "conditions are class=NAME,..., bytes=LEAST-MOST, has=FIELD,... and samples=A-B,...");
  }
  request->filters.push_back(std::move(filter));
  return absl::OkStatus();
}

absl::StatusOr<Mix::Stage> ParseStage(std::string_view text) {
  Mix::Stage stage;
  std::string_view list = text;
  const size_t colon = text.find(':');
  const auto wrong = [text] {
    return absl::InvalidArgumentError(fmt::format(
        "--weights takes W,W,... for the parts, or FROM:W,W,... from a count of samples on, not \"{}\"", text));
  };
  if (colon != std::string_view::npos) {
    if (!ParseNumber(text.substr(0, colon), &stage.from)) return wrong();
    list.remove_prefix(colon + 1);
  }
  std::vector<double> weights;
  for (const std::string& item : Split(list)) {
    if (!ParseNumber(item, &weights.emplace_back())) return wrong();
  }
  absl::StatusOr<std::vector<uint64_t>> scaled = MixWeights(weights);
  if (!scaled.ok()) return Annotate(scaled.status(), "--weights");
  stage.weights = *std::move(scaled);
  return stage;
}

absl::StatusOr<Subset> Narrow(Runtime& runtime, const Dataset& dataset, const SourceRequest& request) {
  Subset subset = dataset;
  std::vector<Filter> filters = request.filters;
  if (request.keys) filters.push_back({.keys = request.keys, .key_groups = request.key_groups});
  if (request.samples) {
    Selection::Builder builder(dataset.index().size());
    for (const auto& [first, last] : *request.samples) {
      if (last >= dataset.index().size()) {
        return absl::InvalidArgumentError(fmt::format("--where samples: there is no sample {} in {}, which has {}",
                                                      last, dataset.uri(), dataset.index().size()));
      }
      for (uint64_t sample = first; sample <= last; ++sample) builder.Add(sample);
    }
    filters.push_back({.samples = std::make_shared<const Selection>(std::move(builder).Finish())});
  }
  for (const Filter& filter : filters) {
    ASSIGN_OR_RETURN(subset, Where(runtime, subset, filter));
  }
  if (subset.size() == 0) {
    const bool where = request.samples || !request.filters.empty();
    const std::string_view given = !request.keys ? "--where" : where ? "--where and --split" : "--split";
    return absl::FailedPreconditionError(
        fmt::format("no sample of {} meets the conditions of {}", dataset.uri(), given));
  }
  return InLabelsFile(runtime, subset, request.missing_labels);
}

}  // namespace

bool SourceRequest::NeedsClasses() const {
  return balance ||
         std::any_of(filters.begin(), filters.end(), [](const Filter& filter) { return filter.classes.has_value(); });
}

void AddSourceOptions(Command feed, SourceFlags* flags) {
  feed.Add("uri", &flags->uris,
           "Data sets: prefixes with shards (tar, TFRecord, RecordIO, MDS) or raw objects, or what matches a URI with "
           "* ** ? [a-z] {a,b} {000..123} (in quotes); several are mixed")
      .Required();
  Option split = feed.Add("--split", &flags->split,
                          "Split into parts by a stable hash of the key, for example train=0.9,valid=0.1; see --take");
  split.Needs(feed.Add("--take", &flags->take, "The part of --split to feed").Needs(split));
  feed.Add("--split-seed", &flags->split_seed, "Seed of the split; another seed gives another split [0]")
      .Needs(split)
      .Number(0);
  feed.AddFlag("--split-groups", &flags->split_groups,
               "Samples of one key belong together (a patient's, say); else a split of many equal keys is refused")
      .Needs(split);
  feed.Add("--where", &flags->where,
           "Only samples with class=NAME,... (the folder of raw objects, the number in 'cls' of shards), "
           "bytes=LEAST-MOST, has=FIELD,... (all of these), has-any=FIELD,... or samples=A-B,...; may be repeated: all "
           "conditions hold");
  AddLabelsOptions(feed, &flags->labels, /*with_missing=*/true);
  feed.AddFlag("--balance", &flags->balance,
               "Draw equally many samples of each class (raw objects: the folder; shards: the number in 'cls')");
  feed.Add("--weights", &flags->weights,
           "Weights of the data sets, or of the balanced classes, for example 3,1; with 100000:1,1 from that global "
           "count of samples on (may be repeated) [their sizes; equal classes]");
  feed.Add("--epoch-samples", &flags->epoch_samples, "Samples of an epoch of a mix [all its samples]").Number(1);
  feed.Add("--draws", &flags->draws,
           "How a mix draws: with exact counts; with replacement within its parts; or every draw independently [exact]")
      .Words({"exact", "replacement", "independent"});
}

std::string PartTitle(std::string_view uri, std::string_view class_name) {
  return class_name.empty() ? std::string(uri) : fmt::format("{}, class {}", uri, Printable(class_name));
}

absl::StatusOr<SourceRequest> ParseSource(const SourceFlags& flags) {
  SourceRequest request;
  if (!flags.split.empty()) {
    ASSIGN_OR_RETURN(request.keys, ParseSplit(flags));
    request.key_groups = flags.split_groups;
  }
  for (const std::string& condition : flags.where) {
    const absl::Status status = ParseCondition(condition, &request);
    if (!status.ok()) return Annotate(status, fmt::format("--where {}", condition));
  }
  request.missing_labels = flags.labels.missing_labels();
  if (!flags.labels.uri.empty() && flags.uris.size() > 1)
    return absl::InvalidArgumentError("--labels are those of one data set; give one URI");
  request.balance = flags.balance;
  if (flags.balance && flags.uris.size() > 1) {
    return absl::InvalidArgumentError("--balance balances the classes of one data set; give one URI");
  }
  const bool is_mix = flags.balance || flags.uris.size() > 1;
  if (!is_mix && (!flags.weights.empty() || flags.epoch_samples != 0 || flags.draws != "exact")) {
    return absl::InvalidArgumentError(
        "--weights, --epoch-samples and --draws are for a mix: give several URIs, or --balance");
  }
  if (!is_mix) return request;
  MixOptions mix;
  for (const std::string& text : flags.weights) {
    ASSIGN_OR_RETURN(mix.stages.emplace_back(), ParseStage(text));
    if (!flags.balance && mix.stages.back().weights.size() != flags.uris.size()) {
      return absl::InvalidArgumentError(fmt::format("--weights {} has {} weights for {} data sets", text,
                                                    mix.stages.back().weights.size(), flags.uris.size()));
    }
  }
  mix.length = flags.epoch_samples;
  ASSIGN_OR_RETURN(mix.draws, ParseDraws(flags.draws));
  mix.fresh_passes = flags.balance;
  request.mix = std::move(mix);
  return request;
}

absl::StatusOr<FeedSource> MakeSource(Runtime& runtime, const std::vector<std::unique_ptr<Dataset>>& datasets,
                                      const SourceRequest& request) {
  std::vector<Subset> parts;
  for (const std::unique_ptr<Dataset>& dataset : datasets) {
    ASSIGN_OR_RETURN(const Subset subset, Narrow(runtime, *dataset, request));
    parts.push_back(subset);
  }
  FeedSource result{Source(parts), request.mix};
  if (!request.balance) return result;
  ASSIGN_OR_RETURN(parts, ByClass(runtime, parts.front()));
  result.source = Source(parts);
  if (!result.mix->stages.empty()) return result;
  Mix::Stage equal;
  for (const Subset& part : parts) equal.weights.push_back(part.size() > 0 ? 1 : 0);
  result.mix->stages.push_back(std::move(equal));
  return result;
}

}  // namespace millrace::cli
