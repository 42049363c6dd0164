#include "diagnose/advise_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/counted.h"

namespace millrace {

namespace {

struct ModeAction {
  std::string_view mode;
  std::string_view action;
};
constexpr ModeAction kModeActions[] = {
    {"file", "copy everything to the disk of the machine first (File mode, `millrace run --channel`)"},
    {"fastfile", "read files from a mount when the training opens them (FastFile mode, `millrace mount`)"},
    {"mount-cache", "read through a mount that keeps files on the disk (`millrace mount --cache`)"},
    {"efs", "read from EFS"},
    {"streaming", "stream from the store (`millrace.Loader`)"},
    {"streaming-cache", "stream from the store, and keep it on the disk (`millrace.Loader(cache=)`)"},
};

std::string DoText(const AdviceAnswer& answer) {
  const auto* const found = std::ranges::find(kModeActions, answer.chosen.mode, &ModeAction::mode);
  std::string text = fmt::format("Do: {}.", found != std::end(kModeActions) ? found->action : answer.chosen.title);
  if (!answer.equal.empty() && answer.other.empty())
    text += " How the data are read makes no difference to the time, so any other way will do, too.";
  return text;
}

std::string CostText(const CostPrediction& one, const Advice& advice, const AdviseSettings& settings) {
  const std::string epochs = Counted(settings.epochs, "epoch");
  const std::string storage =
      fmt::format("Storing the data costs {} a month.",
                  DollarText(StorageDollarsPerMonth(static_cast<double>(advice.data.object_bytes), settings.prices)));
  std::string requests = fmt::format("{} of requests", DollarText(one.request_dollars));
  if (one.other_dollars > 0) requests += fmt::format(", and {} for the file system", DollarText(one.other_dollars));
  if (advice.inputs.dollars_per_hour <= 0) {
    return fmt::format("Cost: {} for {}, beside the machine, whose price is not known ({}). {}", requests, epochs,
                       settings.machine ? "--prices FILE" : "--machine", storage);
  }
  return fmt::format("Cost: {} for {}: {} for {} at {} an hour, and {}. {}", DollarText(one.dollars()), epochs,
                     DollarText(one.machine_dollars), settings.machine->name,
                     DollarText(advice.inputs.dollars_per_hour), requests, storage);
}

std::string WholeTimeText(const CostPrediction& one, const CostInputs& in) {
  const double model = ModelSeconds(in);
  const std::string first = TimeText(one.epoch_seconds);
  const std::string later = in.epochs > 1 ? TimeText(one.later_epoch_seconds) : first;
  return fmt::format("Time: {} for {}: the first batch after {}, then {}, {}.", TimeText(one.total_seconds(in.epochs)),
                     Counted(in.epochs, "epoch"), TimeText(one.startup_seconds),
                     first == later ? fmt::format("{} for each epoch", later)
                                    : fmt::format("{} for the first epoch and {} for each later one", first, later),
                     model > 0 ? fmt::format("in which the model takes {}", TimeText(model))
                               : "without the time of the model (--step-ms)");
}

std::string OtherText(const AdviceAnswer& answer, const CostInputs& in) {
  std::string text = "Otherwise:";
  for (size_t i = 0; i < answer.equal.size(); ++i)
    text += fmt::format("{} {}", i == 0 ? " no difference to" : " or", answer.equal[i].title);
  const double least = answer.chosen.total_seconds(in.epochs);
  for (size_t i = 0; i < std::min<size_t>(2, answer.other.size()); ++i) {
    const CostPrediction& one = answer.other[i];
    text += fmt::format("{} {} takes {}", text.ends_with(':') ? "" : ";", one.title,
                        TimeText(one.total_seconds(in.epochs)));
    if (least > 0) text += fmt::format(" (+{:.0f} %)", 100 * (one.total_seconds(in.epochs) / least - 1));
    if (in.dollars_per_hour > 0) text += fmt::format(" and costs {}", DollarText(one.dollars()));
  }
  return text + (text.ends_with(':') ? " nothing to compare." : ".");
}

std::string LimitText(const Advice& advice) {
  const CostInputs& in = advice.inputs;
  const std::pair<double, std::string_view> parts[] = {
      {ModelSeconds(in), "the model; reading and decoding keep up with it"},
      {in.vcpus > 0 ? in.cpu_seconds_per_sample * static_cast<double>(in.samples) / in.vcpus : 0,
       "the CPUs, which decode; more vCPUs or smaller images make it faster"},
      {in.stream_bytes_per_second > 0 ? static_cast<double>(in.stream_bytes) / in.stream_bytes_per_second : 0,
       "the store and the network, which bring the bytes"}};
  const auto& most = *std::ranges::max_element(parts, {}, [](const auto& part) { return part.first; });
  return fmt::format("Limit: {} (by the arithmetic, {} of an epoch).", most.second, TimeText(most.first));
}

}  // namespace

std::string TimeText(double seconds) {
  if (seconds < 60) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<uint64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  const uint64_t minutes = whole / 60;
  if (minutes < 48 * 60) return fmt::format("{} h {} min", minutes / 60, minutes % 60);
  return fmt::format("{} d {} h", minutes / 1440, minutes % 1440 / 60);
}

AdviceAnswer AnswerOf(const std::vector<CostPrediction>& predictions, const CostInputs& inputs) {
  std::vector<CostPrediction> ways = ComparableOf(predictions, inputs);
  std::ranges::stable_sort(ways, {}, [&inputs](const CostPrediction& one) { return one.total_seconds(inputs.epochs); });
  AdviceAnswer answer;
  answer.chosen = ways.front();
  const double most = answer.chosen.total_seconds(inputs.epochs) * (1 + kNoDifference);
  for (size_t i = 1; i < ways.size(); ++i)
    (ways[i].total_seconds(inputs.epochs) <= most ? answer.equal : answer.other).push_back(std::move(ways[i]));
  return answer;
}

std::vector<std::string> AnswerLines(const Advice& advice, const AdviseSettings& settings) {
  const AdviceAnswer answer = AnswerOf(advice.predictions, advice.inputs);
  return {DoText(answer), CostText(answer.chosen, advice, settings), WholeTimeText(answer.chosen, advice.inputs),
          OtherText(answer, advice.inputs), LimitText(advice)};
}

}  // namespace millrace
