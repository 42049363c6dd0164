#include "diagnose/prices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file_text.h"

namespace millrace {

extern const char kPricesJson[];  // prices.json, by CMakeLists.txt

namespace {

using PriceJson = nlohmann::json;

constexpr size_t kMaxPriceBytes = 1 << 20;

/// Takes numbers out of an object and remembers the first that is missing or makes no sense.
class NumberTaker {
 public:
  explicit NumberTaker(const PriceJson& json) : json_(json) {}

  void Take(const char* section, const char* name, double* into) {
    const PriceJson* found = nullptr;
    if (const auto part = json_.find(section); part != json_.end() && part->is_object()) {
      if (const auto number = part->find(name); number != part->end()) found = &*number;
    }
    if (Good(found)) {
      *into = found->get<double>();
    } else if (problem_.empty()) {
      problem_ = fmt::format("\"{}\" has no number \"{}\" that is 0 or greater", section, name);
    }
  }

  static bool Good(const PriceJson* number) {
    return number != nullptr && number->is_number() && std::isfinite(number->get<double>()) &&
           number->get<double>() >= 0;
  }
  const std::string& problem() const { return problem_; }

 private:
  const PriceJson& json_;
  std::string problem_;
};

const PriceJson* Member(const PriceJson& json, const char* name) {
  const auto found = json.find(name);
  return found == json.end() ? nullptr : &*found;
}

std::string TextOf(const PriceJson& json, const char* name) {
  const PriceJson* const found = Member(json, name);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

absl::Status TakeMachines(const PriceJson& json, PriceList* prices) {
  const PriceJson* const machines = Member(json, "machines");
  if (machines == nullptr) return absl::OkStatus();
  if (!machines->is_array()) return absl::InvalidArgumentError("\"machines\" is not a list");
  for (const PriceJson& one : *machines) {
    MachinePrice machine;
    if (one.is_object()) machine.name = TextOf(one, "name");
    if (machine.name.empty()) return absl::InvalidArgumentError("a machine has no \"name\"");
    const PriceJson* const vcpus = Member(one, "vcpus");
    if (!NumberTaker::Good(vcpus) || vcpus->get<double>() < 1 || vcpus->get<double>() > 100'000) {
      return absl::InvalidArgumentError(fmt::format("the machine {} has no \"vcpus\" of 1 or more", machine.name));
    }
    machine.vcpus = static_cast<int>(vcpus->get<double>());
    const PriceJson* const gpus = Member(one, "gpus");
    if (NumberTaker::Good(gpus)) machine.gpus = static_cast<int>(std::min(gpus->get<double>(), 100'000.0));
    const PriceJson* const dollars = Member(one, "dollars_per_hour");
    if (NumberTaker::Good(dollars)) machine.dollars_per_hour = dollars->get<double>();
    const PriceJson* const disk = Member(one, "disk_bytes_per_second");
    if (NumberTaker::Good(disk) && disk->get<double>() > 0) machine.disk_bytes_per_second = disk->get<double>();
    machine.date = TextOf(one, "date");
    if (machine.date.empty()) machine.date = prices->date;
    prices->machines.push_back(std::move(machine));
  }
  return absl::OkStatus();
}

void TakeNumbers(NumberTaker& taker, PriceList* prices) {
  taker.Take("s3", "get_per_million", &prices->get_per_million);
  taker.Take("s3", "head_per_million", &prices->head_per_million);
  taker.Take("s3", "list_per_million", &prices->list_per_million);
  taker.Take("s3", "put_per_million", &prices->put_per_million);
  taker.Take("s3", "gigabyte_month", &prices->gigabyte_month);
  taker.Take("fsx_lustre", "gigabyte_month", &prices->fsx_gigabyte_month);
  taker.Take("fsx_lustre", "least_gigabytes", &prices->fsx_least_gigabytes);
  taker.Take("fsx_lustre", "bytes_per_second_per_gigabyte", &prices->fsx_bytes_per_second_per_gigabyte);
  taker.Take("fsx_lustre", "indexed_objects_per_hour", &prices->fsx_indexed_objects_per_hour);
  taker.Take("published_rates", "listed_objects_per_second", &prices->listed_objects_per_second);
  taker.Take("published_rates", "file_mode_bytes_per_second", &prices->file_mode_bytes_per_second);
  taker.Take("published_rates", "file_mode_files_per_second", &prices->file_mode_files_per_second);
}

}  // namespace

std::string DollarText(double dollars) {
  if (dollars < 1) {
    if (dollars > 0 && dollars < 0.0005) return "<$0.001";
    return dollars > 0 ? fmt::format("${:.3f}", dollars) : "$0";
  }
  std::string text = fmt::format("{:.2f}", dollars);
  for (size_t at = text.size() - 3; at > 3; at -= 3) text.insert(at - 3, ",");
  return "$" + text;
}

double PriceList::DollarsOf(const RequestCounts& requests) const {
  return 1e-6 *
         (get_per_million * static_cast<double>(requests.get) + head_per_million * static_cast<double>(requests.head) +
          list_per_million * static_cast<double>(requests.list) + put_per_million * static_cast<double>(requests.put));
}

absl::StatusOr<MachinePrice> PriceList::FindMachine(std::string_view name) const {
  std::string names;
  for (const MachinePrice& machine : machines) {
    if (machine.name == name) return machine;
    names += (names.empty() ? "" : ", ") + machine.name;
  }
  return absl::NotFoundError(
      fmt::format("the price list ({}) has no machine {}; it has {}", from, name, names.empty() ? "none" : names));
}

absl::StatusOr<PriceList> ParsePrices(std::string_view json, std::string from) {
  const PriceJson parsed = PriceJson::parse(json, nullptr, /*allow_exceptions=*/false);
  const auto bad = [&](const std::string& why) {
    return absl::InvalidArgumentError(fmt::format("the price list ({}) cannot be used: {}", from, why));
  };
  if (!parsed.is_object()) return bad("it is not a JSON object");
  if (const PriceJson* const format = Member(parsed, "format"); format == nullptr || *format != 1) {
    return bad("its \"format\" is not 1");
  }
  PriceList prices;
  prices.date = TextOf(parsed, "date");
  if (prices.date.empty()) return bad("it has no \"date\"");
  prices.region = TextOf(parsed, "region");
  prices.note = TextOf(parsed, "note");
  NumberTaker taker(parsed);
  TakeNumbers(taker, &prices);
  if (Member(parsed, "efs") != nullptr) {  // older lists have none
    taker.Take("efs", "gigabyte_month", &prices.efs_gigabyte_month);
    taker.Take("efs", "bytes_per_second_per_gigabyte", &prices.efs_bytes_per_second_per_gigabyte);
    taker.Take("efs", "burst_bytes_per_second_per_gigabyte", &prices.efs_burst_bytes_per_second_per_gigabyte);
    taker.Take("efs", "most_bytes_per_second", &prices.efs_most_bytes_per_second);
  }
  if (!taker.problem().empty()) return bad(taker.problem());
  if (prices.listed_objects_per_second <= 0 || prices.file_mode_bytes_per_second <= 0 ||
      prices.file_mode_files_per_second <= 0 || prices.fsx_indexed_objects_per_hour <= 0 ||
      prices.fsx_bytes_per_second_per_gigabyte <= 0 || prices.fsx_least_gigabytes <= 0) {
    return bad("rates, and the least size of a file system, have to be greater than 0");
  }
  if (prices.efs_gigabyte_month > 0 &&
      (prices.efs_bytes_per_second_per_gigabyte <= 0 || prices.efs_burst_bytes_per_second_per_gigabyte <= 0 ||
       prices.efs_most_bytes_per_second <= 0)) {
    return bad("rates of EFS have to be greater than 0");
  }
  if (const absl::Status machines = TakeMachines(parsed, &prices); !machines.ok()) {
    return bad(std::string(ToStd(machines.message())));
  }
  prices.from = std::move(from);
  return prices;
}

const PriceList& BuiltInPrices() {
  // A test parses it, so that it cannot be bad here. Never destroyed: it may be used until the program ends.
  static const PriceList* const prices = new PriceList(ParsePrices(kPricesJson, "built in").value());
  return *prices;
}

absl::StatusOr<PriceList> ReadPrices(const std::string& path) {
  if (path.empty()) return BuiltInPrices();
  const absl::StatusOr<std::string> text = ReadFileText(path, kMaxPriceBytes + 1);
  if (!text.ok())
    return absl::Status(text.status().code(), fmt::format("the price list {}", ToStd(text.status().message())));
  if (text->size() > kMaxPriceBytes)
    return absl::InvalidArgumentError(fmt::format("the price list {} is larger than 1 MiB", path));
  return ParsePrices(*text, path);
}

}  // namespace millrace
