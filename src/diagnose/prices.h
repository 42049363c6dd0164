#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "store/request_counts.h"

namespace millrace {

/// Describes a machine that can be rented.
struct MachinePrice {
  std::string name;
  int vcpus = 1;
  int gpus = 0;
  double dollars_per_hour = 0;                  // 0: not known
  std::optional<double> disk_bytes_per_second;  // of its volume; absent: not known
  std::string date;                             // as of which the price is known
};

/// Returns "$1,234.50"; below a dollar with three decimals, "$0.108"; "<$0.001". The one format of amounts of money.
std::string DollarText(double dollars);

/// Has the prices of requests, storage and machines, and the rates that their provider publishes, as of a date. Plain
/// data.
struct PriceList {
  std::string date;  // "2022-12-01"
  std::string region;
  std::string note;
  std::string from;  // the file, or "built in"

  double get_per_million = 0;  // dollars; so are the others
  double head_per_million = 0;
  double list_per_million = 0;
  double put_per_million = 0;
  double gigabyte_month = 0;  // of S3; a gigabyte has 10^9 bytes here

  double fsx_gigabyte_month = 0;
  double fsx_least_gigabytes = 0;
  double fsx_bytes_per_second_per_gigabyte = 0;
  double fsx_indexed_objects_per_hour = 0;

  double efs_gigabyte_month = 0;  // 0: the list has no EFS; the others count only if it has
  double efs_bytes_per_second_per_gigabyte = 0;
  double efs_burst_bytes_per_second_per_gigabyte = 0;  // for twelve hours of a day
  double efs_most_bytes_per_second = 0;

  double listed_objects_per_second = 0;
  double file_mode_bytes_per_second = 0;
  double file_mode_files_per_second = 0;

  std::vector<MachinePrice> machines;

  /// Returns the price of these requests, with their retries, since retries are charged too.
  double DollarsOf(const RequestCounts& requests) const;
  /// Returns NotFound with the names that there are.
  absl::StatusOr<MachinePrice> FindMachine(std::string_view name) const;
};

/// Returns the list that is part of the program: prices.json of this folder.
const PriceList& BuiltInPrices();

/// Returns InvalidArgument if it is not JSON of that form, a number is missing, negative or not finite, or the date is
/// missing.
absl::StatusOr<PriceList> ParsePrices(std::string_view json, std::string from);

/// Reads the list in a file; "" gives the built-in one. Blocking.
absl::StatusOr<PriceList> ReadPrices(const std::string& path);

}  // namespace millrace
