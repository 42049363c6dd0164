#include "diagnose/advise_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>

#include "base/counted.h"

namespace millrace {

namespace {

struct ModeAction {
  std::string_view mode;
  std::string_view action;
};
/// The simplest comes first: those that need no disk and no mount.
constexpr ModeAction kModeActions[] = {
    {"streaming", "stream from the store (`millrace.Loader`)"},
    {"efs", "read from EFS"},
    {"streaming-cache", "stream from the store, and keep it on the disk (`millrace.Loader(cache=)`)"},
    {"fastfile", "read files from a mount when the training opens them (FastFile mode, `millrace mount`)"},
    {"mount-cache", "read through a mount that keeps files on the disk (`millrace mount --cache`)"},
    {"file", "copy everything to the disk of the machine first (File mode, `millrace run --channel`)"},
};

const ModeAction* ActionOf(const std::string& mode) {
  return std::ranges::find(kModeActions, mode, &ModeAction::mode);
}

std::string DoText(const AdviceAnswer& answer, const CostInputs& in) {
  if (in.in_folder && answer.chosen.mode == "streaming") {
    return "Do: read the folder as it is (`millrace.Loader`). The data are on this machine already, so nothing has to "
           "be copied.";
  }
  const ModeAction* const found = ActionOf(answer.chosen.mode);
  std::string text = fmt::format("Do: {}.", found != std::end(kModeActions) ? found->action : answer.chosen.title);
  if (!answer.equal.empty() && answer.other.empty())
    text += " How the data are read makes no difference to the time, so any other way will do, too.";
  return text;
}

std::string AmountText(double dollars) {
  return dollars < kCent ? "under a cent" : DollarText(dollars);
}

/// Returns the dates of the prices that a cost is made of.
std::string DatesText(const MachinePrice* machine, bool store, const PriceList& prices) {
  const std::string of_machine = machine != nullptr ? machine->date : "";
  if (of_machine.empty() && !store) return "";
  if (!store) return fmt::format(" The price is of {}.", of_machine);
  if (of_machine.empty() || of_machine == prices.date) return fmt::format(" The prices are of {}.", prices.date);
  return fmt::format(" The price of the machine is of {}, the others of {}.", of_machine, prices.date);
}

std::string CostText(const CostPrediction& one, const Advice& advice, const AdviseSettings& settings) {
  const CostInputs& in = advice.inputs;
  const std::string epochs = Counted(in.epochs, "epoch");
  const double month = StorageDollarsPerMonth(static_cast<double>(advice.data.object_bytes), settings.prices);
  const bool stored = !in.in_folder && month >= kCent;
  const std::string storage = stored ? fmt::format(" Storing the data costs {} a month.", DollarText(month)) : "";
  const bool priced = in.dollars_per_hour > 0 && settings.machine;
  const std::string dates = DatesText(priced ? &*settings.machine : nullptr, !in.in_folder, settings.prices);
  std::string requests = in.in_folder ? "" : fmt::format("{} of requests", AmountText(one.request_dollars));
  if (one.other_dollars > 0) {
    requests +=
        fmt::format("{}{} for the file system", requests.empty() ? "" : ", and ", AmountText(one.other_dollars));
  }
  if (!priced) {
    const std::string machine =
        fmt::format("{} of the machine, whose price is not known ({})", RoundTimeText(one.total_seconds(in.epochs)),
                    settings.machine ? "--prices FILE" : "--machine");
    return fmt::format("Cost: {}{}{}, for {}.{}{}", requests, requests.empty() ? "" : ", and ", machine, epochs,
                       storage, dates);
  }
  const std::string machine =
      fmt::format("for {} at {} an hour", settings.machine->name, DollarText(in.dollars_per_hour));
  if (one.dollars() < kCent) {
    return fmt::format("Cost: under a cent for {}{}, {}.{}{}", epochs, in.in_folder ? "" : ", requests included",
                       machine, storage, dates);
  }
  return fmt::format("Cost: {} for {}: {} {}{}.{}{}", DollarText(one.dollars()), epochs,
                     AmountText(one.machine_dollars), machine, requests.empty() ? "" : ", and " + requests, storage,
                     dates);
}

std::string WholeTimeText(const CostPrediction& one, const CostInputs& in) {
  const double model = ModelSeconds(in);
  const std::string of_model = model > 0 ? fmt::format("in which the model takes {}", RoundTimeText(model))
                                         : "without the time of the model (--step-ms)";
  const double total = one.total_seconds(in.epochs);
  const std::string whole = fmt::format("Time: {} for {}", RoundTimeText(total), Counted(in.epochs, "epoch"));
  if (total < 1) return fmt::format("{}, {}.", whole, of_model);
  const std::string first = RoundTimeText(one.epoch_seconds);
  const std::string later = in.epochs > 1 ? RoundTimeText(one.later_epoch_seconds) : first;
  return fmt::format("{}: the first batch after {}, then {}, {}.", whole, RoundTimeText(one.startup_seconds),
                     first == later ? fmt::format("{} for each epoch", later)
                                    : fmt::format("{} for the first epoch and {} for each later one", first, later),
                     of_model);
}

/// " (+36 %)", or how many times as long.
std::string LongerText(double seconds, double least) {
  constexpr double kTimes = 3;
  if (least <= 0) return "";
  return seconds < kTimes * least ? fmt::format(" (+{:.0f} %)", 100 * (seconds / least - 1))
                                  : fmt::format(" ({:.0f} times as long)", seconds / least);
}

/// Returns two of those that take longer: the next best, and the cheapest if that is cheaper than what is chosen.
std::vector<CostPrediction> ShownOf(const AdviceAnswer& answer) {
  std::vector<CostPrediction> shown(answer.other.begin(),
                                    answer.other.begin() + std::min<ptrdiff_t>(2, std::ssize(answer.other)));
  if (shown.size() < 2) return shown;
  const CostPrediction& cheapest = *std::ranges::min_element(answer.other, {}, &CostPrediction::dollars);
  if (cheapest.dollars() + kCent <= std::min({answer.chosen.dollars(), shown[0].dollars(), shown[1].dollars()}))
    shown[1] = cheapest;
  return shown;
}

std::string OtherText(const AdviceAnswer& answer, const CostInputs& in) {
  if (in.in_folder && answer.equal.empty() && answer.other.empty())
    return "Otherwise: nothing to compare; a copy, a mount or a cache brings nothing, since the data are here.";
  const bool priced = in.dollars_per_hour > 0;
  const std::string what = priced ? "" : " of requests";
  std::string text = "Otherwise:";
  for (size_t i = 0; i < answer.equal.size(); ++i) {
    const CostPrediction& one = answer.equal[i];
    text += fmt::format("{} {}", i == 0 ? " no difference in time to" : " or", one.title);
    if (one.dollars() >= kCent) text += fmt::format(" ({}{})", DollarText(one.dollars()), what);
  }
  for (const CostPrediction& one : ShownOf(answer)) {
    const double seconds = one.total_seconds(in.epochs);
    text += fmt::format("{} {} takes {}{}", text.ends_with(':') ? "" : ";", one.title, RoundTimeText(seconds),
                        LongerText(seconds, answer.chosen.total_seconds(in.epochs)));
    if (one.dollars() >= kCent) text += fmt::format(" and costs {}{}", DollarText(one.dollars()), what);
  }
  return text + (text.ends_with(':') ? " nothing to compare." : ".");
}

double LineOf(const CostPrediction& one, std::string_view name) {
  const auto found = std::ranges::find(one.lines, name, &Derivation::name);
  return found == one.lines.end() ? 0 : found->value;
}

/// Represents a cause for which a training waits, in all its epochs.
struct Wait {
  double seconds = 0;
  std::string_view what;
  double each = 0;
  std::string_view when;
};

/// Returns the waits for bytes of the way that is chosen.
std::vector<Wait> WaitsForBytes(const CostPrediction& one, const CostInputs& in) {
  constexpr std::string_view kStore = "the store and the network, which bring the bytes";
  constexpr std::string_view kDisk = "the disk of the machine";
  const auto epochs = static_cast<double>(in.epochs);
  const bool keeps = one.mode.ends_with("-cache");
  const auto often = [&](double each, std::string_view what) {
    return keeps ? Wait{each, what, each, "of the first epoch"} : Wait{epochs * each, what, each, "of an epoch"};
  };
  const auto once = [](double each, std::string_view what) { return Wait{each, what, each, "before the first batch"}; };
  std::vector<Wait> waits;
  const double readers = LineOf(one, "reading by workers");
  const double all = LineOf(one, "reading at the most");
  waits.push_back(readers > all
                      ? often(readers, "the readers, which wait for each file; more data workers make it faster")
                      : often(all, kStore));
  const std::string_view source = in.in_folder         ? "the disk of the folder"
                                  : one.mode == "file" ? kDisk
                                  : one.mode == "efs"  ? "the rate of EFS for data of this size"
                                                       : kStore;
  waits.push_back(often(LineOf(one, "reading of an epoch"), source));
  const double later = LineOf(one, "reading of a later epoch");
  waits.push_back({std::max(0.0, epochs - 1) * later, kDisk, later, "of a later epoch"});
  waits.push_back(once(LineOf(one, "download"), "the copy to the disk, which the store and the network bring"));
  waits.push_back(once(LineOf(one, "copying to it"), "the copy to EFS"));
  return waits;
}

std::string LimitText(const CostPrediction& one, const CostInputs& in) {
  const auto epochs = static_cast<double>(in.epochs);
  const double model = ModelSeconds(in);
  const double cpu = LineOf(one, "CPU of an epoch");
  std::vector<Wait> waits = WaitsForBytes(one, in);
  const double copy = LineOf(one, "download") + LineOf(one, "copying to it");
  const double start = std::max(0.0, one.startup_seconds - copy);
  waits.push_back({epochs * model, "the model; reading and decoding keep up with it", model, "of an epoch"});
  waits.push_back(
      {epochs * cpu, "the CPUs, which decode; more vCPUs or smaller images make it faster", cpu, "of an epoch"});
  waits.push_back({start, "the start, with the listing and the first batch", start, "before the first batch"});
  const Wait& most = *std::ranges::max_element(waits, {}, &Wait::seconds);
  return fmt::format("Limit: {} (by the arithmetic, {} {}).", most.what, RoundTimeText(most.each), most.when);
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

std::string RoundTimeText(double seconds) {
  if (seconds < 1) return "less than a second";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  return seconds < 59.5 ? fmt::format("{:.0f} s", seconds) : TimeText(std::max(60.0, seconds));
}

AdviceAnswer AnswerOf(const std::vector<CostPrediction>& predictions, const CostInputs& inputs) {
  const auto seconds = [&inputs](const CostPrediction& one) { return one.total_seconds(inputs.epochs); };
  std::vector<CostPrediction> ways = ComparableOf(predictions, inputs);
  std::ranges::stable_sort(ways, {}, seconds);
  const double most = seconds(ways.front()) * (1 + kNoDifference);
  const auto longer = std::ranges::find_if(ways, [&](const CostPrediction& one) { return seconds(one) > most; });
  AdviceAnswer answer;
  answer.other.assign(longer, ways.end());
  ways.erase(longer, ways.end());
  std::ranges::stable_sort(ways, {}, &CostPrediction::dollars);
  const double least = ways.front().dollars();
  const auto dearer = std::ranges::find_if(ways, [least](const CostPrediction& one) {
    return one.dollars() >= least + std::max(kCent, least * kSamePrice);
  });
  const auto simplest = std::min_element(
      ways.begin(), dearer,
      [](const CostPrediction& one, const CostPrediction& other) { return ActionOf(one.mode) < ActionOf(other.mode); });
  answer.chosen = *simplest;
  ways.erase(simplest);
  answer.equal = std::move(ways);
  return answer;
}

std::vector<std::string> AnswerLines(const Advice& advice, const AdviseSettings& settings) {
  const CostInputs& in = advice.inputs;
  const AdviceAnswer answer = AnswerOf(advice.predictions, in);
  return {DoText(answer, in), CostText(answer.chosen, advice, settings), WholeTimeText(answer.chosen, in),
          OtherText(answer, in), LimitText(answer.chosen, in)};
}

}  // namespace millrace
