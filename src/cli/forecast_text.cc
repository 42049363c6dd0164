#include "cli/forecast_text.h"

#include <fmt/format.h>

#include "base/counted.h"
#include "base/size.h"

namespace millrace::cli {

namespace {

Json PoliciesJson(const CacheForecast::Epoch& epoch) {
  const auto rate = [&](uint64_t hits) {
    return epoch.bytes == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(epoch.bytes);
  };
  return JsonObject{{"bytes", epoch.bytes},
                    {"hit_rate", JsonObject{{"ours", rate(epoch.hits.ours)},
                                            {"lru", rate(epoch.hits.lru)},
                                            {"optimum", rate(epoch.hits.optimum)}}},
                    {"store_bytes", JsonObject{{"ours", epoch.bytes - epoch.hits.ours},
                                               {"lru", epoch.bytes - epoch.hits.lru},
                                               {"optimum", epoch.bytes - epoch.hits.optimum}}}};
}

}  // namespace

JsonObject ForecastJson(uint64_t capacity_bytes, const CacheForecast& found) {
  JsonArray epochs;
  for (const CacheForecast::Epoch& epoch : found.epochs) epochs.Add(PoliciesJson(epoch));
  return JsonObject{{"capacity_bytes", capacity_bytes}, {"data_bytes", found.data_bytes},   {"units", found.units},
                    {"sampled", found.sampled},         {"all", PoliciesJson(found.Sum())}, {"epochs", epochs}};
}

std::string ForecastText(uint64_t capacity_bytes, const CacheForecast& found) {
  const auto percent = [](uint64_t hits, uint64_t bytes) {
    return bytes == 0 ? 0.0 : 100 * static_cast<double>(hits) / static_cast<double>(bytes);
  };
  std::string text = fmt::format("A cache of {}, for {} with its bookkeeping in {}{}:\n", FormatSize(capacity_bytes),
                                 FormatSize(found.data_bytes), Counted(found.units, "unit"),
                                 found.sampled ? " (from a sample of them)" : "");
  text += "  epoch    from the cache:  ours    LRU  optimum    from the store\n";
  const auto line = [&](const std::string& name, const CacheForecast::Epoch& epoch) {
    return fmt::format("  {:<22} {:>6.1f} {:>6.1f} {:>8.1f} %  {:>14}\n", name, percent(epoch.hits.ours, epoch.bytes),
                       percent(epoch.hits.lru, epoch.bytes), percent(epoch.hits.optimum, epoch.bytes),
                       FormatSize(epoch.bytes - epoch.hits.ours));
  };
  for (size_t i = 0; i < found.epochs.size(); ++i) text += line(fmt::format("{}", i + 1), found.epochs[i]);
  return text + line("all", found.Sum());
}

}  // namespace millrace::cli
